"""The recorder's hash table and frequency lists against a dict."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest

from semistream.kernels import recorder
from semistream.kernels.states import LISTS

NO_MASK = np.zeros(0, np.bool_)
many = pytest.mark.parametrize("seed", range(20))


class Cache:
    """A recorder's arrays. Few buckets make long chains."""

    def __init__(self, capacity: int, buckets: int) -> None:
        self.heads = np.full(buckets, -1, np.int32)
        self.chain = np.empty(capacity, np.int32)
        self.held = np.empty(capacity, np.int64)
        self.sibling = np.empty(capacity, np.int32)
        self.higher = np.arange(capacity + LISTS, dtype=np.int32)
        self.lower = np.arange(capacity + LISTS, dtype=np.int32)
        self.free = np.arange(capacity, dtype=np.int32)
        self.vacant = capacity
        self.table = (self.heads, self.chain, self.held, self.sibling, self.higher, self.lower)

    def admit(self, codes: list[int], counts: list[int], frequencies: list[int]) -> list[int]:
        slots = np.empty(sum(counts), np.int32)
        self.vacant = recorder.admit(
            np.array(codes, np.int64), np.array(counts, np.int64), np.array(frequencies, np.int64),
            *self.table, self.free, self.vacant, slots,
        )  # fmt: skip
        return slots.tolist()

    def evict(self, rows: int) -> list[int]:
        before = self.vacant
        self.vacant = recorder.evict(rows, *self.table, self.free, before)
        return self.free[before : self.vacant].tolist()

    def drop(self, codes: list[int]) -> list[int]:
        before = self.vacant
        self.vacant = recorder.drop(np.array(codes, np.int64), *self.table, self.free, before)
        return self.free[before : self.vacant].tolist()

    def look_up(
        self, codes: list[int], valid: list[bool] | None, start: int, misses: int, pairs: int,
        once: bool,
    ) -> tuple[int, list[tuple[int, int]], list[int], int]:  # fmt: skip
        rows, slots = np.empty(pairs, np.int64), np.empty(pairs, np.int32)
        missed = np.empty(min(len(codes) - start, misses), np.int64)
        stop, found, absent, hits = recorder.look_up(
            np.array(codes, np.int64), NO_MASK if valid is None else np.array(valid), start,
            misses, once, *self.table[:4], rows, slots, missed,
        )  # fmt: skip
        paired = list(zip(rows[:found].tolist(), slots[:found].tolist(), strict=True))
        return stop, paired, missed[:absent].tolist(), hits


@dataclass
class Entry:
    slots: list[int]
    frequency: int
    entered: int  # a later entry of the same frequency leaves later


def expected_look_up(
    held: dict[int, list[int]], codes: list[int], valid: list[bool] | None, start: int,
    misses: int, pairs: int, once: bool,
) -> tuple[int, list[tuple[int, int]], list[int], int]:  # fmt: skip
    """What a look-up must return, one tuple after the other."""
    paired: list[tuple[int, int]] = []
    missed: list[int] = []
    for i in range(start, len(codes)):
        slots = held.get(codes[i], []) if valid is None or valid[i] else []
        slots = slots[:1] if once else slots
        if not slots and len(missed) == misses:
            return i, paired, missed, len({row for row, _ in paired})
        if len(paired) + len(slots) > pairs:
            return i, paired, missed, len({row for row, _ in paired})
        paired += [(i, slot) for slot in slots]
        missed += [] if slots else [i]
    return len(codes), paired, missed, len({row for row, _ in paired})


@many
def test_entries_are_admitted_found_and_evicted(seed: int) -> None:
    rng = random.Random(seed)
    capacity = rng.choice([1, 4, 30])
    cache = Cache(capacity, rng.choice([1, 2, capacity]))
    model: dict[int, Entry] = {}
    for turn in range(40):
        action = rng.choice(["admit", "evict", "drop", "look up"])
        if action == "admit":
            _admit(rng, cache, model, turn)
        elif action == "evict":
            wanted = rng.randint(0, capacity)
            order = sorted(model.values(), key=lambda e: (e.frequency, e.entered))
            left: list[int] = []
            while cache.vacant + len(left) < wanted and order:
                left += order.pop(0).slots
            assert cache.evict(wanted) == left
            model = {code: e for code, e in model.items() if e in order}
        elif action == "drop":
            codes = [rng.randrange(8) for _ in range(3)]
            left = [s for code in dict.fromkeys(codes) if code in model for s in model[code].slots]
            assert cache.drop(codes) == left
            model = {code: e for code, e in model.items() if code not in codes}
        else:
            codes = [rng.randrange(9) for _ in range(rng.randint(0, 20))]
            valid = rng.choice([None, [rng.random() < 0.8 for _ in codes]])
            limits = rng.randint(0, len(codes)), rng.randint(0, 25), rng.choice([3, 8, 100])
            held = {code: e.slots for code, e in model.items()}
            for once in (False, True):
                expected = expected_look_up(held, codes, valid, *limits, once)
                assert cache.look_up(codes, valid, *limits, once) == expected
        assert cache.vacant == capacity - sum(len(e.slots) for e in model.values())


def _admit(rng: random.Random, cache: Cache, model: dict[int, Entry], turn: int) -> None:
    codes = [rng.randrange(8) for _ in range(rng.randint(0, 4))]
    counts = [rng.randint(1, 3) for _ in codes]
    if sum(counts) > cache.vacant:
        return
    frequencies = [rng.choice([1, 2, LISTS - 1, LISTS, 10_000]) for _ in codes]
    slots, row = cache.admit(codes, counts, frequencies), 0
    for i, code in enumerate(codes):
        given, row = slots[row : row + counts[i]], row + counts[i]
        rank = min(frequencies[i], LISTS - 1), 100 * turn + i
        if code in model:  # ranked again, with the rows that it has
            assert given == [-1] * counts[i]
            model[code] = Entry(model[code].slots, *rank)
        else:
            assert len({*given}) == counts[i]
            model[code] = Entry(given, *rank)
    assert len({s for e in model.values() for s in e.slots}) == sum(
        len(e.slots) for e in model.values()
    )


@many
def test_keys_are_counted_until_the_span_is_over(seed: int) -> None:
    rng = random.Random(seed)
    span = rng.choice([1, 2, 5, 20])
    table, seen = np.empty(2 * span, np.int64), np.zeros(2 * span, np.int32)
    stamp = np.zeros(1, np.int64)
    counted: dict[int, int] = {}
    age = 0
    for _ in range(5):
        codes = [rng.randrange(6) - 3 for _ in range(12)]
        rows = sorted(rng.sample(range(12), rng.randint(0, 12)))
        expected = []
        for row in rows:
            if age == span:
                counted, age = {}, 0
            age += 1
            counted[codes[row]] = counted.get(codes[row], 0) + 1
            expected.append(counted[codes[row]])
        found = recorder.count_recent(
            np.array(codes), np.array(rows, np.int64), table, seen, stamp, span
        )
        assert found.tolist() == expected
