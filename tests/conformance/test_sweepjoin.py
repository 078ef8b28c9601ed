"""Specific to SweepJoin: known absent keys, memory that moves, rows that are no longer hot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.engine.front.counting_cache import CountingCache
from semistream.engine.memory_mover import MemoryMover, Term
from semistream.joins.sweep.sweepjoin import LIMITS

ROWS = 200_000


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> ss.MasterTable:
    keys = np.arange(0, 2 * ROWS, 2)  # the odd ones are absent
    table = pa.table({"k": keys, "v": keys * 3, "t": [f"row {k}" for k in keys]})
    path = tmp_path_factory.mktemp("sweep") / "master"
    return ss.MasterTable.build(table, path, key="k", unique=True, page_bytes=32 << 10)


def cache(nbytes: int) -> CountingCache:
    types = [pa.int64()]
    return CountingCache(types, CountingCache.size_for(types, nbytes))


def batch(keys: Any) -> pa.RecordBatch:
    keys = np.asarray(keys, np.int64)
    return pa.record_batch({"k": keys, "n": np.arange(len(keys))})


def joined(run: Any, keys: Any) -> pa.Table:
    rows = [*run.push(batch(keys)), *run.flush()]
    return pa.Table.from_batches(rows) if rows else pa.table({})


def check(rows: pa.Table, keys: Any) -> None:
    """Every key was returned, with its own values if it is in the master."""
    keys = np.asarray(keys)
    order = np.argsort(rows["n"].to_numpy())
    assert rows["n"].to_numpy()[order].tolist() == list(range(len(keys)))
    got = rows.take(pa.array(order))
    expected = [int(k) * 3 if k % 2 == 0 else None for k in keys]
    assert got["v"].to_pylist() == expected
    assert got["t"].to_pylist() == [f"row {k}" if k % 2 == 0 else None for k in keys]


def test_absent_keys_do_not_go_to_disk_again(master: ss.MasterTable) -> None:
    keys = np.arange(1, 401, 2)
    with ss.SweepJoin(memory="2MB", how="left").open(master, on="k") as run:
        check(joined(run, keys), keys)
        read = run.stats.pages_read
        assert read > 0
        check(joined(run, keys), keys)
        assert run.stats.pages_read == read
        assert run.stats.unmatched == 2 * len(keys)


def test_new_rows_are_not_hidden(tmp_path: Path) -> None:
    path = tmp_path / "master"
    first = ss.MasterTable.build(pa.table({"k": [2, 4], "v": [6, 12]}), path, key="k", unique=True)
    with ss.SweepJoin(memory="2MB", how="left").open(first, on="k") as run:
        for _ in range(2):
            assert joined(run, [3])["v"].to_pylist() == [None]
        first.upsert(pa.table({"k": [3], "v": [9]}))
        assert joined(run, [3])["v"].to_pylist() == [9]


def test_rows_that_are_no_longer_hot_are_evicted(master: ss.MasterTable) -> None:
    rng = np.random.default_rng(5)
    with ss.SweepJoin(memory="1500kB", how="left", front_stage=0.2).open(master, on="k") as run:
        for hot in (0, 300_000):  # two hot sets, one after the other
            for _ in range(30):
                keys = np.where(rng.random(20_000) < 0.9, hot, 0) + 2 * rng.integers(0, 500, 20_000)
                cold = rng.random(20_000) < 0.3
                keys[cold] = rng.integers(0, 2 * ROWS, cold.sum())
                before = run.stats.front_stage_hits
                check(joined(run, keys), keys)
            share = (run.stats.front_stage_hits - before) / 20_000
            assert share > 0.5


def test_a_key_offered_twice_is_admitted_once() -> None:
    hot = cache(10_000)
    codes, ones = np.array([5, 7, 5]), np.ones(3, np.int64)
    values = pa.array([50, 70, 50])
    assert hot.offer(codes, ones, np.array([3, 1, 2]), [values], np.arange(3)) == (2, 0)
    assert hot.count == 2
    assert hot.forget(np.array([5])) == 1
    found = hot.probe(np.array([5, 7]), None, 0, 2, 2, once=True)
    assert found.hit_rows.tolist() == [1]
    assert hot.rows.take(found.hit_slots)[0].to_pylist() == [70]


def test_shrinking_keeps_the_most_used_rows_in_mixed_order() -> None:
    """Slots stay unsorted, so that the clock hand samples fairly."""
    large = cache(100_000)
    codes = np.arange(large.capacity)
    hits = np.random.default_rng(2).permutation(large.capacity) % 200
    for some in np.array_split(codes, 100):
        large.offer(some, np.ones_like(some), hits[some], [pa.array(codes)], some)
    small = cache(50_000)
    small.adopt(large)
    assert small.count == small.capacity < large.capacity
    found = small.probe(codes, None, 0, len(codes), len(codes), once=True)
    kept = np.isin(codes, found.hit_rows)
    assert hits[kept].min() >= hits[~kept].max()
    assert small.rows.take(found.hit_slots)[0].to_pylist() == found.hit_rows.tolist()
    by_place = hits[found.hit_rows][np.argsort(found.hit_slots)]
    first, last = by_place[: len(by_place) // 4], by_place[-len(by_place) // 4 :]
    assert abs(first.mean() - last.mean()) < 0.1 * by_place.mean()


def test_memory_moves_away_from_a_front_stage_without_hits(master: ss.MasterTable) -> None:
    rng = np.random.default_rng(1)
    with ss.SweepJoin(memory="2MB", how="left").open(master, on="k") as run:
        shares = []
        for _ in range(60):
            keys = rng.integers(0, 2 * ROWS, 60_000)
            rows = pa.Table.from_batches(list(run.push(batch(keys))))
            memory = run.memory
            assert memory.total <= memory.budget
            shares.append(memory["front stage"] / memory.budget)
            assert (rows["v"].to_numpy(zero_copy_only=False) >= 0).any()
        list(run.flush())
        assert run.stats.waiting == 0
        assert run.stats.tuples_in == run.stats.matched + run.stats.unmatched
    assert shares[-1] < 0.75 * shares[0]


def test_memory_moves_away_from_a_nearly_empty_window(master: ss.MasterTable) -> None:
    rng = np.random.default_rng(4)
    with ss.SweepJoin(memory="6MB", how="left").open(master, on="k") as run:
        shares = []
        for _ in range(30):  # as in Spark: push a batch, then drain
            keys = 2 * np.minimum(rng.zipf(1.3, 8_000), ROWS - 1)
            keys[::2] = rng.integers(0, 2 * ROWS, 4_000)
            check(joined(run, keys), keys)
            memory = run.memory
            assert memory.total <= memory.budget
            shares.append(memory["front stage"] / memory.budget)
    assert shares[0] < 0.35
    assert shares[-1] > 1.3 * shares[0]


@pytest.mark.parametrize(("coldest", "grows"), [(0.0, False), (0.1, True)])
def test_memory_moves_to_where_it_gains_more(coldest: float, grows: bool) -> None:
    mover = MemoryMover(LIMITS)
    for _ in range(40):
        mover.term = Term(tuples=1_000_000, hits=600_000, seconds=0.8, rounds=1_000)
        mover.decide(coldest, rows=20_000, front_bytes=3_000_000, window_bytes=10_000_000)
    assert mover.share == (LIMITS.most if grows else LIMITS.least)
    assert LIMITS.least < LIMITS.start < LIMITS.most


def test_an_explicit_share_is_kept(master: ss.MasterTable) -> None:
    rng = np.random.default_rng(2)
    with ss.SweepJoin(memory="2MB", front_stage=0.25).open(master, on="k") as run:
        for _ in range(20):
            list(run.push(batch(rng.integers(0, 2 * ROWS, 60_000))))
        assert 0.2 < run.memory["front stage"] / run.memory.budget < 0.3


def test_no_tuple_waits_longer_than_the_bound(master: ss.MasterTable) -> None:
    rng = np.random.default_rng(3)
    came = np.zeros(400 * 50, np.int64)
    longest = 0
    with ss.SweepJoin(memory="2MB").open(master, on="k") as run:
        for push in range(400):
            numbers = np.arange(push * 50, push * 50 + 50)
            keys = 2 * rng.integers(0, ROWS, 50)
            came[numbers] = run.stats.iterations
            for rows in run.push(pa.record_batch({"k": keys, "n": numbers})):
                waits = run.stats.iterations - came[rows["n"].to_numpy()]
                longest = max(longest, int(waits.max()))
            for rows in run.step():
                waits = run.stats.iterations - came[rows["n"].to_numpy()]
                longest = max(longest, int(waits.max()))
        assert 0 < longest <= run.longest_wait  # type: ignore[attr-defined]
