"""A base in several files reads like a base in one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import naive
import semistream as ss
from harness import needs_direct_io
from master.split_base import rows, split
from semistream.master.extents import Extents
from semistream.master.reader import PlainReader
from semistream.master.verify import verify


@pytest.mark.parametrize("cuts", [(500,), (1, 2, 700), (333, 333, 1999)])
@pytest.mark.parametrize("direct", [False, True])
def test_all_pages_are_there_in_order(disk_path: Path, cuts: Sequence[int], direct: bool) -> None:
    data = rows(0, 2000)
    table = split(disk_path / "t", data, cuts)
    assert table.num_rows == 2000
    for at_once in (1, 3, 7):
        reader = table.reader(at_once, direct=direct)
        found: list[Any] = []
        for first in range(0, table.num_pages, at_once):
            for page in reader.read(first, min(at_once, table.num_pages - first)):
                found += page.to_pylist()
        assert found == data.to_pylist()
    assert verify(table) == []


@pytest.mark.parametrize("direct", [False, True])
def test_scattered_pages_and_pages_in_frames(disk_path: Path, direct: bool) -> None:
    table = split(disk_path / "t", rows(0, 2000), (500, 1000))
    expected = [page["k"].to_pylist() for page in table.batches()]
    count = len(expected)
    reader = table.reader(16, direct=direct)
    frames = reader.frames(3)
    for pages in ([0, 2, 3], [0, count - 1], [1, count // 2, count - 2], [count - 3, count - 1]):
        read = reader.plan(np.array(pages))
        reader.prefetch(read)
        reader.load(read)
        assert [page["k"].to_pylist() for page in reader.parse()] == [expected[p] for p in pages]
        for order in (pages, pages[::-1], [*pages[1:], pages[0]]):
            found = zip(*frames.load(np.arange(len(order)), np.array(order)), strict=True)
            messages = [pa.foreign_buffer(int(address), int(size)) for address, size in found]
            loaded = [pa.ipc.read_record_batch(one, table.page_schema) for one in messages]
            assert [page["k"].to_pylist() for page in loaded] == [expected[p] for p in order]


def test_ranges_of_several_files_are_read_together(tmp_path: Path) -> None:
    """Those of frames may be in any order, with the first and the last one in the same file."""
    table = split(tmp_path / "t", rows(0, 2000), (500, 1000))
    expected = [page["k"].to_pylist() for page in table.batches()]
    segment, last = table.pages.segment, table.num_pages - 1
    size = PlainReader.bytes_for(segment, 1, False)
    for pages in ([0, 2, 1], [0, last, 1], [last, 0, last - 1], [last // 2, last, 0]):
        places = size * np.arange(3)
        extents = Extents.apart(*segment.located(np.array(pages)), False, places)
        memory = np.zeros(3 * size, np.uint8)
        assert segment.file.read_ranges(memoryview(memory), extents)
        for page, place in zip(pages, places.tolist(), strict=True):
            read = pa.ipc.read_record_batch(pa.py_buffer(memory)[place:], table.page_schema)
            assert read["k"].to_pylist() == expected[page]


def test_direct_reads_of_several_files_are_in_flight_together(
    disk_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_direct_io(disk_path)
    table = split(disk_path / "t", rows(0, 2000), (500, 1000))
    expected = [page["k"].to_pylist() for page in table.batches()]
    pages = np.array([0, 3, len(expected) // 2, len(expected) - 1])
    reader = table.reader(16, direct=True)
    monkeypatch.setattr(os, "preadv", lambda *_: pytest.fail("a range was read on its own"))
    reader.load(reader.plan(pages))
    assert [page["k"].to_pylist() for page in reader.parse()] == [expected[p] for p in pages]


@pytest.mark.parametrize("direct", [False, True])
def test_deltas_beside_a_base_in_several_files(disk_path: Path, direct: bool) -> None:
    data = rows(0, 1000)
    table = split(disk_path / "t", data, (300, 301, 650))
    table = table.upsert(pa.table({"k": [299, 300, 5000], "text": ["a", "b", "c"]})).delete([651])
    expected = {row["k"]: row for row in data.to_pylist()}
    expected |= {k: {"k": k, "text": t} for k, t in [(299, "a"), (300, "b"), (5000, "c")]}
    del expected[651]
    reader = table.reader(5, direct=direct)
    pages: list[Any] = []
    for first in range(0, table.num_pages, 5):
        for number, page in enumerate(reader.read(first, min(5, table.num_pages - first)), first):
            shown = table.index.visible(number, page["k"].to_numpy(), np.array([page.num_rows]))
            pages += page.filter(pa.array(shown)).to_pylist()
    found = table.to_table().to_pylist()
    assert found == [expected[k] for k in sorted(expected)]
    assert sorted(pages, key=lambda row: row["k"]) == found
    assert verify(table) == []
    compact = table.compact()
    assert len(compact.manifest.segments) == 1
    assert compact.to_table().to_pylist() == found


@pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))
def test_every_join_on_a_base_in_several_files(disk_path: Path, algorithm: str) -> None:
    data = rows(0, 1000)
    table = split(disk_path / "t", data, (300, 650))
    stream = pa.table({"k": pa.array([(i * i) % 1200 for i in range(500)], pa.int64())})
    with ss.join(algorithm, memory="2MB", how="left").open(table, on="k") as run:
        found = [r for b in stream.to_batches() for r in run.push(b)] + list(run.flush())
    naive.same_rows(naive.rows_of(found), naive.join(stream, data, "k", "left"))


def test_a_truncated_file_is_detected(disk_path: Path) -> None:
    table = split(disk_path / "t", rows(0, 1000), (300, 650))
    middle = table.store.path(table.manifest.segments[1].file)
    middle.write_bytes(middle.read_bytes()[:5000])
    with pytest.raises(ss.MasterTableError, match=r"truncated|damaged"):
        ss.MasterTable.open(table.path).to_table()


def test_segments_that_overlap_are_refused(disk_path: Path) -> None:
    data = pa.concat_tables([rows(0, 100), rows(50, 150)])
    with pytest.raises(ss.MasterTableError, match="overlap"):
        split(disk_path / "t", data, (100,))
