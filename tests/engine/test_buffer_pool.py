"""The buffer pool: pages by number, the rows of keys in them, evictions and failed reads."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from engine.kit import MemoryPages, binding, context, pages_of
from harness import needs_direct_io
from semistream.engine.buffer_pool import PAGE_BYTES, BufferPool, frame_bytes
from semistream.engine.rows.page_columns import PageColumns
from semistream.engine.shape import TableShape

KEYS = [[1, 2, 2], [2, 3], [5, 7], [8]]
both_kinds = pytest.mark.parametrize("can_address", [False, True], ids=["batches", "addresses"])


def pool_of(source: Any, frames: int, direct: bool = False) -> tuple[BufferPool, Any]:
    stream = pa.schema([(name, source.schema.field(name).type) for name in source.key])
    shared = context(binding(source, stream))
    shared.direct = direct
    table = TableShape.of(source, shared.binding, direct)
    return BufferPool(shared, source, table, frames), shared


def fetch(pool: BufferPool, *pages: int) -> list[int]:
    return pool.fetch(np.array(pages, np.int32)).tolist()


def values_in(pool: BufferPool, frame: int) -> list[str]:
    """The texts of all rows of the page in this frame."""
    rows = np.arange(pool.frames.sizes[frame])
    return pool.frames.output.take(np.full(len(rows), frame), rows)[0].to_pylist()


def page_values(source: MemoryPages, page: int) -> list[str]:
    return source.pages[page].column("v").to_pylist()


@both_kinds
def test_a_page_is_read_when_it_is_not_in_the_pool(can_address: bool) -> None:
    source = pages_of(KEYS, can_address=can_address)
    pool, shared = pool_of(source, 2)
    assert fetch(pool, 0, 0, 3) == [0, 0, 1]
    assert shared.stats.pages_read == 2
    assert fetch(pool, 3) == [1]
    assert shared.stats.pages_read == 2
    assert fetch(pool, 1) == [0]  # page 0 is the least recently used
    assert values_in(pool, 0) == page_values(source, 1)
    assert fetch(pool, 3, 0) == [1, 0]
    assert shared.stats.pages_read == 4
    assert [values_in(pool, frame) for frame in (1, 0)] == [page_values(source, p) for p in (3, 0)]


@both_kinds
def test_requests_are_served_in_waves_that_fit(can_address: bool) -> None:
    pool, _ = pool_of(pages_of(KEYS, can_address=can_address), 1)
    assert fetch(pool, 2, 2, 3, 2) == [0, 0]
    assert fetch(pool, 3) == [0]


@both_kinds
@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
def test_rows_of_keys(kind: pa.DataType, can_address: bool) -> None:
    """By binary search in the codes; where those are hashes, verified with the keys."""
    exact = kind == pa.int64()
    keys = KEYS if exact else [[str(key) for key in page] for page in KEYS]
    source = pages_of(keys, kind, can_address=can_address)
    pool, shared = pool_of(source, 4)
    page_keys = [page.column("k").to_pylist() for page in source.pages]
    some = {keys[0][0] * 7, *(key for page in keys for key in page)}
    asked = [(page, key) for page in range(4) for key in some]
    wanted = pa.array([key for _, key in asked], kind)
    codes, _ = shared.binding.codec.codes([wanted])
    frames = pool.fetch(np.array([page for page, _ in asked], np.int32))
    low, high = pool.find(frames, codes)
    assert (high - low).tolist() == [page_keys[page].count(key) for page, key in asked]
    owner = np.repeat(np.arange(len(asked)), high - low)
    rows = np.concatenate([np.arange(a, b) for a, b in zip(low, high, strict=True)])
    found = pool.frames.output.take(frames[owner], rows)[0].to_pylist()
    assert [value.split("/")[0] for value in found] == [str(asked[i][1]) for i in owner]
    assert sorted(found) == sorted(v for p in range(4) for v in page_values(source, p))
    tuples = PageColumns([kind], 1)
    tuples.put(0, [wanted])
    assert pool.same_keys(tuples, owner, frames[owner], rows) is None  # all are the same
    if not exact:
        others = (owner + 1) % len(asked)
        same = pool.same_keys(tuples, others, frames[owner], rows)
        assert same.tolist() == [
            asked[i][1] == asked[j][1] for i, j in zip(owner, others, strict=True)
        ]


@both_kinds
def test_a_failed_read_leaves_an_empty_frame_and_can_be_repeated(can_address: bool) -> None:
    source = pages_of(KEYS, can_address=can_address)
    pool, shared = pool_of(source, 3)
    fetch(pool, 0)
    source.fail = [2]
    with pytest.raises(OSError, match="page 2"):
        fetch(pool, 0, 1, 2, 3)
    before = shared.stats.pages_read
    assert before == (1 if can_address else 2)  # single batches: those before it were read
    frames = fetch(pool, 1, 2)
    assert [values_in(pool, frame) for frame in frames] == [page_values(source, p) for p in (1, 2)]
    assert shared.stats.pages_read == 3


def test_bytes_of_the_frames_and_of_the_page_table() -> None:
    source = pages_of(KEYS)
    pool, shared = pool_of(source, 2)
    table = TableShape.of(source, shared.binding)
    assert pool.nbytes == 2 * frame_bytes(table) + PAGE_BYTES * len(KEYS)
    fetch(pool, 0, 1)
    held = sum(page.nbytes + codes.nbytes for page, codes in pool.frames._held)
    assert held <= pool.nbytes


@both_kinds
def test_close_closes_every_reader(can_address: bool) -> None:
    source = pages_of(KEYS, can_address=can_address)
    pool, _ = pool_of(source, 2)
    fetch(pool, 0)
    pool.close()
    assert source.readers[-1].is_closed
    if not can_address:
        assert pool.frames._held == [None, None]


# -- pages of a table on disk ------------------------------------------------------------------


def table_of(path: Path, rows: int = 600, key: str = "k") -> ss.MasterTable:
    data = pa.table(
        {
            "k": range(rows),
            "t": [f"key {n}" for n in range(rows)],
            "v": [f"{n}" for n in range(rows)],
        }
    )
    return ss.MasterTable.build(data, path / "t", key=key, page_bytes=1024)


@pytest.mark.parametrize("key", ["k", "t"])
@pytest.mark.parametrize("direct", [False, True])
def test_pages_of_a_table(disk_path: Path, key: str, direct: bool) -> None:
    """Against a model of least-recently-used replacement, and the pages as record batches."""
    if direct:
        needs_direct_io(disk_path)
    table = table_of(disk_path, key=key)
    assert table.num_pages > 20
    pool, shared = pool_of(table, 5, direct)
    batches = [table.reader().read(page)[0] for page in range(table.num_pages)]
    rng, held, reads = np.random.default_rng(1), OrderedDict[int, None](), 0
    place = shared.binding.master_columns.index("v")
    for _ in range(60):
        pages = rng.integers(0, table.num_pages, rng.integers(1, 4))
        frames = fetch(pool, *pages.tolist())
        assert len(frames) == len(pages)
        for page, frame in zip(pages.tolist(), frames, strict=True):
            reads += page not in held
            held[page] = None
            held.move_to_end(page)
            if len(held) > 5:
                held.popitem(last=False)
            rows = np.arange(pool.frames.sizes[frame])
            taken = pool.frames.output.take(np.full(len(rows), frame), rows)
            assert taken[place].to_pylist() == batches[page].column("v").to_pylist()
            codes = shared.binding.master_codes(batches[page])[0]
            low, high = pool.find(np.full(len(codes), frame), codes)
            assert (high - low == 1).all()
            assert low.tolist() == list(range(len(codes)))
    assert shared.stats.pages_read == reads
    assert shared.stats.bytes_read >= reads * 500
    pool.close()


def test_a_truncated_table(tmp_path: Path) -> None:
    """The read of several pages fails because of one; the others can be read alone."""
    table = table_of(tmp_path)
    pool, shared = pool_of(table, 6)
    segment = Path(table.pages.segment.parts[0][1])
    content = segment.read_bytes()
    last = table.num_pages - 1
    segment.write_bytes(content[: int(table.pages.segment.offsets[last]) + 50])
    with pytest.raises(ss.MasterTableError, match=f"page {last} of .* is truncated"):
        fetch(pool, 0, 3, last, 1)
    assert fetch(pool, 3) != []
    assert shared.stats.pages_read == 1  # page 3 had not been kept
    segment.write_bytes(content)
    with_last = fetch(pool, last, 3)
    assert values_in_table(pool, with_last) == [batch_of(table, page) for page in (last, 3)]


def values_in_table(pool: BufferPool, frames: list[int]) -> list[list[Any]]:
    found = []
    for frame in frames:
        rows = np.arange(pool.frames.sizes[frame])
        found.append(pool.frames.output.take(np.full(len(rows), frame), rows)[1].to_pylist())
    return found


def batch_of(table: ss.MasterTable, page: int) -> list[Any]:
    return table.reader().read(page)[0].column("v").to_pylist()
