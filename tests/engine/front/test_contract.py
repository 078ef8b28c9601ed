"""The contract of every front stage, however it ranks its rows."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.engine.front.choice import CACHES, front_stage_size, new_front_stage
from semistream.engine.front.contract import MOST_ROWS_PER_KEY, CacheSize, FrontStage

TYPES = [pa.int64(), pa.string()]
every_cache = pytest.mark.parametrize("cache", CACHES)


def front_of(cache: str, capacity: int, heap: int = 100_000, threshold: int = 1) -> FrontStage:
    return new_front_stage(cache, TYPES, CacheSize(capacity, heap, 0), threshold)


def offer(front: FrontStage, keys: dict[int, int], worth: int = 1) -> tuple[int, int]:
    """Offer keys with their numbers of rows; row i of key k is (100 * k + i, "k/i")."""
    rows = [(key, i) for key, count in keys.items() for i in range(count)]
    columns = [
        pa.array([100 * key + i for key, i in rows], pa.int64()),
        pa.array([f"{key}/{i}" for key, i in rows], pa.string()),
    ]
    codes, counts = np.array([*keys], np.int64), np.array([*keys.values()], np.int64)
    worths = np.full(len(keys), worth, np.int64)
    return front.offer(codes, counts, worths, columns, np.arange(len(rows)))


def look_up(
    front: FrontStage,
    keys: list[int],
    valid: list[bool] | None = None,
    start: int = 0,
    misses: int = 1000,
    pairs: int = 1000,
    once: bool = False,
) -> tuple[int, list[tuple[int, int, str]], list[int], int]:
    """(stop, (tuple, number, text) of every pair, misses, tuples hit)."""
    mask = None if valid is None else np.array(valid)
    found = front.probe(np.array(keys, np.int64), mask, start, misses, pairs, once)
    numbers, texts = (column.to_pylist() for column in front.rows.take(found.hit_slots))
    hits = list(zip(found.hit_rows.tolist(), numbers, texts, strict=True))
    return found.stop, hits, found.miss_rows.tolist(), found.tuples_hit


def held(front: FrontStage, keys: range) -> set[int]:
    _, _, misses, _ = look_up(front, list(keys))
    return set(keys) - {keys[miss] for miss in misses}


@every_cache
def test_a_hit_returns_all_rows_of_its_key(cache: str) -> None:
    front = front_of(cache, 20)
    assert offer(front, {7: 1, 8: 3}) == (4, 0)
    assert front.count == 4
    stop, hits, misses, hit = look_up(front, [8, 9, 7, 8])
    assert stop == 4
    assert hits == [
        *[(0, 800 + i, f"8/{i}") for i in range(3)],
        (2, 700, "7/0"),
        *[(3, 800 + i, f"8/{i}") for i in range(3)],
    ]
    assert misses == [1]
    assert hit == 3


@every_cache
def test_each_tuple_once_where_only_a_match_counts(cache: str) -> None:
    front = front_of(cache, 20)
    offer(front, {8: 3})
    _, hits, _, hit = look_up(front, [8, 8], once=True)
    assert [row for row, _, _ in hits] == [0, 1]
    assert hit == 2


@every_cache
def test_an_empty_front_stage_misses_everything(cache: str) -> None:
    front = front_of(cache, 5)
    assert look_up(front, [1, 2]) == (2, [], [0, 1], 0)
    assert look_up(front, []) == (0, [], [], 0)
    assert front.count == front.clear() == front.forget(np.array([1])) == 0
    assert offer(front, {}) == (0, 0)


@every_cache
def test_a_null_key_misses(cache: str) -> None:
    front = front_of(cache, 10)
    offer(front, {0: 1})
    assert look_up(front, [0, 0], valid=[False, True]) == (2, [(1, 0, "0/0")], [0], 1)


@every_cache
def test_a_probe_stops_before_a_miss_or_a_pair_too_many(cache: str) -> None:
    front = front_of(cache, 60)
    offer(front, {1: 1, 2: MOST_ROWS_PER_KEY})
    assert look_up(front, [1, 9, 1, 9, 1], misses=1)[0] == 3
    assert look_up(front, [1, 9], misses=0)[0] == 1
    assert look_up(front, [9, 1], misses=0) == (0, [], [], 0)
    stop, hits, _, hit = look_up(front, [2, 1, 2], pairs=1)  # there is always room for one key
    assert (stop, len(hits), hit) == (1, MOST_ROWS_PER_KEY, 1)
    assert look_up(front, [9, 1, 9], start=1)[1:3] == ([(1, 100, "1/0")], [2])


@every_cache
def test_a_key_offered_again_is_cached_once(cache: str) -> None:
    front = front_of(cache, 20)
    offer(front, {1: 2})
    assert offer(front, {1: 2, 3: 1}) == (1, 0)
    assert front.count == 3
    columns = [pa.array([400, 400]), pa.array(["4/0", "4/0"])]
    twice = np.array([4, 4])  # two visits of one page may offer the same key
    assert front.offer(twice, np.ones(2, int), np.ones(2, int), columns, np.arange(2)) == (1, 0)
    assert look_up(front, [1, 3, 4])[3] == 3


@every_cache
def test_dropped_keys_are_gone_and_their_slots_are_reused(cache: str) -> None:
    front = front_of(cache, 20)
    offer(front, {1: 3, 2: 2, 3: 1})
    assert front.forget(np.array([1, 9, 1, 3])) == 4
    assert front.count == 2
    assert held(front, range(10)) == {2}
    offer(front, {5: 3, 1: 1})
    assert look_up(front, [1])[1] == [(0, 100, "1/0")]
    assert held(front, range(10)) == {1, 2, 5}


@every_cache
def test_clear_drops_everything(cache: str) -> None:
    front = front_of(cache, 20)
    offer(front, {1: 3, 2: 2})
    assert front.clear() == 5
    assert front.count == 0
    assert held(front, range(10)) == set()
    assert offer(front, {1: 1}) == (1, 0)
    assert held(front, range(10)) == {1}


@every_cache
def test_a_full_front_stage_prefers_more_valuable_rows(cache: str) -> None:
    front = front_of(cache, 10)
    for start in range(0, 10, 5):
        offer(front, dict.fromkeys(range(start, start + 5), 1))
    assert front.count == 10
    front.age(1.0, 40)
    front.age(1.0, 40)
    assert offer(front, {20: 1, 21: 1, 22: 1}, worth=100) == (3, 3)
    assert front.count == 10
    assert {20, 21, 22} <= held(front, range(30))


@every_cache
@pytest.mark.parametrize("capacity", [1, 2])
def test_the_smallest_front_stages_never_hold_more_than_they_can(cache: str, capacity: int) -> None:
    front = front_of(cache, capacity)
    for key in range(20):
        offer(front, {key: 1 + key % 3}, worth=key)
        front.age(0.5, 10)
        assert 0 <= front.count <= capacity
        assert len(held(front, range(20))) <= capacity


@every_cache
def test_texts_that_do_not_fit_are_not_admitted(cache: str) -> None:
    """A heap of 400 bytes has room for a few rows, whatever the slots say."""
    front = front_of(cache, 100, heap=400)
    for key in range(100):
        offer(front, {key: 1}, worth=key)
        front.age(0.1, 10)
    assert 5 < front.count < 25
    columns = [pa.array([1]), pa.array(["x" * 1000])]
    one = np.ones(1, np.int64)
    admitted, _ = front.offer(np.array([999]), one, 100 * one, columns, np.arange(1))
    assert admitted == 0
    assert 999 not in held(front, range(1000))


@every_cache
@pytest.mark.parametrize("seed", range(10))
def test_hits_return_exactly_the_offered_rows(cache: str, seed: int) -> None:
    """A hit returns all rows of its key, and the counts add up, whatever is cached."""
    rng = random.Random(seed)
    front = front_of(cache, rng.choice([2, 8, 30]), heap=rng.choice([300, 3000]))
    rows = {key: rng.randint(1, 3) for key in range(25)}
    present = 0
    for _ in range(60):
        action = rng.random()
        if action < 0.5:
            some = rng.sample(range(25), rng.randint(1, 4))
            admitted, evicted = offer(front, {key: rows[key] for key in some}, rng.randint(1, 9))
            present += admitted - evicted
            front.age(rng.random(), rng.randint(0, 50))
        elif action < 0.6:
            present -= front.forget(np.array(rng.sample(range(25), 3)))
        elif action < 0.63:
            present -= front.clear()
        assert front.count == present <= front.capacity
        keys = [rng.randrange(25) for _ in range(20)]
        stop, hits, misses, hit = look_up(front, keys)
        assert stop == len(keys)
        matched = {row for row, _, _ in hits}
        assert len(matched) == hit
        assert matched.isdisjoint(misses)
        assert len(matched) + len(misses) == len(keys)
        assert hits == [
            (row, 100 * keys[row] + i, f"{keys[row]}/{i}")
            for row in sorted(matched)
            for i in range(rows[keys[row]])
        ]


@every_cache
def test_candidates_are_rows_with_enough_matches(cache: str) -> None:
    front = front_of(cache, 10, threshold=2)
    front.threshold = 2
    places, rows = np.array([0, 0, 0, 1], np.int32), np.array([4, 4, 5, 5], np.int32)
    slots, codes = np.arange(4, dtype=np.int32), np.array([7, 7, 8, 9])
    found = front.candidates(places, rows, slots, codes)
    assert [part.tolist() for part in found] == [[0], [1], [2]]  # first pair, rows, worth


@every_cache
def test_candidates_with_several_rows(cache: str) -> None:
    """Tuples 0 and 1 have key 7 with two rows each, in two pages; tuple 2 has key 8."""
    front = front_of(cache, 10, threshold=2)
    front.threshold = 2
    places, rows = np.array([0, 1, 0, 1, 1], np.int32), np.array([9, 0, 9, 0, 1], np.int32)
    slots, codes = np.array([0, 0, 1, 1, 2], np.int32), np.array([7, 7, 8])
    found = front.candidates(places, rows, slots, codes)
    assert [part.tolist() for part in found] == [[0], [2], [2]]


@every_cache
def test_the_worth_of_keys_is_at_least_what_waited(cache: str) -> None:
    front = front_of(cache, 100)
    codes, counts = np.array([1, 2, 3]), np.array([0, 1, 5])
    assert front.worth(codes, counts).tolist() == [0, 1, 5]
    assert (front.worth(codes, counts) >= counts).all()


SHAPES: dict[str, tuple[list[Any], float]] = {
    "numbers": ([pa.int64(), pa.int32()], 0.0),
    "text": (TYPES, 60.0),
    "nested": ([pa.list_(pa.int64())], 100.0),
    "nothing": ([], 0.0),
}


@every_cache
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("nbytes", [0, 100, 2200, 5_000, 123_456])
def test_allocated_bytes_match_the_plan(cache: str, shape: str, nbytes: int) -> None:
    types, heap_per_row = SHAPES[shape]
    size = front_stage_size(cache, types, nbytes, heap_per_row)
    if not size.capacity:  # no front stage
        return
    front = new_front_stage(cache, types, size, 1)
    assert front.nbytes == size.nbytes <= nbytes
    arrays = [a for a in vars(front).values() if isinstance(a, np.ndarray)]
    assert sum(a.nbytes for a in arrays) + front.rows.nbytes == front.nbytes
    bigger = front_stage_size(cache, types, nbytes + 1000, heap_per_row)
    assert bigger.capacity > size.capacity
