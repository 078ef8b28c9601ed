"""The sample of a front stage's slots says how much its coldest rows are used."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from semistream.engine.front.cold_rows import ColdRows
from semistream.engine.front.recorder import FrequencyRecorder


@pytest.mark.parametrize("capacity", [4, 512, 4_096])
def test_the_least_used_quarter(capacity: int) -> None:
    cold = ColdRows(capacity)
    assert cold.coldest is None
    slots = np.arange(capacity, dtype=np.int32)
    hits = np.where(slots < capacity // 4, 2, 10)  # a quarter is hit twice, the others ten times
    cold.note(np.repeat(slots, hits))
    cold.age(0.5)
    assert cold.coldest is None, "half a round"
    cold.age(0.5)
    assert cold.coldest == pytest.approx(2.0)
    cold.age(2.0)
    assert cold.coldest == 0.0


def recorder(capacity: int) -> FrequencyRecorder:
    nbytes = 2_048 + 200 * capacity
    size = FrequencyRecorder.size_for([pa.int64()], nbytes)
    return FrequencyRecorder([pa.int64()], size, threshold=2)


def offer(front: FrequencyRecorder, keys: range, worth: np.ndarray, rows: int = 1) -> None:
    codes = np.array(keys, np.int64)
    counts = np.full(len(codes), rows, np.int64)
    values = pa.array(np.repeat(codes, rows) * 10)
    front.offer(codes, counts, worth, [values], np.arange(len(codes) * rows))


def held(front: FrequencyRecorder, keys: range) -> dict[int, list[int]]:
    codes = np.array(keys, np.int64)
    found = front.probe(codes, None, 0, len(codes), 10 * len(codes), once=False)
    values = front.rows.take(found.hit_slots)[0].to_pylist()
    rows: dict[int, list[int]] = {}
    for row, value in zip(found.hit_rows.tolist(), values, strict=True):
        rows.setdefault(int(codes[row]), []).append(value)
    return rows


@pytest.mark.parametrize("rows", [1, 3])
def test_a_smaller_recorder_adopts_the_most_frequent(rows: int) -> None:
    large, small, keys = recorder(400), recorder(40), range(50)
    worth = np.random.default_rng(1).permutation(50).astype(np.int64) + 1
    for first in range(0, 50, 10):
        offer(large, keys[first : first + 10], worth[first : first + 10], rows)
    assert len(held(large, keys)) == 50
    large.threshold = 7
    small.adopt(large)
    assert small.threshold == 7
    fit = small.capacity // rows
    best = set(np.argsort(-worth)[:fit].tolist())
    assert held(small, keys) == {key: [10 * key] * rows for key in best}
    again = recorder(400)
    again.adopt(small)
    assert held(again, keys) == held(small, keys)


def test_an_empty_recorder_is_adopted() -> None:
    small = recorder(40)
    small.adopt(recorder(400))
    assert small.count == 0


def test_only_a_watched_full_recorder_knows_its_coldest_rows() -> None:
    front = recorder(40)
    keys = range(front.capacity)
    for watched in (False, True):
        if watched:
            front.watch()
        for first in range(0, front.capacity, 16):
            some = keys[first : first + 16]
            offer(front, some, np.full(len(some), 3, np.int64))
        held(front, keys)
        front.age(1.0, 100)
        assert (front.coldest is not None) is watched
    assert front.coldest == 1.0
    front.clear()
    assert front.coldest is None, "empty slots say nothing"


def test_after_a_refresh_new_rows_replace_old_ones_whatever_they_were_worth() -> None:
    front = recorder(40)
    half = front.capacity // 2
    offer(front, range(half), np.full(half, 200, np.int64))
    offer(front, range(half, front.capacity), np.full(front.capacity - half, 200, np.int64))
    old = held(front, range(front.capacity))
    new = range(1_000, 1_000 + half)
    front.refresh()
    assert held(front, range(front.capacity)) == old, "no row is lost by it"
    offer(front, new, np.full(half, 2, np.int64))
    offer(front, range(2_000, 2_000 + half), np.full(half, 2, np.int64))
    assert len(held(front, new)) == half
    assert len(held(front, range(front.capacity))) <= 2
    assert front.count == front.capacity
