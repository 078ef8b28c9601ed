"""The choice between copying rows and reading pages, and visits whose rows are copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from engine.kit import STREAM, binding, context
from semistream.engine.plan import plan_memory
from semistream.engine.rows.page_opener import LoadedPages
from semistream.engine.shape import StreamShape, TableShape
from semistream.errors import MasterTableError
from semistream.joins.sweep import visit_copies
from semistream.joins.sweep.read_ahead import ReadAhead
from semistream.joins.sweep.stretch_window import NEVER
from semistream.joins.sweep.visit import MAP_ROWS, READ, READ_ROWS, Visit
from semistream.joins.sweep.visit_copies import WayChoice
from semistream.kernels.page_columns import copy_codes
from semistream.master.scattered_pages import ScatteredPages

AGAIN = visit_copies._TRY_AGAIN
RARELY = AGAIN * visit_copies._RARELY
NAME = {READ: "read", READ_ROWS: "rows", MAP_ROWS: "map"}
ROWS = 3000


class Machine:
    """Visits of 100 pages, which take so many seconds by way; the first one after another way
    takes ``switching`` times as long."""

    def __init__(self, switching: float = 1.0, **seconds: float) -> None:
        ways = [way for way, name in NAME.items() if name in seconds]
        self.choice, self.seconds, self.switching = WayChoice(ways), seconds, switching
        self.last = -1

    def visit(self, pause: float = 1.0, density: int = 0) -> str:
        way = self.choice.choose(density)
        if way != self.last:
            pause *= self.switching
        self.last = way
        self.choice.took(density, way, pause * self.seconds[NAME[way]], 100)
        return NAME[way]

    def visits(self, count: int) -> list[str]:
        return [self.visit() for _ in range(count)]


@pytest.mark.parametrize(("seconds", "every"), [(1.2, AGAIN), (1.5, RARELY)])
@pytest.mark.parametrize(("better", "other"), [("map", "read"), ("read", "map")])
def test_the_cheaper_way_is_taken_and_the_other_one_is_tried_again(
    better: str, other: str, seconds: float, every: int
) -> None:
    """More rarely if it takes much longer."""
    machine = Machine(**{better: 1.0, other: seconds})
    first = machine.visits(6)
    assert {way: first.count(way) >= 2 for way in ("map", "read")} == {"map": True, "read": True}
    ways = machine.visits(10 * every)
    assert ways.count(other) <= 10 * visit_copies._TRIALS
    for start in range(0, 10 * every, every):
        assert other in ways[start : start + every]


@pytest.mark.parametrize("better", ["map", "read", "rows"])
def test_the_cheapest_of_three_ways(better: str) -> None:
    others = [way for way in NAME.values() if way != better]
    machine = Machine(**{better: 1.0, others[0]: 1.3, others[1]: 1.5})
    machine.visits(8)
    ways = machine.visits(10 * RARELY)
    for other in others:  # in turn
        assert 0 < ways.count(other) <= 6 * visit_copies._TRIALS
    machine.seconds[others[1]] = 0.5
    machine.visits(5 * RARELY)
    assert machine.visits(AGAIN).count(others[1]) >= AGAIN - visit_copies._TRIALS


@pytest.mark.parametrize("dropped", [MAP_ROWS, READ_ROWS])
def test_a_way_that_is_dropped_is_not_chosen_again(dropped: int) -> None:
    machine = Machine(read=2.0, rows=1.0, map=1.0)
    machine.visits(AGAIN)
    machine.choice.drop(dropped)
    ways = machine.visits(5 * AGAIN)
    assert NAME[dropped] not in ways
    assert ways.count("read") <= 5 * visit_copies._TRIALS


@pytest.mark.parametrize("better", ["map", "read"])
def test_one_slow_visit_does_not_change_the_choice(better: str) -> None:
    other = {"map": "read", "read": "map"}[better]
    machine = Machine(**{better: 1.0, other: 1.6})
    machine.visits(AGAIN + 8)
    for _ in range(5):
        while machine.visit(pause=1000.0) != better:
            pass
        assert machine.visits(AGAIN // 2).count(better) >= AGAIN // 2 - visit_copies._TRIALS
        machine.visits(AGAIN)


@pytest.mark.parametrize(("better", "other"), [("map", "read"), ("read", "map")])
def test_the_first_visit_after_another_way_does_not_count(better: str, other: str) -> None:
    """It allocates what the other way has released."""
    machine = Machine(**{better: 1.0, other: 1.2}, switching=9.0)
    machine.visits(AGAIN)
    assert machine.visits(5 * AGAIN).count(other) <= 5 * visit_copies._TRIALS


@pytest.mark.parametrize("before", ["map", "read"])
def test_a_way_that_became_slower_is_left_and_taken_again(before: str) -> None:
    after = {"map": "read", "read": "map"}[before]
    machine = Machine(**{before: 1.0, after: 1.6})
    machine.visits(2 * AGAIN)
    machine.seconds[before] = 3.0
    machine.visits(AGAIN // 2)
    assert machine.visits(AGAIN).count(after) >= AGAIN - visit_copies._TRIALS
    machine.seconds[before] = 0.5  # only trials can find this out
    machine.visits(5 * RARELY)
    assert machine.visits(AGAIN).count(before) >= AGAIN - visit_copies._TRIALS


def test_every_density_has_its_choice() -> None:
    machines = [Machine(map=1.0, read=2.0), Machine(map=2.0, read=1.0)]
    machines[1].choice = machines[0].choice
    for density, machine in enumerate(machines):
        for _ in range(6):
            machine.visit(density=density)
    for density, better in enumerate((MAP_ROWS, READ)):
        chosen = [machines[0].choice.choose(density) for _ in range(AGAIN // 2)]
        assert chosen.count(better) >= AGAIN // 2 - visit_copies._TRIALS


@pytest.fixture
def table(tmp_path: Path) -> Any:
    """Key 1000 has 200 rows."""
    keys = np.sort(np.r_[np.arange(ROWS), np.full(199, 1000)])
    data = pa.table({"k": keys, "v": [f"{k}:{i}" for i, k in enumerate(keys)]})
    return ss.MasterTable.build(data, tmp_path / "t", key="k", unique=False, page_bytes=1024)


class Reads:
    """Page access with visits of given codes."""

    def __init__(self, table: Any, **changes: Any) -> None:
        self.context = context(binding(table, STREAM))
        shape = TableShape.of(table, self.context.binding)
        plan: Any = plan_memory(ss.SweepJoin(memory="128MB"), shape, StreamShape())
        assert plan.copied_rows
        assert plan.reads_ahead
        self.plan, self.table = replace(plan, **changes), table
        self.reads = ReadAhead(self.context, table, self.plan)

    def visit(self, codes: Sequence[int]) -> Visit:
        self.codes = np.array(sorted(codes))
        pages, firsts = [], self.table.index.firsts
        for code in codes:  # a code that begins a page may begin in the page before it
            low, high = np.searchsorted(firsts, code), np.searchsorted(firsts, code, side="right")
            pages += range(max(0, low - 1), max(1, high))
        needed = np.unique(pages)
        lows = np.maximum(0, np.searchsorted(firsts, self.codes) - 1)
        places = np.searchsorted(needed, lows).astype(np.int32)
        return Visit(needed, places, np.arange(len(codes), dtype=np.int32), None)

    def load(self, visit: Visit) -> LoadedPages:
        return self.reads.load(visit, (), 0, self.codes)

    def join(self, visit: Visit) -> list[tuple[bool, int]]:
        """Load all of a visit; returns for each part whether it was copied, and its first tuple.
        Every tuple must meet all its rows, once."""
        parts: list[tuple[bool, int]] = []
        found: list[int] = []
        while not visit.ended:
            loaded = self.load(visit)
            if loaded.is_copied:  # up to the next tuple that has none
                tuples = self.codes[loaded.first_tuple : visit.copied]
            else:
                tuples = self.codes[loaded.first_tuple :]
            codes = np.empty(int(loaded.sizes.sum()), np.int64)
            copy_codes(loaded.codes, loaded.sizes, codes)
            for code in tuples.tolist():
                found += [code] * int((codes == code).sum())
            parts.append((loaded.is_copied, loaded.first_tuple))
        counts = np.where(self.codes == 1000, 200, self.codes < ROWS)
        assert sorted(found) == np.repeat(self.codes, counts).tolist()
        self.reads.visited(visit, 1.0)
        return parts


@pytest.fixture(params=[READ_ROWS, MAP_ROWS], ids=["read", "mapped"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """It is always chosen."""
    for name in ("choose", "best"):
        monkeypatch.setattr(WayChoice, name, lambda *_: request.param)
    monkeypatch.setattr(visit_copies, "MANY", 1 << 30)
    return int(request.param)


def check_all(table: Any) -> None:
    reader = table.reader(8)
    for first in range(0, table.num_pages, 8):
        reader.read(first, min(8, table.num_pages - first))


@pytest.mark.usefixtures("way")
def test_pages_that_were_not_checked_are_read(table: Any) -> None:
    reads = Reads(table)
    assert reads.join(reads.visit([5, 6, 500])) == [(False, 0)]
    assert reads.join(reads.visit([5, 6, 500])) == [(True, 0)]
    assert reads.join(reads.visit([5, 6, 2000])) == [(False, 0)], "one page is new"
    assert reads.join(reads.visit([5, 6, 2000])) == [(True, 0)]


@pytest.mark.usefixtures("way")
def test_a_few_new_pages_are_checked_before_rows_are_copied(table: Any) -> None:
    reads, known = Reads(table), range(0, 1000, 50)
    reads.join(reads.visit(known))
    visit = reads.visit([*known, 2000])
    checked = table.pages.segment.checked
    assert not checked[visit.pages].all()
    assert reads.join(visit) == [(True, 0)]
    assert checked[visit.pages].all()


@pytest.mark.usefixtures("way")
def test_a_new_page_that_is_damaged_is_never_copied_from(table: Any) -> None:
    reads, known = Reads(table), range(0, 1000, 50)
    reads.join(reads.visit(known))
    visit = reads.visit([*known, 2000])
    pages = table.pages.segment
    (path,) = (path for _, path in pages.parts)
    last = int(visit.pages[-1])
    with open(path, "r+b") as file:
        file.seek(int(pages.offsets[last] + pages.pages.lengths[last]) - 9)
        file.write(b"damaged!")
    for _ in range(2):
        with pytest.raises(MasterTableError, match=f"page {last} "):
            reads.load(visit)


def test_visits_are_planned_for_the_best_way_also_while_another_is_tried(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_all(table)
    reads = Reads(table)
    for best in (MAP_ROWS, READ, READ_ROWS):
        for tried in (READ, READ_ROWS, MAP_ROWS):
            monkeypatch.setattr(WayChoice, "choose", lambda *_, way=tried: way)
            monkeypatch.setattr(WayChoice, "best", lambda *_, way=best: way)
            reads.join(reads.visit([5]))
            plan = reads.plan
            planned = plan.visit_pages if best == READ else plan.copied_pages
            assert reads.reads.visit_size[0] == planned


@pytest.mark.usefixtures("way")
def test_pages_that_many_tuples_need_are_read(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visit_copies, "MANY", 8)
    check_all(table)
    reads = Reads(table)
    (pages,) = {len(reads.visit([7] * count).pages) for count in (1, 100)}
    few = visit_copies.MANY * pages
    assert reads.join(reads.visit([7] * few)) == [(True, 0)]
    assert reads.join(reads.visit([7] * (few + 1))) == [(False, 0)]


@pytest.mark.usefixtures("way")
def test_nothing_is_read_ahead_while_rows_are_copied(table: Any) -> None:
    check_all(table)
    reads = Reads(table)
    following = reads.visit([700])
    reads.join(reads.visit([5]))
    assert reads.plan.copied_pages != reads.plan.visit_pages
    assert reads.reads.visit_size == (reads.plan.copied_pages, NEVER, 0)
    reads.reads.request([following], 1)
    assert following.reader is None


def test_no_map_is_tried_again_where_none_can_be_made(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_all(table)
    tries: list[int] = []
    monkeypatch.setattr(ScatteredPages, "can_read", False)
    monkeypatch.setattr(ScatteredPages, "mapped", lambda _: tries.append(1))
    reads = Reads(table)
    for _ in range(5):
        assert reads.join(reads.visit([5, 6, 500])) == [(False, 0)]
        plan = reads.plan
        assert reads.reads.visit_size == (plan.visit_pages, plan.dense_pages, plan.gap_pages)
    assert len(tries) == 1
    following = reads.visit([700])
    reads.reads.request([following], 1)
    assert following.reader is not None
    reads.join(following)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("is_requested", [False, True])
def test_a_key_with_more_rows_than_there_is_room_for(table: Any, is_requested: bool) -> None:
    """The pages of the tuples from this key on are read, whether or not a read of all pages was
    planned before."""
    check_all(table)
    reads = Reads(table, copied_rows=50)
    codes = [*range(400, 520), 999, 1000, 1001, 2500]
    visit = reads.visit(codes)
    if is_requested:
        reads.reads.request([visit], 1)
        assert visit.read is not None
    parts = reads.join(visit)
    assert parts == [(True, 0), (True, 50), (True, 100), (False, 121)]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("room", "parts"), [(2000, 1), (30, 4)])
def test_every_page_is_counted_once(table: Any, room: int, parts: int) -> None:
    check_all(table)
    reads = Reads(table, copied_rows=room)
    visit = reads.visit(range(0, 600, 5))
    assert len(reads.join(visit)) == parts
    assert reads.context.stats.pages_read == len(visit.pages)
    assert reads.context.stats.bytes_read >= table.pages.segment.pages.lengths[visit.pages].sum()


@pytest.mark.parametrize("chosen", [READ, READ_ROWS, MAP_ROWS])
def test_the_way_is_timed_by_the_needed_pages_of_a_huge_page(
    table: Any, monkeypatch: pytest.MonkeyPatch, chosen: int
) -> None:
    check_all(table)
    asked: list[int] = []
    timed: list[tuple[int, int, float, int]] = []
    monkeypatch.setattr(WayChoice, "choose", lambda _, density: asked.append(density) or chosen)
    monkeypatch.setattr(WayChoice, "took", lambda _, *arguments: timed.append(arguments))
    reads = Reads(table)
    for codes, density in (([5], 0), ([5, 300], 1), (range(0, 3000, 20), 6)):
        visit = reads.visit(codes)
        reads.join(visit)
        assert asked.pop() == density
        assert timed.pop() == (density, chosen, 1.0, len(visit.pages))
