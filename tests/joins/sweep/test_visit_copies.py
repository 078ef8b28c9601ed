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
from semistream.joins.sweep.visit import MAP, READ, Visit
from semistream.joins.sweep.visit_copies import WayChoice
from semistream.kernels.page_columns import copy_codes
from semistream.master.mapped_pages import MappedPages

AGAIN = visit_copies._TRY_AGAIN
NAME = {READ: "read", MAP: "map"}
ROWS = 3000


class Machine:
    """Visits of 100 pages, which take so many seconds by way; the first one after another way
    takes ``switching`` times as long."""

    def __init__(self, switching: float = 1.0, **seconds: float) -> None:
        self.choice, self.seconds, self.switching = WayChoice(), seconds, switching
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


@pytest.mark.parametrize(("better", "other"), [("map", "read"), ("read", "map")])
def test_the_cheaper_way_is_taken_and_the_other_one_is_tried_again(better: str, other: str) -> None:
    machine = Machine(**{better: 1.0, other: 1.5})
    first = machine.visits(6)
    assert {way: first.count(way) >= 2 for way in ("map", "read")} == {"map": True, "read": True}
    ways = machine.visits(10 * AGAIN)
    assert 0 < ways.count(other) <= 10 * visit_copies._TRIALS
    for start in range(0, 10 * AGAIN, AGAIN):
        assert other in ways[start : start + AGAIN]


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
    machine.visits(5 * AGAIN)
    assert machine.visits(AGAIN).count(before) >= AGAIN - visit_copies._TRIALS


def test_every_density_has_its_choice() -> None:
    machines = [Machine(map=1.0, read=2.0), Machine(map=2.0, read=1.0)]
    machines[1].choice = machines[0].choice
    for density, machine in enumerate(machines):
        for _ in range(6):
            machine.visit(density=density)
    for density, better in enumerate((MAP, READ)):
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


@pytest.fixture
def always_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WayChoice, "choose", lambda *_: MAP)


def check_all(table: Any) -> None:
    reader = table.reader(8)
    for first in range(0, table.num_pages, 8):
        reader.read(first, min(8, table.num_pages - first))


@pytest.mark.usefixtures("always_map")
def test_pages_that_were_not_checked_are_read(table: Any) -> None:
    reads = Reads(table)
    assert reads.join(reads.visit([5, 6, 500])) == [(False, 0)]
    assert reads.join(reads.visit([5, 6, 500])) == [(True, 0)]
    assert reads.join(reads.visit([5, 6, 2000])) == [(False, 0)], "one page is new"
    assert reads.join(reads.visit([5, 6, 2000])) == [(True, 0)]


@pytest.mark.usefixtures("always_map")
def test_a_few_new_pages_are_checked_before_rows_are_copied(table: Any) -> None:
    reads, known = Reads(table), range(0, 1000, 50)
    reads.join(reads.visit(known))
    visit = reads.visit([*known, 2000])
    checked = table.pages.segment.checked
    assert not checked[visit.pages].all()
    assert reads.join(visit) == [(True, 0)]
    assert checked[visit.pages].all()


@pytest.mark.usefixtures("always_map")
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


@pytest.mark.usefixtures("always_map")
def test_nothing_is_read_ahead_while_rows_are_copied(table: Any) -> None:
    check_all(table)
    reads = Reads(table)
    following = reads.visit([700])
    reads.join(reads.visit([5]))
    assert reads.reads.visit_size[0] == reads.plan.copied_pages != reads.plan.visit_pages
    reads.reads.request([following], 1)
    assert following.reader is None


@pytest.mark.usefixtures("always_map")
def test_pages_are_read_where_no_map_can_be_made(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_all(table)
    reads = Reads(table)
    assert reads.join(reads.visit([5, 6, 500])) == [(True, 0)]
    monkeypatch.setattr(MappedPages, "places", lambda _: None)
    for _ in range(2):
        assert reads.join(reads.visit([5, 6, 500])) == [(False, 0)]
        assert reads.reads.visit_size == (reads.plan.visit_pages, reads.plan.dense_pages)
        following = reads.visit([700])
        reads.reads.request([following], 1)
        assert following.reader is not None
        reads.join(following)


@pytest.mark.usefixtures("always_map")
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


@pytest.mark.usefixtures("always_map")
@pytest.mark.parametrize(("room", "parts"), [(2000, 1), (30, 4)])
def test_every_page_is_counted_once(table: Any, room: int, parts: int) -> None:
    check_all(table)
    reads = Reads(table, copied_rows=room)
    visit = reads.visit(range(0, 600, 5))
    assert len(reads.join(visit)) == parts
    assert reads.context.stats.pages_read == len(visit.pages)
    assert reads.context.stats.bytes_read >= table.pages.segment.pages.lengths[visit.pages].sum()


def test_the_way_is_timed_by_the_needed_pages_of_a_huge_page(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_all(table)
    asked: list[int] = []
    timed: list[tuple[int, int, float, int]] = []
    monkeypatch.setattr(WayChoice, "choose", lambda _, density: asked.append(density) or MAP)
    monkeypatch.setattr(WayChoice, "took", lambda _, *arguments: timed.append(arguments))
    reads = Reads(table)
    for codes, density in (([5], 0), ([5, 300], 1), (range(0, 3000, 20), 5)):
        visit = reads.visit(codes)
        reads.join(visit)
        assert asked.pop() == density
        assert timed.pop() == (density, MAP, 1.0, len(visit.pages))
