"""Mapped pages: the same rows and errors as reads, and no more memory unless it is wanted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import naive
import semistream as ss
from master.split_base import rows, split
from semistream.master.mapped_reader import ResidentReader

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


# -- a map that stays ---------------------------------------------------------------------------


@pytest.fixture
def kept(table: ss.MasterTable) -> ss.MasterTable:
    return ss.MasterTable.open(table.path, mapped="resident")


def test_a_map_that_stays_has_the_same_pages(kept: ss.MasterTable) -> None:
    plain, reader = ss.MasterTable.open(kept.path).reader(3), kept.reader(3)
    assert isinstance(reader, ResidentReader)
    assert reader.nbytes == kept.buffer_bytes(3, direct=False) == 0
    for first in range(0, kept.num_pages - 3, 7):
        for one, other in zip(reader.read(first, 3), plain.read(first, 3), strict=True):
            assert one.equals(other)
    assert type(kept.reader(3, direct=True)) is type(plain)
    assert kept.buffer_bytes(3, direct=True) > 0


def test_a_map_of_several_files(tmp_path: Path) -> None:
    """A base in three files, and a delta; pages of all of them in one read."""
    plain = split(tmp_path / "t", rows(0, 2000), (500, 1000)).upsert(rows(700, 710))
    kept = ss.MasterTable.open(plain.path, mapped="resident")
    reader: Any = kept.reader(kept.num_pages)
    numbers = np.arange(kept.num_pages)
    every = [plain.reader().read(page)[0] for page in range(plain.num_pages)]
    reader.load(reader.plan(numbers))
    assert reader.parse() == every
    addresses, sizes = reader.frames(3).load(np.arange(kept.num_pages), numbers[::-1])
    messages = [pa.foreign_buffer(int(at), int(n)) for at, n in zip(addresses, sizes, strict=True)]
    found = [pa.ipc.read_record_batch(one, kept.page_schema) for one in messages]
    assert found == every[::-1]


@pytest.mark.parametrize("algorithm", ss.ALGORITHMS)
def test_joins_with_a_map_that_stays(kept: ss.MasterTable, algorithm: str) -> None:
    """Within the budget, and over a change of the table."""
    stream = pa.table({"k": np.arange(-5, ROWS, 997)}).to_batches()[0]
    keys = np.arange(992, ROWS, 997)
    with ss.join(algorithm, memory="4MB").open(kept, on="k", select=["v"], follow=True) as run:
        for factor in (2, 3):
            rows = [*run.push(stream), *run.flush()]
            naive.same_rows(naive.rows_of(rows), [(int(k), int(k) * factor) for k in keys])
            assert run.memory.total <= run.memory.budget
            if factor == 2:
                kept.upsert(pa.table({"k": keys, "v": keys * 3, "text": ["new"] * len(keys)}))


def test_what_stays_mapped_is_not_memory_of_the_run(kept: ss.MasterTable) -> None:
    stream = pa.table({"k": np.arange(ROWS)}).to_batches()[0]

    def private() -> int:
        """Resident memory without pages of files."""
        resident, files = Path("/proc/self/statm").read_text().split()[1:3]
        return (int(resident) - int(files)) * os.sysconf("SC_PAGE_SIZE")

    with ss.join("sweepjoin", memory="4MB").open(kept, on="k", select=["v"]) as run:
        for batch in (stream.slice(0, 1000), stream):  # the first one loads kernels
            before = private()
            for _ in run.push(batch):
                pass
            for _ in run.flush():
                pass
        assert private() - before < 6_000_000 < kept.nbytes // 3


def test_a_map_that_stays_of_a_truncated_file(kept: ss.MasterTable) -> None:
    segment = segment_of(kept)
    os.truncate(segment, segment.stat().st_size // 2)
    with pytest.raises(ss.MasterTableError, match=r"page \d+ of .* is truncated"):
        kept.reader(2)


def test_an_unknown_way_to_map(kept: ss.MasterTable) -> None:
    with pytest.raises(ss.ConfigError, match="mapped='always'; use True, False or 'resident'"):
        ss.MasterTable.open(kept.path, mapped="always")
