"""CINLJ's temporary buffer: keys seen often enough recently are offered with their rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from engine.kit import binding, context, pages_of, slice_of
from semistream.engine.buffer_pool import BufferPool
from semistream.engine.front.choice import CACHES, new_front_stage
from semistream.engine.front.contract import CacheSize
from semistream.engine.front.recent_keys import RecentKeys
from semistream.engine.shape import TableShape


@pytest.mark.parametrize("cache", CACHES)
def test_keys_seen_twice_are_admitted_after_the_wave(cache: str) -> None:
    source = pages_of([[1, 1, 2], [5, 6]])
    shared = context(binding(source))
    pool = BufferPool(shared, source, TableShape.of(source, shared.binding), 2)
    front = new_front_stage(cache, [pa.string()], CacheSize(100, 10_000, 0), 1)
    recent = RecentKeys(100)
    keys = [1, 5, 1, 6, 9, 9, 5]
    part = slice_of(pa.record_batch({"k": keys, "a": range(len(keys))}), shared)
    frames = pool.fetch(np.array([0, 1, 0, 1, 1, 1, 1], np.int32))
    matched = np.array([key != 9 for key in keys])
    recent.note(part, np.arange(len(keys)), frames, matched, 2)
    assert front.count == 0
    recent.offer(shared, front, pool)
    found = front.probe(np.array([1, 2, 5, 6, 9]), None, 0, 9, 99, False)
    assert front.rows.take(found.hit_slots)[0].to_pylist() == ["1/0", "1/1", "5/0"]
    recent.offer(shared, front, pool)
    assert front.count == 3


def test_counts_are_forgotten_after_the_span() -> None:
    source = pages_of([[1]])
    shared = context(binding(source))
    recent = RecentKeys(2)
    for keys, noted in (([1, 1], 1), ([1], 0), ([1], 1)):
        part = slice_of(pa.record_batch({"k": keys, "a": keys}), shared)
        rows, frames = np.arange(len(keys)), np.zeros(len(keys), np.int32)
        recent._hot = []
        recent.note(part, rows, frames, np.ones(len(keys), bool), 2)
        assert len(recent._hot) == noted


@pytest.mark.parametrize("span", [1, 16, 1000])
def test_allocated_bytes_match_the_plan(span: int) -> None:
    recent = RecentKeys(span)
    assert recent.nbytes == RecentKeys.bytes_of(span)
    assert recent._table.nbytes + recent._seen.nbytes == recent.nbytes
