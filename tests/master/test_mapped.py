"""Mapped pages: the same rows, no more memory, and the same errors as reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import naive
import semistream as ss

ROWS = 200_000


@pytest.fixture
def table(disk_path: Path) -> ss.MasterTable:
    keys = np.arange(ROWS)
    data = pa.table({"k": keys, "v": keys * 2, "text": [f"text {k} ".ljust(100) for k in keys]})
    ss.MasterTable.build(data, disk_path / "t", key="k", unique=True, page_bytes="64KiB")
    return ss.MasterTable.open(disk_path / "t", mapped=True)


def segment_of(table: ss.MasterTable) -> Path:
    return Path(table.pages.segment.parts[0][1])


def test_the_same_pages(table: ss.MasterTable) -> None:
    plain = ss.MasterTable.open(table.path).reader(3)
    mapped = table.reader(3)
    assert type(mapped) is not type(plain)
    for first in range(0, table.num_pages - 3, 7):
        for one, other in zip(mapped.read(first, 3), plain.read(first, 3), strict=True):
            assert one.equals(other)
    assert mapped.bytes_read == plain.bytes_read
    assert type(table.reader(3, direct=True)) is type(plain)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_only_the_pages_in_use_are_resident(table: ss.MasterTable) -> None:
    reader = table.reader(4)
    reader.read(0, 4)
    before = resident()
    for first in range(0, table.num_pages - 4, 4):
        reader.read(first, 4)
        assert resident() - before < 2_000_000 < table.nbytes // 10


def test_copies_are_released_before_pages_are_mapped(table: ss.MasterTable) -> None:
    """Sparse pages are copied, dense ones are mapped; both at once would exceed the plan."""
    reader: Any = table.reader(64)
    sparse, dense = np.arange(0, 2 * table.num_pages // 3, 5)[:60], np.arange(100, 160)
    for pages in (sparse, dense):  # and check all pages
        reader.load(reader.plan(pages))
    reader = table.reader(64)
    before = resident()
    for _ in range(3):
        for pages in (sparse, dense):
            read = reader.plan(pages)
            reader.load(read)
            assert sorted(int(batch["k"][0].as_py()) for batch in reader.parse()) == [
                int(code) for code in table.index.firsts[read.pages]
            ]
            assert read.extents.nbytes > reader.nbytes // 2
            assert resident() - before < reader.nbytes * 1.25


@pytest.mark.parametrize("algorithm", ["sweepjoin", "chybridjoin", "meshjoin"])
def test_a_join_moves_to_a_new_version(table: ss.MasterTable, algorithm: str) -> None:
    stream = pa.table({"k": np.arange(-5, ROWS, 97)}).to_batches()[0]
    keys = np.arange(ROWS)
    with ss.join(algorithm, memory="4MB").open(table, on="k", select=["v"], follow=True) as run:
        rows = [*run.push(stream), *run.flush()]
        naive.same_rows(naive.rows_of(rows), [(k, k * 2) for k in range(92, ROWS, 97)])
        newer = pa.table({"k": keys, "v": keys * 3, "text": ["new"] * ROWS})
        assert len(table.upsert(newer).compact().manifest.segments) == 1
        rows = [*run.push(stream), *run.flush()]
        naive.same_rows(naive.rows_of(rows), [(k, k * 3) for k in range(92, ROWS, 97)])


def test_a_truncated_file(table: ss.MasterTable) -> None:
    reader = table.reader(2)
    reader.read(0, 2)
    segment = segment_of(table)
    content = segment.read_bytes()
    os.truncate(segment, len(content) // 2)
    last = table.num_pages - 2
    with pytest.raises(ss.MasterTableError, match=rf"page {last} of .* is truncated"):
        reader.read(last, 2)
    segment.write_bytes(content)
    assert reader.read(last, 2)[0]["k"][0].as_py() > 0


def test_a_damaged_page(table: ss.MasterTable) -> None:
    segment = segment_of(table)
    content = bytearray(segment.read_bytes())
    at = int(table.pages.segment.offsets[5]) + 3000
    content[at] ^= 255
    segment.write_bytes(content)
    with pytest.raises(ss.MasterTableError, match=r"page 5 of .* is damaged"):
        table.reader(2).read(5, 2)
