"""The window's multi-hash-map against a dict of lists."""

from __future__ import annotations

import random
from collections import deque

import numpy as np
import pytest

from semistream.kernels import states, window

NO_MASK = np.zeros(0, np.bool_)
many = pytest.mark.parametrize("seed", range(20))


class Map:
    """A window's arrays, with the window's layout. Few buckets make long chains."""

    def __init__(self, capacity: int, buckets: int) -> None:
        nodes = np.empty((capacity, 2), np.int64)
        self.heads = np.full(buckets, -1, np.int32)
        self.codes = nodes[:, 0]
        self.chain, self.dup = nodes.view(np.int32)[:, 2], nodes.view(np.int32)[:, 3]
        self.state = np.empty(capacity, np.uint8)
        links = np.empty((capacity + 1, 2), np.int32)
        self.older, self.newer = links[:, 0], links[:, 1]
        self.older[-1] = self.newer[-1] = capacity
        self.links = (self.heads, self.chain, self.dup, self.codes)

    def insert(self, codes: list[int], slots: list[int]) -> None:
        """Insert tuples that lie in every other row of a batch."""
        batch = np.repeat(np.array(codes, np.int64), 2)
        taken = np.array(slots, np.int32)
        window.insert(batch, np.arange(0, len(batch), 2), taken, *self.links, self.state)
        window.enqueue(taken, self.older, self.newer)

    def probe(
        self, codes: list[int], valid: list[bool] | None, mark: bool, once: bool, room: int
    ) -> list[tuple[int, int]]:
        """All pairs, with a buffer that holds ``room`` of them."""
        cursor = np.array([0, -1], np.int64)
        rows, slots = np.empty(room, np.int32), np.empty(room, np.int32)
        mask = NO_MASK if valid is None else np.array(valid)
        page, pairs = np.array(codes, np.int64), []
        while cursor[0] < len(page):
            found = window.probe(
                page, mask, cursor, mark, once, *self.links, self.state, rows, slots
            )
            pairs += list(zip(rows[:found].tolist(), slots[:found].tolist(), strict=True))
        return pairs

    def queue(self) -> list[int]:
        """The slots in arrival order, and the same backwards."""
        forth, back = [], []
        slot = int(self.newer[-1])
        while slot != len(self.codes):
            forth.append(slot)
            slot = int(self.newer[slot])
        slot = int(self.older[-1])
        while slot != len(self.codes):
            back.append(slot)
            slot = int(self.older[slot])
        assert back == forth[::-1]
        return forth


def brute_force(
    page: list[int], valid: list[bool] | None, waiting: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Pairs (page row, slot) of equal codes; tuples in arrival order."""
    return [
        (row, slot)
        for row, code in enumerate(page)
        if valid is None or valid[row]
        for slot, other in waiting
        if other == code
    ]


@many
def test_a_ring_of_tuples(seed: int) -> None:
    """Insert, probe and expire in arrival order."""
    rng = random.Random(seed)
    capacity = rng.choice([1, 2, 7, 50])
    tuples = Map(capacity, rng.choice([1, 3, capacity]))
    ring: deque[tuple[int, int]] = deque()
    first = 0
    for _ in range(30):
        new = [rng.randrange(-3, 4) for _ in range(rng.randint(0, capacity - len(ring)))]
        slots = [(first + len(ring) + i) % capacity for i in range(len(new))]
        tuples.insert(new, slots)
        ring.extend(zip(slots, new, strict=True))
        page = [rng.randrange(-4, 5) for _ in range(rng.randint(0, 70))]
        valid = rng.choice([None, [rng.random() < 0.8 for _ in page]])
        pairs = tuples.probe(page, valid, mark=False, once=False, room=rng.choice([1, 3, 100]))
        assert pairs == brute_force(page, valid, list(ring))
        gone = rng.randint(0, len(ring))
        window.expire(first, gone, capacity, *tuples.links)
        first = (first + gone) % capacity
        for _ in range(gone):
            ring.popleft()


@many
def test_a_queue_of_tuples(seed: int) -> None:
    """Insert, mark what matched, and remove it from anywhere in the queue."""
    rng = random.Random(seed)
    capacity = rng.choice([1, 2, 7, 50])
    tuples = Map(capacity, rng.choice([1, 3, capacity]))
    free = np.arange(capacity, dtype=np.int32)
    vacant, queue = capacity, []
    for _ in range(30):
        new = [rng.randrange(4) for _ in range(rng.randint(0, vacant))]
        slots = free[vacant - len(new) : vacant].tolist()
        vacant -= len(new)
        tuples.insert(new, slots)
        queue += zip(slots, new, strict=True)
        page = [rng.randrange(5) for _ in range(rng.randint(0, 6))]
        once = rng.random() < 0.5
        pairs = tuples.probe(page, None, mark=True, once=once, room=rng.choice([1, 3, 100]))
        expected = brute_force(page, None, queue)
        if once:  # of each tuple the first pair
            expected = [
                p for i, p in enumerate(expected) if p[1] not in {s for _, s in expected[:i]}
            ]
        assert pairs == expected
        spared = [slot for slot, _ in queue if rng.random() < 0.2]
        tuples.state[spared] = states.WAITING  # as if their key were another of the same code
        done = np.array([*page, 99], np.int64)
        height = window.settle(
            done, *tuples.links, tuples.state, tuples.older, tuples.newer, free, vacant
        )
        stays = [(s, c) for s, c in queue if c not in page or s in spared]
        gone = {s for s, _ in queue} - {s for s, _ in stays}
        assert set(free[vacant:height].tolist()) == gone
        assert height - vacant == len(gone)
        vacant, queue = height, stays
        assert tuples.queue() == [slot for slot, _ in queue]


@many
def test_the_tuples_of_one_code_in_parts(seed: int) -> None:
    rng = random.Random(seed)
    codes = [rng.randrange(3) for _ in range(20)]
    tuples = Map(20, rng.choice([1, 2, 20]))
    order = rng.sample(range(20), 20)
    tuples.insert(codes, order)
    for code in range(4):
        found: list[int] = []
        start = -1
        out = np.empty(rng.choice([1, 2, 3, 20]), np.int32)
        while True:
            count, start = window.tuples_of(code, start, *tuples.links, out)
            found += out[:count].tolist()
            if start < 0:
                break
        assert found == [slot for slot, c in zip(order, codes, strict=True) if c == code]


def test_pairs_are_counted_per_page_row() -> None:
    counts = np.array([5, 0, 0, 1], np.int32)
    window.count_pairs(np.array([2, 0, 2, 2], np.int32), counts)
    assert counts.tolist() == [6, 0, 3, 1]
    window.count_pairs(np.zeros(0, np.int32), counts)
    assert counts.tolist() == [6, 0, 3, 1]


def test_extreme_codes_are_ordinary_codes() -> None:
    extremes = [-(2**63), -1, 0, 1, 2**63 - 1]
    tuples = Map(5, 2)
    tuples.insert(extremes, [0, 1, 2, 3, 4])
    assert tuples.probe(extremes, None, False, False, 10) == [(i, i) for i in range(5)]
