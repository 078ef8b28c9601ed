"""Readers: scattered pages, as many as fit; pages in frames; maps of dense pages only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from harness import needs_direct_io
from master.cases import numbers
from semistream.master import direct_ranges
from semistream.master.disk_read import DiskRead
from semistream.master.local_file import ALIGNMENT, LocalFile
from semistream.master.mapped_reader import MappedReader
from semistream.master.reader import FrameReader, PlainReader

both_ways = pytest.mark.parametrize("direct", [False, True])


@pytest.fixture
def table(disk_path: Path) -> ss.MasterTable:
    built = ss.MasterTable.build(numbers(3_000), disk_path / "t", key="id", page_bytes=1_000)
    assert built.num_pages > 60
    return built


def reader_of(table: ss.MasterTable, pages: int, direct: bool = False) -> PlainReader:
    if direct:
        needs_direct_io(Path(table.path))
    reader = table.reader(pages, direct)
    assert isinstance(reader, PlainReader)
    return reader


def batches_of(table: ss.MasterTable, pages: Any) -> list[pa.RecordBatch]:
    """Each from a reader of its own, so that all stay valid."""
    return [ss.MasterTable.open(table.path).reader().read(int(page))[0] for page in pages]


def at_addresses(table: ss.MasterTable, addresses: Any, sizes: Any) -> list[pa.RecordBatch]:
    messages = [
        pa.foreign_buffer(int(address), int(size))
        for address, size in zip(addresses, sizes, strict=True)
    ]
    return [pa.ipc.read_record_batch(message, table.page_schema) for message in messages]


# -- scattered pages ---------------------------------------------------------------------------


@both_ways
def test_pages_anywhere_in_the_file(table: ss.MasterTable, direct: bool) -> None:
    reader = reader_of(table, 12, direct)
    rng, read_before = np.random.default_rng(3), 0
    for _ in range(30):
        pages = np.sort(rng.choice(table.num_pages, rng.integers(1, 4), replace=False))
        if direct:
            pages = pages[:2]
        read = reader.plan(pages)
        assert read.pages.tolist() == pages.tolist()
        assert read.sizes.tolist() == table.pages.segment.pages.lengths[pages].tolist()
        addresses = reader.load(read)
        expected = batches_of(table, pages)
        assert at_addresses(table, addresses, read.sizes) == expected
        assert reader.parse() == expected
        assert reader.bytes_read - read_before == read.extents.sizes.sum() >= read.sizes.sum()
        read_before = reader.bytes_read


def test_adjacent_pages_fill_the_buffer(table: ss.MasterTable) -> None:
    reader = reader_of(table, 4)
    read = reader.plan(np.arange(8, 12))
    assert read.pages.tolist() == [8, 9, 10, 11]
    assert len(read.extents) == 1


@both_ways
def test_pages_that_do_not_fit_are_cut_off(table: ss.MasterTable, direct: bool) -> None:
    reader = reader_of(table, 4, direct)
    pages, parts = np.arange(1, 60, 2), []
    while len(pages):
        read = reader.plan(pages)
        assert read.extents.nbytes <= reader.nbytes
        assert read.pages.tolist() == pages[: len(read.pages)].tolist()
        parts.append(len(read.pages))
        assert at_addresses(table, reader.load(read), read.sizes) == batches_of(table, read.pages)
        pages = pages[len(read.pages) :]
    assert len(parts) > 5
    assert min(parts) >= 1


def test_a_single_page_always_fits(table: ss.MasterTable) -> None:
    for direct in (False, True):
        reader = reader_of(table, 1, direct)
        for page in range(table.num_pages):
            assert reader.plan(np.array([page])).extents.nbytes <= reader.nbytes


def test_one_call_reads_many_ranges(table: ss.MasterTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """And single reads follow only where it fails."""
    reader = reader_of(table, 12)
    singles = []
    read_into = LocalFile.read_into

    def counted(file: LocalFile, target: memoryview, offset: int, direct: bool = False) -> int:
        singles.append(offset)
        return read_into(file, target, offset, direct)

    monkeypatch.setattr(LocalFile, "read_into", counted)
    read = reader.plan(np.array([3, 7, 20]))
    reader.load(read)
    assert singles == []
    monkeypatch.setattr(LocalFile, "read_ranges", lambda *_: False)
    addresses = reader.load(read)
    assert len(singles) == 3
    assert at_addresses(table, addresses, read.sizes) == batches_of(table, read.pages)


@both_ways
def test_a_scattered_page_behind_the_end_of_the_file(table: ss.MasterTable, direct: bool) -> None:
    reader = reader_of(table, 16, direct)
    last = table.num_pages - 1
    read = reader.plan(np.array([2, 9, last]))
    assert len(read.pages) == 3
    expected = at_addresses(table, reader.load(read), read.sizes)[0]["id"].to_pylist()
    segment = Path(table.pages.segment.parts[0][1])
    content = segment.read_bytes()
    os.truncate(segment, int(table.pages.segment.offsets[last]) + 9)
    for prefetched in (False, True):
        if prefetched:
            reader.prefetch(read)
        with pytest.raises(ss.MasterTableError, match=f"page {last} of .* is truncated"):
            reader.load(read)
    segment.write_bytes(content)
    assert at_addresses(table, reader.load(read), read.sizes)[0]["id"].to_pylist() == expected


def test_a_scattered_page_that_is_damaged(table: ss.MasterTable) -> None:
    segment = Path(table.pages.segment.parts[0][1])
    content = bytearray(segment.read_bytes())
    content[int(table.pages.segment.offsets[20]) + 500] ^= 255
    segment.write_bytes(content)
    reader = reader_of(table, 12)
    with pytest.raises(ss.MasterTableError, match=r"page 20 of .* is damaged"):
        reader.load(reader.plan(np.array([3, 20, 30])))
    read = reader.plan(np.array([3, 30]))
    assert at_addresses(table, reader.load(read), read.sizes) == batches_of(table, [3, 30])


# -- frames ------------------------------------------------------------------------------------


@both_ways
def test_pages_in_frames_stay(table: ss.MasterTable, direct: bool) -> None:
    frames = reader_of(table, 1, direct).frames(5)
    assert isinstance(frames, FrameReader)
    held: dict[int, tuple[int, int, int]] = {}
    rng = np.random.default_rng(5)
    for _ in range(20):
        count = int(rng.integers(1, 5))
        chosen = rng.choice(5, count, replace=False)
        pages = rng.choice(table.num_pages, count, replace=False)  # in any order
        addresses, sizes = frames.load(chosen, pages)
        for frame, *where in zip(
            chosen.tolist(), pages.tolist(), addresses.tolist(), sizes.tolist(), strict=True
        ):
            held[frame] = (where[0], where[1], where[2])
        kept, addresses, sizes = zip(*held.values(), strict=True)
        assert at_addresses(table, addresses, sizes) == batches_of(table, kept)
    assert frames.bytes_read > 0
    frames.close()


@pytest.mark.parametrize("most", [1, 2, 256])
def test_direct_reads_are_in_flight_together(
    table: ss.MasterTable, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages in frames, and scattered pages that were not prefetched, in groups."""
    reader, begin, groups = reader_of(table, 12, True), DiskRead.begin, list[int]()

    def counted(reads: DiskRead, descriptor: Any, address: int, extents: Any) -> None:
        groups.append(len(extents))
        begin(reads, descriptor, address, extents)

    def alone(*_: Any) -> int:
        return pytest.fail("a range was read on its own")

    frames, pages = reader.frames(5), np.array([9, 2, 30, 5, 11])
    monkeypatch.setattr(direct_ranges, "MOST_IN_FLIGHT", most)
    monkeypatch.setattr(DiskRead, "begin", counted)
    monkeypatch.setattr(LocalFile, "read_into", alone)
    segment = table.pages.segment
    segment.checked[:] = True  # what checks need is read otherwise
    addresses, sizes = frames.load(np.arange(5), pages)
    read = reader.plan(np.array([2, 9, 20]))
    scattered = reader.load(read)
    monkeypatch.undo()
    assert at_addresses(table, addresses, sizes) == batches_of(table, pages)
    assert at_addresses(table, scattered, read.sizes) == batches_of(table, [2, 9, 20])
    assert groups == {1: 8 * [1], 2: [2, 2, 1, 2, 1], 256: [5, 3]}[most]


def test_the_bytes_of_frames(table: ss.MasterTable) -> None:
    frames = reader_of(table, 1).frames(3)
    _, sizes = frames.load(np.arange(3), np.array([8, 2, 5]))
    assert frames.bytes_read == sizes.sum() == table.pages.segment.pages.lengths[[8, 2, 5]].sum()
    needs_direct_io(Path(table.path))
    direct = reader_of(table, 1, True).frames(3)
    direct.load(np.arange(3), np.array([8, 2, 5]))
    assert direct.bytes_read % ALIGNMENT == 0


@both_ways
def test_frames_of_more_than_two_gigabytes(table: ss.MasterTable, direct: bool) -> None:
    """A buffer pool numbers its frames with 32 bits; the address of one needs more."""
    reader = reader_of(table, 1, direct)
    count = 5 * 2**29 // PlainReader.bytes_for(table.pages.segment, 1, direct)
    frames = reader.frames(count)  # memory that is not used is not allocated
    chosen = np.array([count - 1, 0, count // 2], np.int32)
    addresses, sizes = frames.load(chosen, np.array([8, 2, 5], np.int32))
    assert int(addresses.max() - addresses.min()) > 2**31
    assert at_addresses(table, addresses, sizes) == batches_of(table, [8, 2, 5])


@both_ways
def test_frames_of_a_damaged_table(table: ss.MasterTable, direct: bool) -> None:
    frames = reader_of(table, 1, direct).frames(3)
    segment = Path(table.pages.segment.parts[0][1])
    last = table.num_pages - 1
    content = segment.read_bytes()
    os.truncate(segment, int(table.pages.segment.offsets[last]))
    with pytest.raises(ss.MasterTableError, match=f"page {last} of .* is truncated"):
        frames.load(np.array([2, 0, 1]), np.array([4, last, 1]))
    segment.write_bytes(content)
    addresses, sizes = frames.load(np.array([2, 0, 1]), np.array([4, last, 1]))
    assert at_addresses(table, addresses, sizes) == batches_of(table, [4, last, 1])


# -- mapped pages ------------------------------------------------------------------------------


def test_only_dense_pages_are_mapped(
    table: ss.MasterTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = ss.MasterTable.open(table.path, mapped=True).reader(8)
    assert isinstance(reader, MappedReader)
    maps = []
    mapped = LocalFile.map

    def counted(file: LocalFile, begin: int, length: int) -> Any:
        maps.append((begin, length))
        return mapped(file, begin, length)

    monkeypatch.setattr(LocalFile, "map", counted)
    offsets, ends = table.pages.segment.offsets, table.pages.segment.ends(slice(None))
    for pages, dense in (
        ([4, 5, 6], True),
        ([4, 6, 7], True),  # most of it is needed
        ([4, 9, 20], False),
        ([0, table.num_pages - 1], False),
        ([7], True),
    ):
        maps.clear()
        before = reader.bytes_read
        read = reader.plan(np.array(pages))
        addresses = reader.load(read)
        assert at_addresses(table, addresses, read.sizes) == batches_of(table, pages)
        assert reader.parse() == batches_of(table, pages)
        length = int(ends[pages[-1]] - offsets[pages[0]])
        assert maps == ([(int(offsets[pages[0]]), length)] if dense else [])
        assert reader.bytes_read - before == (length if dense else read.sizes.sum())


def test_many_scattered_pages_are_mapped_if_they_fit(
    table: ss.MasterTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = ss.MasterTable.open(table.path, mapped=True).reader(20)
    monkeypatch.setattr("semistream.master.mapped_reader.MAPPED_PAGES", 3)
    for pages, is_mapped in (
        ([4, 9, 20], True),
        ([4, 20], False),  # too few
        ([0, 4, table.num_pages - 1], False),  # too far apart
    ):
        read = reader.plan(np.array(pages))
        before = reader.bytes_read
        assert at_addresses(table, reader.load(read), read.sizes) == batches_of(table, pages)
        assert (reader.bytes_read - before > read.sizes.sum()) == is_mapped


def test_a_map_that_fails_is_a_read(table: ss.MasterTable, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = ss.MasterTable.open(table.path, mapped=True).reader(8)
    assert isinstance(reader, MappedReader)
    monkeypatch.setattr(LocalFile, "map", lambda *_: None)
    read = reader.plan(np.arange(3, 6))
    assert at_addresses(table, reader.load(read), read.sizes) == batches_of(table, range(3, 6))
