"""Asynchronous reads: the same bytes, and clean error handling."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from harness import needs_direct_io
from master.cases import numbers
from semistream.master import MasterTable
from semistream.master.disk_read import DiskRead, address_of
from semistream.master.extents import Extents
from semistream.master.local_file import ALIGNMENT
from semistream.master.reader import PlainReader

CONTENT = os.urandom(5 * ALIGNMENT + 100)


@pytest.fixture
def descriptor(disk_path: Path) -> Iterator[int]:
    needs_direct_io(disk_path)
    file = disk_path / "file"
    file.write_bytes(CONTENT)
    opened = os.open(file, os.O_RDONLY | os.O_DIRECT)
    yield opened
    os.close(opened)


@pytest.fixture
def ahead() -> DiskRead:
    made = DiskRead.make()
    if made is None:
        pytest.skip("this system has no asynchronous reads")
    return made


def buffer(blocks: int) -> memoryview:
    return memoryview(mmap.mmap(-1, blocks * ALIGNMENT))


def begin(ahead: DiskRead, descriptor: int, target: memoryview, offset: int) -> None:
    """Fill the buffer from one range."""
    extents = Extents(np.array([offset]), np.array([offset + len(target)]), False)
    ahead.begin(descriptor, address_of(target), extents)


def test_reads_return_the_bytes_at_their_offset(descriptor: int, ahead: DiskRead) -> None:
    target = buffer(2)
    for first in (0, 3, 1):
        begin(ahead, descriptor, target, first * ALIGNMENT)
        assert ahead.pending
        assert ahead.finish() == len(target)
        assert not ahead.pending
        assert target == CONTENT[first * ALIGNMENT :][: len(target)]


def test_in_flight_reports_completion(descriptor: int, ahead: DiskRead) -> None:
    assert not ahead.in_flight
    target = buffer(2)
    begin(ahead, descriptor, target, ALIGNMENT)
    until = time.monotonic() + 10
    while ahead.in_flight and time.monotonic() < until:
        pass
    assert not ahead.in_flight
    assert ahead.pending
    assert ahead.finish() == len(target)
    assert target == CONTENT[ALIGNMENT:][: len(target)]
    begin(ahead, descriptor, target, 0)  # wait for the next one
    assert ahead.finish() == len(target)
    assert target == CONTENT[: len(target)]


def test_the_last_block_of_the_file_is_short(descriptor: int, ahead: DiskRead) -> None:
    """Its pages are there, so nothing is missing."""
    target, end = buffer(4), len(CONTENT)
    extents = Extents(np.array([4 * ALIGNMENT + 10]), np.array([end]), True)
    assert extents.sizes.tolist() == [2 * ALIGNMENT]
    ahead.begin(descriptor, address_of(target), extents)
    got = ahead.finish()
    assert got == ALIGNMENT + 100
    assert target[:got] == CONTENT[4 * ALIGNMENT :]


def test_a_range_past_the_end_of_the_file_is_no_success(descriptor: int, ahead: DiskRead) -> None:
    begin(ahead, descriptor, buffer(4), 4 * ALIGNMENT)
    assert ahead.finish() == 0


def test_many_ranges_are_read_at_once(descriptor: int) -> None:
    ahead = made_for(4)
    target = buffer(8)
    begins = np.array([ALIGNMENT + 5, 3 * ALIGNMENT, 4 * ALIGNMENT + 50])
    ends = begins + np.array([100, 20, ALIGNMENT + 30])
    extents = Extents(begins, ends, True)
    assert len(extents) == 3
    for _ in range(3):
        target[:] = bytes(len(target))
        ahead.begin(descriptor, address_of(target), extents)
        assert ahead.finish() == 3 * ALIGNMENT + 100
        for start, first, last in zip(extents.starts, begins, ends, strict=True):
            assert target[start : start + last - first] == CONTENT[first:last]


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_bytes_that_are_too_many_in_one_range_do_not_make_up_for_another(
    descriptor: int, order: slice
) -> None:
    ahead = made_for(2)
    begins = np.array([0, 7 * ALIGNMENT])[order]  # the second one is behind the end of the file
    places = np.array([0, ALIGNMENT])
    extents = Extents.apart(begins, np.array([10, 10]), 20, True, places)
    assert extents.needed < ALIGNMENT
    ahead.begin(descriptor, address_of(buffer(4)), extents)
    assert ahead.pending
    assert ahead.finish() <= 0
    assert not ahead.pending


def test_one_failing_range_fails_the_group(descriptor: int) -> None:
    ahead = made_for(2)
    sizes, places = np.array([9, 92]), np.array([0, ALIGNMENT])
    extents = Extents.apart(np.array([0, 7]), sizes, 101, False, places)
    ahead.begin(descriptor, address_of(buffer(2)), extents)  # neither is a whole block
    assert not ahead.pending or ahead.finish() <= 0


def made_for(ranges: int) -> DiskRead:
    made = DiskRead.make(ranges)
    if made is None:
        pytest.skip("this system has no asynchronous reads")
    assert made.most == ranges
    return made


def test_a_refused_read_is_not_pending(ahead: DiskRead) -> None:
    begin(ahead, 1 << 20, buffer(1), 0)  # no such descriptor
    assert not ahead.pending


def test_an_unaligned_read_fails(descriptor: int, ahead: DiskRead) -> None:
    begin(ahead, descriptor, buffer(1), 7)
    assert not ahead.pending or ahead.finish() < 0


def test_a_read_in_flight_may_be_abandoned(descriptor: int, ahead: DiskRead) -> None:
    begin(ahead, descriptor, buffer(4), 0)
    ahead.close()  # waits for it
    begin(ahead, descriptor, buffer(4), 0)
    assert not ahead.pending


@pytest.mark.parametrize("direct", [False, True])
def test_a_prefetching_reader_reads_the_same(direct: bool, disk_path: Path) -> None:
    if direct:
        needs_direct_io(disk_path)
    table = MasterTable.build(numbers(5_000), disk_path / "t", key="id", page_bytes=9_000)
    plain, prefetching = table.reader(2), table.reader(2, direct=direct)
    assert isinstance(prefetching, PlainReader)
    for first in range(0, table.num_pages - 1, 2):
        read = prefetching.plan(np.arange(first, first + 2))
        prefetching.prefetch(read)
        prefetching.load(read)
        assert prefetching.parse() == plain.read(first, 2)
        prefetching.prefetch(read)  # and then something else is wanted
        assert prefetching.read(first + 1) == plain.read(first + 1)
    prefetching.prefetch(read)
    prefetching.close()


def test_more_and_more_ranges_are_prefetched(disk_path: Path) -> None:
    needs_direct_io(disk_path)
    table = MasterTable.build(numbers(5_000), disk_path / "t", key="id", page_bytes=1_000)
    prefetching = table.reader(64, direct=True)
    assert isinstance(prefetching, PlainReader)
    for count in (1, 2, 3, 6, 5):
        pages = np.arange(0, 6 * count, 6)
        read = prefetching.plan(pages)
        assert len(read.extents) == len(read.pages) == count
        prefetching.prefetch(read)
        prefetching.load(read)
        assert prefetching.parse() == [table.reader().read(page)[0] for page in pages.tolist()]


def test_without_asynchronous_reads_pages_are_read_on_demand(
    disk_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_direct_io(disk_path)
    monkeypatch.setattr(DiskRead, "make", lambda most: None)
    table = MasterTable.build(numbers(5_000), disk_path / "t", key="id", page_bytes=9_000)
    prefetching = table.reader(2, direct=True)
    assert isinstance(prefetching, PlainReader)
    read = prefetching.plan(np.array([1, 4]))
    prefetching.prefetch(read)
    assert not prefetching.in_flight
    prefetching.load(read)
    assert prefetching.parse() == [*table.reader().read(1), *table.reader().read(4)]


def test_a_forked_child_does_not_use_the_parents_reads(descriptor: int, ahead: DiskRead) -> None:
    begin(ahead, descriptor, buffer(1), 0)
    child = os.fork()
    if child == 0:
        os._exit(0 if ahead.finish() < 0 else 1)  # the read belongs to the parent
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ahead.finish() == ALIGNMENT
