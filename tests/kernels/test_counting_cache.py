"""The counting cache's hash table, hand and sketch, and the absent keys, against dicts."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest

from semistream.kernels import absent_keys, counting_cache

NO_MASK = np.zeros(0, np.bool_)
MOST = 255
many = pytest.mark.parametrize("seed", range(20))


class Cache:
    """A counting cache's arrays. Few buckets make long chains."""

    def __init__(self, capacity: int, buckets: int) -> None:
        self.heads = np.full(buckets, -1, np.int32)
        self.chain = np.empty(capacity, np.int32)
        self.held = np.empty(capacity, np.int64)
        self.sibling = np.empty(capacity, np.int32)
        self.hits = np.zeros(capacity, np.uint8)
        self.free = np.arange(capacity, dtype=np.int32)
        self.vacant = capacity
        self.hand = 0
        self.table = (self.heads, self.chain, self.held, self.sibling, self.hits)

    def enter(self, codes: list[int], counts: list[int], frequencies: list[int]) -> list[int]:
        slots = np.empty(sum(counts), np.int32)
        self.vacant = counting_cache.enter(
            np.array(codes, np.int64), np.array(counts, np.int64), np.array(frequencies, np.int64),
            *self.table, self.free, self.vacant, slots,
        )  # fmt: skip
        return slots.tolist()

    def entries(self, codes: list[int]) -> list[int]:
        return counting_cache.held_entries(np.array(codes, np.int64), *self.table[:3]).tolist()

    def remove(self, entries: list[int]) -> list[int]:
        before = self.vacant
        self.vacant = counting_cache.remove(
            np.array(entries, np.int32), *self.table, self.free, before
        )
        return self.free[before : self.vacant].tolist()

    def advance_hand(self, steps: int) -> list[tuple[int, int]]:
        slots, values, self.hand = counting_cache.advance_hand(self.hits, self.hand, steps)
        return list(zip(slots.tolist(), values.tolist(), strict=True))

    def look_up(
        self, codes: list[int], valid: list[bool] | None, start: int, misses: int, pairs: int,
        once: bool,
    ) -> tuple[int, list[tuple[int, int]], list[int], int]:  # fmt: skip
        rows, slots = np.empty(pairs, np.int64), np.empty(pairs, np.int32)
        missed = np.empty(min(len(codes) - start, misses), np.int64)
        stop, found, absent, hits = counting_cache.look_up(
            np.array(codes, np.int64), NO_MASK if valid is None else np.array(valid), start,
            misses, once, *self.table, rows, slots, missed,
        )  # fmt: skip
        paired = list(zip(rows[:found].tolist(), slots[:found].tolist(), strict=True))
        return stop, paired, missed[:absent].tolist(), hits


@dataclass
class Entry:
    slots: list[int]
    hits: int  # the hand's count


def expected_look_up(
    model: dict[int, Entry], codes: list[int], valid: list[bool] | None, start: int, misses: int,
    pairs: int, once: bool,
) -> tuple[int, list[tuple[int, int]], list[int], int]:  # fmt: skip
    """What a look-up must return, one tuple after the other; hits are counted."""
    paired: list[tuple[int, int]] = []
    missed: list[int] = []
    hit = 0
    for i in range(start, len(codes)):
        entry = model.get(codes[i]) if valid is None or valid[i] else None
        if entry is None:
            if len(missed) == misses:
                return i, paired, missed, hit
            missed.append(i)
            continue
        slots = entry.slots[:1] if once else entry.slots
        if len(paired) + len(slots) > pairs:
            return i, paired, missed, hit
        paired += [(i, slot) for slot in slots]
        hit += 1
        entry.hits = min(entry.hits + 1, MOST - 1)
    return len(codes), paired, missed, hit


@many
def test_entries_are_admitted_counted_and_evicted(seed: int) -> None:
    rng = random.Random(seed)
    capacity = rng.choice([1, 4, 30])
    cache = Cache(capacity, rng.choice([1, 2, capacity]))
    model: dict[int, Entry] = {}
    for _ in range(40):
        action = rng.choice(["enter", "remove", "hand", "look up", "look up"])
        if action == "enter":
            strangers = [code for code in range(8) if code not in model]
            codes = rng.sample(strangers, min(rng.randint(0, 2), len(strangers)))
            counts = [rng.randint(1, 3) for _ in codes]
            if sum(counts) > cache.vacant:
                continue
            worth = [rng.choice([0, 1, 7, 254, 255, 1000]) for _ in codes]
            slots = cache.enter(codes, counts, worth)
            for code, count, value in zip(codes, counts, worth, strict=True):
                model[code] = Entry(slots[:count], min(value, MOST - 1))
                slots = slots[count:]
        elif action == "remove":
            gone = rng.sample(sorted(model), rng.randint(0, len(model)))
            left = [slot for code in gone for slot in model[code].slots]
            assert cache.remove([model.pop(code).slots[0] for code in gone]) == left
        elif action == "hand":
            steps = rng.randint(0, capacity)
            firsts = {e.slots[0]: e for e in model.values()}
            passed = [(cache.hand + i) % capacity for i in range(steps)]
            seen = [(slot, firsts[slot].hits) for slot in passed if slot in firsts]
            assert cache.advance_hand(steps) == seen
            for slot, hits in seen:
                firsts[slot].hits = hits // 2
        else:
            codes = [rng.randrange(9) for _ in range(rng.randint(0, 70))]
            valid = rng.choice([None, [rng.random() < 0.8 for _ in codes]])
            limits = rng.randint(0, len(codes)), rng.randint(0, 25), rng.choice([3, 8, 200])
            once = rng.random() < 0.5
            expected = expected_look_up(model, codes, valid, *limits, once)
            assert cache.look_up(codes, valid, *limits, once) == expected
        assert cache.entries(list(range(9))) == [
            model[code].slots[0] if code in model else -1 for code in range(9)
        ]
        firsts = {e.slots[0]: e.hits + 1 for e in model.values()}
        assert cache.hits.tolist() == [firsts.get(slot, 0) for slot in range(capacity)]
        slots, counts = counting_cache.rows_of(
            np.array([e.slots[0] for e in model.values()], np.int32), cache.sibling
        )
        assert slots.tolist() == [slot for e in model.values() for slot in e.slots]
        assert counts.tolist() == [len(e.slots) for e in model.values()]
        assert cache.vacant == capacity - len(slots)


def test_hit_counts_saturate() -> None:
    cache = Cache(1, 1)
    cache.enter([7], [1], [0])
    for _ in range(9):
        cache.look_up([7] * 32, None, 0, 32, 100, False)
    assert cache.hits.tolist() == [MOST]
    assert cache.advance_hand(1) == [(0, MOST - 1)]
    assert cache.advance_hand(1) == [(0, (MOST - 1) // 2)]


@many
def test_a_sketch_never_underestimates(seed: int) -> None:
    rng = random.Random(seed)
    sketch = np.zeros(rng.choice([1, 8, 4096]), np.uint8)
    true: dict[int, int] = {}
    for _ in range(10):
        codes = [rng.randrange(-20, 20) for _ in range(10)]
        counts = [rng.choice([0, 0, 1, 2, 40]) for _ in codes]
        values = counting_cache.count(np.array(codes), np.array(counts), sketch).tolist()
        for code, count, value in zip(codes, counts, values, strict=True):
            true[code] = true.get(code, 0) + count
            assert (value >= min(true[code], MOST)) if count else value == 0
    if len(sketch) == 4096:  # two counters per key: hardly any key shares both
        values = counting_cache.count(
            np.array([*true]), np.ones(len(true), np.int64), sketch
        ).tolist()
        exact = [min(count + 1, MOST) for count in true.values()]
        assert sum(v == e for v, e in zip(values, exact, strict=True)) > 0.9 * len(true)


def test_counts_without_a_sketch() -> None:
    none = np.zeros(0, np.uint8)
    codes, counts = np.array([1, 1, 2, 3]), np.array([4, 4, 0, 999])
    assert counting_cache.count(codes, counts, none).tolist() == [4, 4, 0, MOST]


@many
def test_absent_keys_are_remembered_in_sets_of_eight(seed: int) -> None:
    rng = random.Random(seed)
    table = np.empty(8 * rng.choice([1, 2, 5]), np.int64)
    used = np.zeros(len(table), np.bool_)
    universe = [rng.randrange(-(2**63), 2**63) for _ in range(30)]
    noted: set[int] = set()
    for _ in range(20):
        some = rng.sample(universe, rng.randint(0, 4))
        absent_keys.insert(np.array(some, np.int64), table, used)
        noted.update(some)
        rows = [rng.randrange(30) for _ in range(10)]
        known = absent_keys.contains(np.array(universe), np.array(rows, np.int64), table, used)
        assert {universe[row] for row, k in zip(rows, known, strict=True) if k} <= noted
        everything = absent_keys.contains(np.array(universe), np.arange(30), table, used)
        assert everything[[universe.index(code) for code in some[-1:]]].all()  # the newest is held
        if len(noted) <= 8:  # no set can be full
            assert set(np.array(universe)[everything].tolist()) == noted
