"""Rows in the order of their tuples."""

from __future__ import annotations

import numpy as np
import pytest

from semistream import kernels


@pytest.mark.parametrize(("numbers", "count"), [
    ([], 0), ([], 3), ([0], 1), ([2, 0, 1], 3), ([1, 1, 0, 4, 1, 0], 5),
])  # fmt: skip
def test_rows_are_sorted_and_equal_ones_keep_their_order(numbers: list[int], count: int) -> None:
    order = kernels.order.by_number(np.array(numbers, np.int32), count)
    expected = sorted(range(len(numbers)), key=lambda row: (numbers[row], row))
    assert order.tolist() == expected


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_a_ring_stays_sorted_while_tuples_come_and_go(seed: int, kind: type) -> None:
    random, capacity = np.random.default_rng(seed), 20
    first, count, slots, values = 7, 0, np.zeros(0, np.int32), np.zeros(0, kind)
    held = np.zeros(capacity, kind)
    for _ in range(40):
        left = int(random.integers(0, count + 1))
        first, count = (first + left) % capacity, count - left
        arrived = int(random.integers(0, capacity - count + 1))
        new = ((first + count + np.arange(arrived)) % capacity).astype(np.int32)
        held[new] = random.integers(0, 9, arrived)
        order = np.argsort(held[new], kind="stable")
        slots, values = kernels.order.merge_arrived(
            slots, values, first, capacity, count, new[order], held[new][order]
        )
        count += arrived
        every = (first + np.arange(count)) % capacity
        assert sorted(slots.tolist()) == sorted(every.tolist())
        assert values.tolist() == held[slots].tolist() == sorted(held[every].tolist())


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_places_are_those_of_a_binary_search(seed: int, after: bool) -> None:
    random = np.random.default_rng(seed)
    for kind, size in ((np.int64, 0), (np.int64, 50), (np.float64, 300)):
        values = np.sort(random.integers(0, 60, size)).astype(kind)
        sought = random.integers(-3, 63, 200).astype(kind)
        for one in (sought, np.sort(sought), sought[:0]):
            expected = np.searchsorted(values, one, side="right" if after else "left")
            assert kernels.order.places_of(values, one, after).tolist() == expected.tolist()


@pytest.mark.parametrize("most", [1, 2, 7, 1000])
def test_ranges_of_slots_become_pairs_in_batches(most: int) -> None:
    random = np.random.default_rng(most)
    slots = random.permutation(40).astype(np.int32)
    begins = random.integers(0, 40, 30)
    ends = np.minimum(40, begins + random.integers(-3, 6, 30))
    expected = [
        (row, int(slot))
        for row, (begin, end) in enumerate(zip(begins, ends, strict=True))
        for slot in slots[begin : max(begin, end)]
    ]
    cursor, found = np.array([0, -1], np.int64), []
    while cursor[0] < len(begins):
        rows, chosen = np.empty(most, np.int32), np.empty(most, np.int32)
        count = kernels.order.expand(begins, ends, slots, cursor, rows, chosen)
        found += zip(rows[:count].tolist(), chosen[:count].tolist(), strict=True)
    assert found == expected
    assert cursor.tolist() == [len(begins), -1]
