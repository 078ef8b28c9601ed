"""SweepJoin's lists of waiting tuples, and its matching, against lists."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from semistream.kernels import sweep
from semistream.kernels.states import MATCHED, WAITING

many = pytest.mark.parametrize("seed", range(20))
NO_STRETCHES = np.zeros(0, np.int32)
NO_SKETCH = np.zeros(0, np.uint8)


class Lists:
    """The arrays of a stretch window."""

    def __init__(self, stretches: int, chunks: int, size: int) -> None:
        self.size = size
        self.head = np.full(stretches, -1, np.int32)
        self.fill = np.full(stretches, size, np.int32)
        self.next_chunk = np.empty(chunks, np.int32)
        self.free = np.arange(chunks, dtype=np.int32)
        self.vacant = chunks
        self.codes = np.empty(chunks * size, np.int64)
        self.state = np.full(chunks * size, MATCHED, np.uint8)

    def place(self, codes: list[int], firsts: list[int], stretches: Any) -> list[int]:
        """Slots of the tuples that found one; they lie in every other row of a batch."""
        batch = np.repeat(np.array(codes, np.int64), 2)
        slots = np.empty(len(codes), np.int32)
        placed, self.vacant = sweep.place(
            batch, np.arange(0, len(batch), 2), stretches, np.array(firsts, np.int64), self.size,
            self.head, self.fill, self.next_chunk, self.free, self.vacant,
            self.codes, self.state, slots,
        )  # fmt: skip
        return slots[:placed].tolist()

    def collect(self, stretch: int) -> list[int]:
        slots, chunks = sweep.collect(stretch, self.size, self.head, self.fill, self.next_chunk)
        assert {slot // self.size for slot in slots.tolist()} == set(chunks.tolist())
        self.free[self.vacant : self.vacant + len(chunks)] = chunks
        self.vacant += len(chunks)
        return slots.tolist()


@many
def test_tuples_wait_in_the_list_of_their_stretch(seed: int) -> None:
    rng = random.Random(seed)
    firsts = sorted(rng.sample(range(-50, 50), rng.randint(1, 8)))
    if rng.random() < 0.3:
        firsts = [-(2**63), *firsts, 2**62]
    size, chunks = rng.choice([1, 2, 5]), rng.randint(1, 12)
    lists, waiting = Lists(len(firsts), chunks, size), [[] for _ in firsts]
    extremes = [-(2**63), 2**63 - 1]
    for _ in range(20):
        codes = [rng.choice([rng.randrange(-60, 60), *firsts, *extremes]) for _ in range(6)]
        owners = [max([s for s, f in enumerate(firsts) if f <= c], default=0) for c in codes]
        known = np.array(owners, np.int32) if rng.random() < 0.3 else NO_STRETCHES
        slots = lists.place(codes, firsts, known)
        for slot, code, owner in zip(slots, codes, owners, strict=False):
            waiting[owner].append((slot, code))
            assert lists.state[slot] == WAITING
        if len(slots) < len(codes):  # only if a chunk was needed and none was free
            assert lists.vacant == 0
            assert len(waiting[owners[len(slots)]]) % size == 0
        used = [-(-len(tuples) // size) for tuples in waiting]
        assert lists.vacant == chunks - sum(used)
        begin = rng.randrange(len(firsts))
        order = [(begin + i) % len(firsts) for i in range(len(firsts))]
        needed = next((stretch for stretch in order if waiting[stretch]), -1)
        assert sweep.next_needed(begin, lists.head) == needed
        stretch = rng.randrange(len(firsts))
        collected = lists.collect(stretch)
        assert sorted((s, int(lists.codes[s])) for s in collected) == sorted(waiting[stretch])
        waiting[stretch] = []
        assert lists.collect(stretch) == []


def tuples_of(rng: random.Random, codes: list[int]) -> tuple[Any, Any, Any]:
    """(slots in the order of their codes, codes by slot, states by slot); some are matched."""
    slots = rng.sample(range(40), rng.randint(0, 30))
    by_slot = np.full(40, -99, np.int64)
    by_slot[slots] = [rng.choice(codes) for _ in slots]
    state = np.full(40, WAITING, np.uint8)
    state[[slot for slot in slots if rng.random() < 0.2]] = MATCHED
    slots.sort(key=lambda slot: int(by_slot[slot]))
    return np.array(slots, np.int32), by_slot, state


def brute_force(page: list[int], slots: Any, codes: Any, state: Any, once: bool) -> list[Any]:
    """Pairs (row, slot) in the order of the tuples; with ``once`` a tuple's first one only."""
    pairs = []
    for slot in slots.tolist():
        if once and state[slot] != WAITING:
            continue
        rows = [row for row, code in enumerate(page) if code == codes[slot]]
        pairs += [(row, slot) for row in (rows[:1] if once else rows)]
    return pairs


def in_parts(kernel: Any, before: tuple[Any, ...], slots: Any, after: tuple[Any, ...], room: int,
             columns: int = 2) -> list[tuple[int, ...]]:  # fmt: skip
    """All pairs of a matching kernel whose buffers hold ``room`` of them."""
    cursor = np.array([0, -1, 0], np.int64)
    out = [np.empty(room, np.int32) for _ in range(columns)]
    pairs: list[tuple[int, ...]] = []
    while True:
        found = kernel(*before, slots, cursor, *after, *out)
        pairs += zip(*(column[:found].tolist() for column in out), strict=True)
        if cursor[0] >= len(slots):
            return pairs
        assert found == room


def page_codes(rng: random.Random) -> list[int]:
    """Dense, sparse, with repeated or extreme values."""
    kind = rng.choice(["dense", "sparse", "same", "extreme"])
    size = rng.randint(1, 40)
    if kind == "dense":
        return list(range(5, 5 + size))
    if kind == "same":
        return [3] * size
    codes = [rng.randrange(100) for _ in range(size)]
    return sorted([-(2**63), *codes, 2**63 - 1] if kind == "extreme" else codes)


@many
@pytest.mark.parametrize("once", [False, True])
def test_tuples_are_paired_with_sorted_rows(seed: int, once: bool) -> None:
    rng = random.Random(seed)
    page = page_codes(rng)
    slots, codes, state = tuples_of(rng, [*page, -1, 50, 1000, 2**63 - 1, -(2**63)])
    expected = brute_force(page, slots, codes, state, once)
    marked = {slot for _, slot in expected} | set(np.flatnonzero(state == MATCHED).tolist())
    room = rng.choice([1, 2, 1000])
    found = in_parts(sweep.match, (np.array(page),), slots, (once, codes, state), room)
    assert found == expected
    assert set(np.flatnonzero(state == MATCHED).tolist()) == marked


def test_a_page_without_rows_matches_nothing() -> None:
    slots, codes, state = np.array([0], np.int32), np.zeros(1, np.int64), np.zeros(1, np.uint8)
    nothing = np.zeros(0, np.int64)
    assert in_parts(sweep.match, (nothing,), slots, (False, codes, state), 1) == []
    order = np.zeros(0, np.int64)
    assert in_parts(sweep.match_hashes, (nothing, order), slots, (False, codes, state), 1) == []


@many
@pytest.mark.parametrize("once", [False, True])
def test_hashes_are_paired_and_nothing_is_marked(seed: int, once: bool) -> None:
    rng = random.Random(seed)
    page = page_codes(rng)
    rng.shuffle(page)
    slots, codes, state = tuples_of(rng, [*page, -1, 1000])
    rng.shuffle(slots)
    before = state.copy()
    order = np.argsort(np.array(page), kind="stable")
    expected = [
        (row, slot)
        for slot in slots.tolist()
        if not once or state[slot] == WAITING
        for row in order.tolist()
        if page[row] == codes[slot]
    ]
    found = in_parts(
        sweep.match_hashes, (np.array(page), order), slots, (once, codes, state),
        rng.choice([1, 2, 1000]),
    )  # fmt: skip
    assert found == expected
    assert (state == before).all()


@many
@pytest.mark.parametrize("once", [False, True])
def test_tuples_are_paired_with_rows_of_pages_known_by_address(seed: int, once: bool) -> None:
    rng = random.Random(seed)
    codes = sorted(set(page_codes(rng)) | {rng.randrange(200) for _ in range(20)})
    repeated = sorted(codes + ([] if once else rng.choices(codes, k=4)))
    cuts = sorted(rng.sample(codes[1:], min(len(codes) - 1, rng.randint(0, 3))))
    bounds = [codes[0], *cuts]
    pages = [[] for _ in bounds]  # each code in one page
    for code in repeated:
        pages[max(p for p, first in enumerate(bounds) if first <= code)].append(code)
    arrays = [np.array(page, np.int64) for page in pages]
    keys = np.array([array.ctypes.data for array in arrays], np.int64)
    sizes = np.array([len(array) for array in arrays], np.int32)
    slots, by_slot, state = tuples_of(rng, [*codes, -1, 500, -(2**63), 2**63 - 1])
    expected = []
    for row, slot in brute_force(repeated, slots, by_slot, state, once):
        place = next(p for p in range(len(pages)) if sum(map(len, pages[: p + 1])) > row)
        expected.append((place, row - sum(map(len, pages[:place])), slot))
    found = in_parts(
        sweep.match_mapped, (keys, sizes), slots, (once, by_slot, state),
        rng.choice([1, 2, 1000]), columns=3,
    )  # fmt: skip
    assert found == expected


@many
def test_rows_with_enough_matches(seed: int) -> None:
    rng = random.Random(seed)
    groups = [(place, row) for place in range(3) for row in rng.sample(range(9), 3)]
    counts = [rng.randint(1, 5) for _ in groups]
    pairs = [group for group, count in zip(groups, counts, strict=True) for _ in range(count)]
    codes = np.arange(len(groups)).repeat(counts)
    slots = np.arange(len(pairs), dtype=np.int32)
    places, rows = (np.array([pair[i] for pair in pairs], np.int32) for i in (0, 1))
    least = rng.randint(1, 5)
    starts = np.cumsum([0, *counts])
    expected = [(starts[i], count) for i, count in enumerate(counts) if count >= least]
    first, worth = sweep.frequent(places, rows, slots, codes, NO_SKETCH, least)
    assert list(zip(first.tolist(), worth.tolist(), strict=True)) == expected
    sketch = np.zeros(4096, np.uint8)  # the second visit counts on top of the first
    sweep.frequent(places, rows, slots, codes, sketch, least)
    first, worth = sweep.frequent(places, rows, slots, codes, sketch, 1)
    assert first.tolist() == starts[:-1].tolist()
    assert (worth >= 2 * np.array(counts)).all()


def test_no_pairs_give_no_candidates() -> None:
    none = np.zeros(0, np.int32)
    first, worth = sweep.frequent(none, none, none, np.zeros(1, np.int64), NO_SKETCH, 1)
    assert len(first) == len(worth) == 0
