"""The buffer pool: pages by number, the rows of keys in them, and failed reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from engine.kit import MemoryPages, binding, context, pages_of
from semistream.engine.buffer_pool import PAGE_BYTES, BufferPool, frame_bytes
from semistream.engine.shape import TableShape

KEYS = [[1, 2, 2], [2, 3], [5, 7], [8]]


def pool_of(source: MemoryPages, frames: int) -> tuple[BufferPool, Any]:
    stream = pa.schema([("k", source.schema.field("k").type)])
    shared = context(binding(source, stream))
    table = TableShape.of(source, shared.binding)
    return BufferPool(shared, source, table, frames), shared


def fetch(pool: BufferPool, *pages: int) -> list[int]:
    return pool.fetch(np.array(pages, np.int32)).tolist()


def test_a_page_is_read_when_it_is_not_in_the_pool() -> None:
    pool, shared = pool_of(pages_of(KEYS), 2)
    assert fetch(pool, 0, 0, 3) == [0, 0, 1]
    assert shared.stats.pages_read == 2
    assert fetch(pool, 3) == [1]
    assert shared.stats.pages_read == 2
    assert fetch(pool, 1) == [0]  # page 0 is the least recently used
    assert fetch(pool, 3, 0) == [1, 0]
    assert shared.stats.pages_read == 4


def test_requests_are_served_in_waves_that_fit() -> None:
    pool, _ = pool_of(pages_of(KEYS), 1)
    assert fetch(pool, 2, 2, 3, 2) == [0, 0]
    assert fetch(pool, 3) == [0]


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
def test_rows_of_keys(kind: pa.DataType) -> None:
    """By binary search if codes are keys, else by hashes, verified with the keys."""
    exact = kind == pa.int64()
    keys = KEYS if exact else [[str(key) for key in page] for page in KEYS]
    source = pages_of(keys, kind)
    pool, shared = pool_of(source, 3)
    asked = [(0, 2), (1, 2), (0, 1), (2, 6), (2, 7)]  # page, key
    wanted = pa.array([key if exact else str(key) for _, key in asked], kind)
    codes, _ = shared.binding.codec.codes([wanted])
    frames = pool.fetch(np.array([page for page, _ in asked], np.int32))
    low, high = pool.find(frames, codes)
    assert (high - low).tolist() == [2, 1, 1, 0, 1]
    owner = np.repeat(np.arange(len(asked)), high - low)
    places = np.concatenate([np.arange(a, b) for a, b in zip(low, high, strict=True)])
    rows = pool.rows_at(frames[owner], places.astype(np.int64))
    values = pool.columns.take(frames[owner], rows)[0].to_pylist()
    assert sorted(values) == sorted(["2/1", "2/2", "2/0", "1/0", "7/1"])
    if not exact:
        same = pool.same_keys([wanted.take(pa.array(owner))], frames[owner], rows)
        assert same.all()
        other = [pa.array(["9"] * len(owner))]
        assert not pool.same_keys(other, frames[owner], rows).any()


def test_a_failed_read_leaves_an_empty_frame_and_can_be_repeated() -> None:
    source = pages_of(KEYS)
    pool, shared = pool_of(source, 3)
    fetch(pool, 0)
    source.fail = [2]
    with pytest.raises(OSError, match="page 2"):
        fetch(pool, 0, 1, 2, 3)
    assert shared.stats.pages_read == 2
    frames = fetch(pool, 1, 2)
    assert [pool.frames[frame].page for frame in frames] == [source.pages[p] for p in (1, 2)]
    assert shared.stats.pages_read == 3


def test_bytes_of_the_frames_and_of_the_page_table() -> None:
    source = pages_of(KEYS)
    pool, shared = pool_of(source, 2)
    table = TableShape.of(source, shared.binding)
    assert pool.nbytes == 2 * frame_bytes(table) + PAGE_BYTES * len(KEYS)
    fetch(pool, 0, 1)
    held = sum(frame.page.nbytes + frame.codes.nbytes for frame in pool.frames)
    assert held <= pool.nbytes


def test_close_closes_every_reader() -> None:
    source = pages_of(KEYS)
    pool, _ = pool_of(source, 2)
    fetch(pool, 0)
    pool.close()
    assert all(reader.is_closed for reader in source.readers)
    assert all(frame.page is None for frame in pool.frames)
