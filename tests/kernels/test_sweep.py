"""SweepJoin's lists of waiting tuples, and its matching, against lists."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from semistream.kernels import sweep
from semistream.kernels.states import MATCHED, WAITING
from semistream.master.changed import ChangedCodes
from semistream.master.delta_codes import DeltaCodes, table_of

many = pytest.mark.parametrize("seed", range(20))
NO_STRETCHES = np.zeros(0, np.int32)
NO_SKETCH = np.zeros(0, np.uint8)


class Lists:
    """The arrays of a stretch window."""

    def __init__(self, stretches: int, chunks: int, size: int) -> None:
        self.size, self.filtered = size, True
        self.head = np.full(stretches, -1, np.int32)
        self.fill = np.full(stretches, size, np.int32)
        self.next_chunk = np.empty(chunks, np.int32)
        self.free = np.arange(chunks, dtype=np.int32)
        self.vacant = chunks
        self.codes = np.empty(chunks * size, np.int64)
        self.state = np.full(chunks * size, MATCHED, np.uint8)

    def place(
        self, codes: list[int], firsts: list[int], stretches: Any, changed: Any = ()
    ) -> list[int]:
        """Slots of the tuples that found one; they lie in every other row of a batch. ``changed``:
        lists of codes, of the oldest delta first, and the first code of each of its stretches,
        which come after those of the base."""
        batch = np.repeat(np.array(codes, np.int64), 2)
        slots = np.empty(len(codes), np.int32)
        table, all_firsts = [], list(firsts)
        deltas = [
            DeltaCodes(ChangedCodes(*map(np.array, ([*some], [True] * len(some)))))
            for some, _ in changed
        ]
        for delta, (_, begins) in zip(deltas, changed, strict=True):
            if self.filtered:
                delta.extend_filter()
            table.append(delta.rows(len(all_firsts), len(all_firsts) + len(begins)))
            all_firsts += begins
        placed, self.vacant = sweep.place(
            batch, np.arange(0, len(batch), 2), stretches, np.array(all_firsts, np.int64),
            len(firsts), table_of(table), self.size,
            self.head, self.fill, self.next_chunk, self.free, self.vacant,
            self.codes, self.state, slots,
        )  # fmt: skip
        return slots[:placed].tolist()

    def collect(self, stretch: int) -> list[int]:
        return self.collect_some(stretch, stretch + 1, 0, np.arange(len(self.head) + 1))[0]

    def collect_some(
        self, begin: int, end: int, most: int, first_page: Any, dense: int = 100
    ) -> tuple[list[int], int]:
        slots, chunks, stop = sweep.collect(
            begin, end, most, 1000, dense, first_page, self.size, self.head, self.fill,
            self.next_chunk,
        )  # fmt: skip
        assert {slot // self.size for slot in slots.tolist()} == set(chunks.tolist())
        self.free[self.vacant : self.vacant + len(chunks)] = chunks
        self.vacant += len(chunks)
        return slots.tolist(), stop


@many
def test_tuples_wait_in_the_list_of_their_stretch(seed: int) -> None:
    rng = random.Random(seed)
    firsts = sorted(rng.sample(range(-50, 50), rng.randint(1, 8)))
    if rng.random() < 0.3:
        firsts = [-(2**63), *firsts, 2**62]
    size, chunks = rng.choice([1, 2, 5]), rng.randint(1, 12)
    extremes = [-(2**63), 2**63 - 1]
    changed, deltas, count = {}, [], len(firsts)
    for _ in range(rng.randrange(4)):
        some = sorted(rng.sample([*range(-60, 60), *extremes], rng.choice([1, 3, 40])))
        begins = sorted(rng.sample(some, rng.randint(0, min(3, len(some)))))
        for code in some:  # the newest delta counts; one without rows has deleted them
            before = [s for s, first in enumerate(begins) if first <= code]
            changed[code] = count + max(before, default=0) if begins else 0
        deltas.append((some, begins))
        count += len(begins)
    lists, waiting = Lists(count, chunks, size), [[] for _ in range(count)]
    lists.filtered = rng.random() < 0.7
    for _ in range(20):
        codes = [rng.choice([rng.randrange(-60, 60), *firsts, *extremes]) for _ in range(6)]
        owners = [max([s for s, f in enumerate(firsts) if f <= c], default=0) for c in codes]
        owners = [changed.get(c, owner) for c, owner in zip(codes, owners, strict=True)]
        known = np.array(owners, np.int32) if rng.random() < 0.3 else NO_STRETCHES
        slots = lists.place(codes, firsts, known, deltas)
        for slot, code, owner in zip(slots, codes, owners, strict=False):
            waiting[owner].append((slot, code))
            assert lists.state[slot] == WAITING
        if len(slots) < len(codes):  # only if a chunk was needed and none was free
            assert lists.vacant == 0
            assert len(waiting[owners[len(slots)]]) % size == 0
        used = [-(-len(tuples) // size) for tuples in waiting]
        assert lists.vacant == chunks - sum(used)
        begin = rng.randrange(count)
        order = [(begin + i) % count for i in range(count)]
        needed = next((stretch for stretch in order if waiting[stretch]), -1)
        assert sweep.next_needed(begin, lists.head) == needed
        stretch = rng.randrange(count)
        collected = lists.collect(stretch)
        assert sorted((s, int(lists.codes[s])) for s in collected) == sorted(waiting[stretch])
        waiting[stretch] = []
        assert lists.collect(stretch) == []


@many
def test_several_stretches_are_collected_while_their_pages_fit(seed: int) -> None:
    rng = random.Random(seed)
    stretches, size = rng.randint(1, 8), rng.choice([1, 3])
    pages = [rng.randint(1, 5) for _ in range(stretches)]
    first_page = np.cumsum([0, *pages])
    lists = Lists(stretches, 60, size)
    waiting = [[] for _ in range(stretches)]
    for _ in range(rng.randint(1, 20)):
        stretch = rng.randrange(stretches)
        waiting[stretch] += lists.place([7], [0], np.array([stretch], np.int32))
    begin = next(s for s in range(stretches) if waiting[s])
    most, dense = rng.randint(0, 12), rng.choice([1, 3, 4, 100])
    needed = [min(len(tuples), count) for tuples, count in zip(waiting, pages, strict=True)]
    stop = begin + 1
    while stop < stretches and sum(needed[begin : stop + 1]) <= most:
        if max(needed[begin], needed[stop]) >= dense:  # a dense stretch is visited alone
            break
        stop += 1
    while not waiting[stop - 1]:  # whoever comes for these is ahead of the sweep
        stop -= 1
    slots, reached = lists.collect_some(begin, stretches, most, first_page, dense)
    assert reached == stop
    assert sorted(slots) == sorted(slot for tuples in waiting[begin:stop] for slot in tuples)


def tuples_of(rng: random.Random, codes: list[int]) -> tuple[Any, Any, Any]:
    """(slots in the order of their codes, codes by slot, states by slot); some are matched."""
    slots = rng.sample(range(40), rng.randint(0, 30))
    by_slot = np.full(40, -99, np.int64)
    by_slot[slots] = [rng.choice(codes) for _ in slots]
    state = np.full(40, WAITING, np.uint8)
    state[[slot for slot in slots if rng.random() < 0.2]] = MATCHED
    slots.sort(key=lambda slot: int(by_slot[slot]))
    return np.array(slots, np.int32), by_slot, state


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


class Table:
    """Sorted codes, cut into pages anywhere: a code may have rows in several pages."""

    def __init__(self, rng: random.Random) -> None:
        codes = sorted(page_codes(rng) + [rng.randrange(200) for _ in range(20)])
        cuts = sorted(rng.sample(range(1, len(codes)), rng.randint(0, min(6, len(codes) - 1))))
        bounds = [0, *cuts, len(codes)]
        self.codes = codes
        self.pages = [np.array(codes[a:b], np.int64) for a, b in pairwise(bounds)]
        self.firsts = np.array([page[0] for page in self.pages])
        follows = [a[-1] == b[0] for a, b in pairwise(self.pages)]
        self.continues = np.array([*follows, False])

    def needed(self, slots: Any, by_slot: Any, gap: int) -> tuple[Any, Any]:
        pages = np.empty(len(self.pages), np.int64)
        places = np.empty(len(slots), np.int32)
        count = sweep.needed_pages(
            by_slot[slots], self.firsts, self.continues, 0, len(self.pages) - 1, gap, pages, places
        )
        return pages[:count], places

    def rows(self, code: int) -> list[tuple[int, int]]:
        """(page, row) of each row with this code."""
        return [
            (number, row)
            for number, page in enumerate(self.pages)
            for row in np.flatnonzero(page == code).tolist()
        ]


@pytest.mark.parametrize("count", [0, 1, 2, 33, 34, 500])
@pytest.mark.parametrize("kind", ["dense", "equal", "two keys", "clustered", "extreme"])
def test_tuples_are_sorted_by_code(count: int, kind: str) -> None:
    rng = np.random.default_rng(count)
    codes = {
        "dense": rng.permutation(count),
        "equal": np.full(count, 7),
        "two keys": rng.integers(0, 2, count) * 2**62,
        "clustered": np.where(rng.random(count) < 0.02, 2**60, rng.integers(0, 9 * count, count)),
        "extreme": rng.choice([-(2**63), 2**63 - 1, -1, 0, 3], count),
    }[kind].astype(np.int64)
    slots = rng.permutation(3 * count)[:count].astype(np.int32)
    by_slot = np.zeros(3 * count, np.int64)
    by_slot[slots] = codes
    ordered, found = sweep.in_order(by_slot, slots)
    assert found.tolist() == sorted(codes.tolist())
    assert by_slot[ordered].tolist() == found.tolist()
    assert sorted(ordered.tolist()) == sorted(slots.tolist())


@many
def test_the_pages_that_tuples_need(seed: int) -> None:
    rng = random.Random(seed)
    table = Table(rng)
    slots, by_slot, _ = tuples_of(rng, [*table.codes, -1, 50, 1000, 2**63 - 1, -(2**63)])
    gap = rng.choice([0, 0, 1, 3])
    pages, places = table.needed(slots, by_slot, gap)
    assert (np.diff(pages) > 0).all()
    wanted = set()
    for slot, place in zip(slots.tolist(), places.tolist(), strict=True):
        code = by_slot[slot]
        rows = table.rows(code)
        if rows:
            assert pages[place] == rows[0][0]
        else:  # the page where it would be
            below = [number for number, first in enumerate(table.firsts) if first <= code]
            assert pages[place] == max(below, default=0)
        wanted |= {int(pages[place])} | {number for number, _ in rows}
    if gap:
        for a, b in pairwise(sorted(wanted)):
            wanted |= set(range(a, b)) if b - a <= gap + 1 else set()
    assert set(pages.tolist()) == wanted


@many
@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("mark", [False, True])
def test_tuples_are_paired_with_the_rows_of_pages(seed: int, once: bool, mark: bool) -> None:
    rng = random.Random(seed)
    table = Table(rng)
    slots, by_slot, state = tuples_of(rng, [*table.codes, -1, 500, -(2**63), 2**63 - 1])
    before = state.copy()
    pages, places = table.needed(slots, by_slot, rng.choice([0, 2]))
    keys = np.array([table.pages[p].ctypes.data for p in pages], np.int64)
    sizes = np.array([len(table.pages[p]) for p in pages], np.int64)
    expected = []
    for slot in slots.tolist():
        rows = table.rows(by_slot[slot]) if not once or before[slot] == WAITING else []
        expected += [(*row, slot) for row in (rows[:1] if once and mark else rows)]
    cursor, found = np.array([0, 0, -1], np.int64), []
    out = [np.empty(rng.choice([1, 2, 1000]), np.int32) for _ in range(1)] * 3
    out = [part.copy() for part in out]
    while len(slots):
        count = sweep.match(
            pages, keys, sizes, slots, places, cursor, once, mark, by_slot, state, *out
        )
        place, row, slot = (part[:count].tolist() for part in out)
        found += [(int(pages[p]), r, s) for p, r, s in zip(place, row, slot, strict=True)]
        if cursor[0] >= len(slots):
            break
        assert count == len(out[0])
    assert found == expected
    marked = {slot for *_, slot in expected} if mark else set()
    matched = set(np.flatnonzero(before == MATCHED).tolist())
    assert set(np.flatnonzero(state == MATCHED).tolist()) == matched | marked


@many
def test_keys_with_enough_waiting_tuples(seed: int) -> None:
    """Pairs are grouped by key; each of its tuples has all rows of the key."""
    rng = random.Random(seed)
    tuples = [rng.randint(1, 5) for _ in range(9)]
    rows_of = [rng.choice([1, 1, 3, 17]) for _ in tuples]
    codes, pairs, starts = [], [], []
    for key, (count, rows) in enumerate(zip(tuples, rows_of, strict=True)):
        starts.append(len(pairs))
        for _ in range(count):
            pairs += [len(codes)] * rows
            codes.append(key)
    slots, by_slot = np.array(pairs, np.int32), np.array(codes, np.int64)
    none = np.zeros(len(slots), np.int32)
    least = rng.randint(1, 5)
    expected = [
        (starts[key], rows_of[key], tuples[key])
        for key in range(len(tuples))
        if tuples[key] >= least and rows_of[key] <= 16
    ]
    found = sweep.hot_keys(none, none, slots, by_slot, NO_SKETCH, least)
    assert list(zip(*(part.tolist() for part in found), strict=True)) == expected
    sketch = np.zeros(4096, np.uint8)  # the second visit counts on top of the first
    sweep.hot_keys(none, none, slots, by_slot, sketch, least)
    _, _, worth = sweep.hot_keys(none, none, slots, by_slot, sketch, 1)
    assert (worth >= 2 * np.array(tuples)[[rows <= 16 for rows in rows_of]]).all()


def test_a_key_whose_last_tuple_lacks_rows_is_left_out() -> None:
    slots, none = np.array([0, 0, 1, 2], np.int32), np.zeros(4, np.int32)
    found = sweep.hot_keys(none, none, slots, np.array([5, 5, 6]), NO_SKETCH, 1)
    assert [part.tolist() for part in found] == [[3], [1], [1]]


def test_no_pairs_give_no_candidates() -> None:
    none = np.zeros(0, np.int32)
    found = sweep.hot_keys(none, none, none, np.zeros(1, np.int64), NO_SKETCH, 1)
    assert [len(part) for part in found] == [0, 0, 0]
