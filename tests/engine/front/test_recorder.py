"""The papers' front stage: which rows are evicted, and how the threshold moves."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from semistream.engine.front.contract import CacheSize
from semistream.engine.front.recorder import FrequencyRecorder


def recorder(capacity: int, threshold: int = 2) -> FrequencyRecorder:
    return FrequencyRecorder([pa.int64()], CacheSize(capacity, 0, 0), threshold)


def offer(front: FrequencyRecorder, frequencies: dict[int, int]) -> tuple[int, int]:
    codes = np.array([*frequencies])
    worth = np.array([*frequencies.values()])
    return front.offer(codes, np.ones_like(codes), worth, [pa.array(codes)], np.arange(len(codes)))


def probe(front: FrequencyRecorder, keys: list[int]) -> set[int]:
    """The keys that were hit."""
    found = front.probe(np.array(keys), None, 0, len(keys), len(keys), False)
    return {keys[row] for row in found.hit_rows}


def test_the_least_frequent_and_then_the_oldest_entry_is_evicted() -> None:
    front = recorder(4)
    offer(front, {1: 5, 2: 2})
    offer(front, {3: 2, 4: 9})
    assert offer(front, {5: 3}) == (1, 1)
    assert probe(front, [1, 2, 3, 4, 5]) == {1, 3, 4, 5}
    assert offer(front, {6: 3}) == (1, 1)
    assert probe(front, [1, 3, 4, 5, 6]) == {1, 4, 5, 6}


def test_a_row_offered_again_gets_the_new_frequency() -> None:
    front = recorder(5)
    offer(front, {1: 2, 2: 3})
    offer(front, {3: 4, 4: 4})
    assert offer(front, {1: 9}) == (0, 0)
    offer(front, {5: 8})
    assert offer(front, {6: 8}) == (1, 1)
    assert probe(front, [1, 2, 3, 4, 5, 6]) == {1, 3, 4, 5, 6}


def test_if_too_many_rows_are_offered_the_most_frequent_are_admitted() -> None:
    front = recorder(6)
    assert offer(front, {1: 1, 2: 7, 3: 2, 4: 9, 5: 8}) == (3, 0)
    assert probe(front, [1, 2, 3, 4, 5]) == {2, 4, 5}


def test_the_threshold_falls_while_the_cache_fills() -> None:
    front = recorder(80, threshold=1000)
    falls = []
    for _ in range(200):
        probe(front, [0] * 10)  # one probe per eight slots
        falls.append(front.threshold)
    assert falls[0] == 750
    assert falls[-1] == 1
    assert falls == sorted(falls, reverse=True)


@pytest.mark.parametrize(("evictions", "threshold"), [(1, 4), (4, 4), (5, 5)])
def test_the_threshold_rises_with_many_evictions(evictions: int, threshold: int) -> None:
    front = recorder(8, threshold=3)
    for start in (0, 4):
        offer(front, {start + i: 3 for i in range(4)})
    for start in range(20, 20 + 2 * evictions, 2):
        offer(front, {start: 3, start + 1: 3})
    probe(front, [0] * 1000)
    assert front.threshold == 3, "the round is not over"
    front.age(1.0, 0)
    probe(front, [0])
    assert front.threshold == threshold


def test_the_threshold_does_not_fall_between_two_bursts_of_evictions() -> None:
    """Where hot rows are stored together, one disk buffer in many has them."""
    front = recorder(8, threshold=3)
    for start in (0, 4):
        offer(front, {start + i: 3 for i in range(4)})
    for start in range(8, 40, 4):  # a round each
        offer(front, {start + i: 3 for i in range(4)})  # evicts as many
        for _ in range(8):
            front.age(1 / 8, 100)
            probe(front, [0] * 100)
            assert front.threshold >= 3


def test_the_threshold_falls_with_few_evictions() -> None:
    front = recorder(8, threshold=3)
    for start in (0, 4):
        offer(front, {start + i: 3 for i in range(4)})
    front.age(1.0, 0)
    probe(front, [0])
    assert front.threshold == 2


def test_fill_evicts_nothing() -> None:
    front = recorder(3)
    codes, counts = np.array([1, 2]), np.array([1, 1])
    assert front.fill(codes, counts, [pa.array([1, 2])], np.arange(2))
    assert not front.fill(codes + 10, counts, [pa.array([1, 2])], np.arange(2))
    assert front.count == 2
    assert probe(front, [1, 2, 11, 12]) == {1, 2}


def test_ranks_do_not_age_and_hits_are_not_counted() -> None:
    front = recorder(3)
    front.age(1.0, 1000)
    assert front.coldest is None
