"""SweepJoin's front stage: ranked by recent hits, which decay."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from semistream.engine.front.contract import CacheSize
from semistream.engine.front.counting_cache import CountingCache


def cache_of(capacity: int, sketch: bool = False) -> CountingCache:
    return CountingCache([pa.int64()], CacheSize(capacity, 0, 0), sketch)


def offer(front: CountingCache, worth: dict[int, int], rows: int = 1) -> tuple[int, int]:
    codes = np.array([*worth])
    counts, values = np.full(len(codes), rows), np.repeat(codes, rows)
    worths = np.array([*worth.values()])
    return front.offer(codes, counts, worths, [pa.array(values)], np.arange(len(values)))


def probe(front: CountingCache, keys: list[int]) -> set[int]:
    found = front.probe(np.array(keys), None, 0, len(keys), 1000, False)
    return {keys[row] for row in found.hit_rows}


def held(front: CountingCache) -> set[int]:
    return set(front.rows.take(np.flatnonzero(front._hits).astype(np.int32))[0].to_pylist())


def test_without_age_nothing_is_evicted() -> None:
    front = cache_of(2)
    offer(front, {1: 1, 2: 1})
    assert offer(front, {3: 99}) == (0, 0)
    assert held(front) == {1, 2}


def test_a_single_request_evicts_nothing_that_was_hit_often() -> None:
    front = cache_of(2)
    offer(front, {1: 1, 2: 1})
    probe(front, [1] * 10 + [2] * 10)
    front.age(1.0, 20)
    assert offer(front, {3: 1}) == (0, 0)
    assert held(front) == {1, 2}


def test_rows_without_recent_hits_are_evicted() -> None:
    front = cache_of(2)
    offer(front, {1: 40, 2: 40})
    for _ in range(8):  # 1 is still hit; 2 decays
        probe(front, [1] * 40)
        front.age(1.0, 40)
        offer(front, {3: 2})
    assert held(front) == {1, 3}


def test_a_key_evicts_as_many_rows_as_it_has() -> None:
    front = cache_of(4)
    offer(front, {1: 1, 2: 1, 3: 1, 4: 1})
    front.age(1.0, 10)
    admitted, evicted = offer(front, {9: 50}, rows=3)
    assert admitted in (0, 3)
    assert front.count == 4 - evicted + admitted


def test_the_threshold_follows_the_admitted_rows() -> None:
    front = cache_of(4)
    offer(front, {1: 200, 2: 200, 3: 200, 4: 200})
    for _ in range(3):
        offer(front, {5: 1, 6: 1, 7: 1, 8: 1})
    assert front.threshold == 4
    front.clear()
    offer(front, {1: 9, 2: 9, 3: 9, 4: 9})
    assert front.threshold == 3


def test_a_sketch_remembers_earlier_requests_for_a_while() -> None:
    front = cache_of(10, sketch=True)
    code, once = np.array([5]), np.array([1])
    assert [front.worth(code, once)[0] for _ in range(3)] == [1, 2, 3]
    front.age(1.0, 40)  # a span of four tuples per row: counts are halved
    assert front.worth(code, once)[0] == 2
    plain = cache_of(10)
    assert [plain.worth(code, once)[0] for _ in range(3)] == [1, 1, 1]


def test_hits_of_the_coldest_rows() -> None:
    front = cache_of(8)
    assert front.coldest == 0
    offer(front, dict.fromkeys(range(8), 1))
    for _ in range(60):
        probe(front, list(range(8)) * 6)
        front.age(1.0, 48)
        offer(front, {99: 1})
    assert front.coldest == pytest.approx(6, rel=0.3)


def test_the_hand_advances_in_bounded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long time without evictions does not make one offer slow."""
    monkeypatch.setattr("semistream.engine.front.counting_cache._HAND_AT_ONCE", 3)
    front = cache_of(8)
    offer(front, {key: 1 + key for key in range(8)})
    front.age(1.0, 48)
    for begin, admitted in ((100, 3), (200, 3), (300, 2), (400, 0)):
        newcomers = range(begin, begin + 8)
        offer(front, dict.fromkeys(newcomers, 100))
        assert len(held(front) & set(newcomers)) == admitted


@pytest.mark.parametrize("capacity", [1, 3, 8])
def test_the_most_used_rows_move_to_another_cache(capacity: int) -> None:
    old, new = cache_of(8), cache_of(capacity)
    offer(old, {key: 10 - key for key in range(8)})
    new.adopt(old)
    assert held(new) == set(range(capacity))
    assert probe(new, list(range(8))) == set(range(capacity))
    assert new.count == capacity


def test_rows_of_one_key_move_together_or_not_at_all() -> None:
    old, new = cache_of(9), cache_of(4)
    offer(old, {1: 9, 2: 8, 3: 7}, rows=3)
    new.adopt(old)
    assert new.count == 3
    found = new.probe(np.array([1, 2, 3]), None, 0, 3, 100, False)
    assert found.hit_rows.tolist() == [0, 0, 0]
