"""Asynchronous reads: the same bytes, and clean error handling."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import needs_direct_io
from master.cases import numbers
from semistream.master import MasterTable
from semistream.master.disk_read import DiskRead
from semistream.master.reader import PlainReader
from semistream.master.store import ALIGNMENT

CONTENT = os.urandom(5 * ALIGNMENT + 100)


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    needs_direct_io(tmp_path)
    file = tmp_path / "file"
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


def test_reads_return_the_bytes_at_their_offset(descriptor: int, ahead: DiskRead) -> None:
    target = buffer(2)
    for first in (0, 3, 1):
        ahead.begin(descriptor, target, first * ALIGNMENT)
        assert ahead.pending
        assert ahead.finish() == len(target)
        assert not ahead.pending
        assert target == CONTENT[first * ALIGNMENT :][: len(target)]


def test_in_flight_reports_completion(descriptor: int, ahead: DiskRead) -> None:
    assert not ahead.in_flight
    target = buffer(2)
    ahead.begin(descriptor, target, ALIGNMENT)
    until = time.monotonic() + 10
    while ahead.in_flight and time.monotonic() < until:
        pass
    assert not ahead.in_flight
    assert ahead.pending
    assert ahead.finish() == len(target)
    assert target == CONTENT[ALIGNMENT:][: len(target)]
    ahead.begin(descriptor, target, 0)  # wait for the next one
    assert ahead.finish() == len(target)
    assert target == CONTENT[: len(target)]


def test_a_read_at_the_end_of_the_file_is_short(descriptor: int, ahead: DiskRead) -> None:
    target = buffer(4)
    ahead.begin(descriptor, target, 4 * ALIGNMENT)
    got = ahead.finish()
    assert got == ALIGNMENT + 100
    assert target[:got] == CONTENT[4 * ALIGNMENT :]


def test_a_refused_read_is_not_pending(ahead: DiskRead) -> None:
    ahead.begin(1 << 20, buffer(1), 0)  # no such descriptor
    assert not ahead.pending


def test_an_unaligned_read_fails(descriptor: int, ahead: DiskRead) -> None:
    ahead.begin(descriptor, buffer(1), 7)
    assert not ahead.pending or ahead.finish() < 0


def test_a_read_in_flight_may_be_abandoned(descriptor: int, ahead: DiskRead) -> None:
    ahead.begin(descriptor, buffer(4), 0)
    ahead.close()  # waits for it
    ahead.begin(descriptor, buffer(4), 0)
    assert not ahead.pending


@pytest.mark.parametrize("direct", [False, True])
def test_a_prefetching_reader_reads_the_same(direct: bool, tmp_path: Path) -> None:
    if direct:
        needs_direct_io(tmp_path)
    table = MasterTable.build(numbers(5_000), tmp_path / "t", key="id", page_bytes=9_000)
    plain, prefetching = table.reader(2), table.reader(2, direct=direct)
    assert isinstance(prefetching, PlainReader)
    for first in range(0, table.num_pages - 1, 2):
        prefetching.prefetch(first, 2)
        assert prefetching.read(first, 2) == plain.read(first, 2)
        prefetching.prefetch(first, 2)  # and then something else is wanted
        assert prefetching.read(first + 1) == plain.read(first + 1)
    prefetching.prefetch(0, 2)
    prefetching.close()


def test_without_asynchronous_reads_pages_are_read_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_direct_io(tmp_path)
    monkeypatch.setattr(DiskRead, "make", lambda: None)
    table = MasterTable.build(numbers(5_000), tmp_path / "t", key="id", page_bytes=9_000)
    plain, prefetching = table.reader(2), table.reader(2, direct=True)
    assert isinstance(prefetching, PlainReader)
    prefetching.prefetch(4, 2)
    assert prefetching.read(4, 2) == plain.read(4, 2)


def test_a_forked_child_does_not_use_the_parents_reads(descriptor: int, ahead: DiskRead) -> None:
    ahead.begin(descriptor, buffer(1), 0)
    child = os.fork()
    if child == 0:
        os._exit(0 if ahead.finish() < 0 else 1)  # the read belongs to the parent
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ahead.finish() == ALIGNMENT
