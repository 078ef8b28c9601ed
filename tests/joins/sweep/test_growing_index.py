"""How much of the window is given to an index that grows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from semistream.joins.sweep.growing_index import GrowingIndex
from semistream.joins.sweep.plan import SweepPlan
from semistream.joins.sweep.stretch_window import StretchWindowSize

CHUNK = 100  # bytes


class Window:
    """A window of ten chunks."""

    chunks = 10
    capacity = 640

    @property
    def nbytes(self) -> int:
        return self.chunks * CHUNK

    def chunks_in(self, nbytes: int) -> int:
        return -(-nbytes // CHUNK)

    def shrink(self, chunks: int, found: Any) -> None:
        self.chunks -= chunks
        self.capacity -= 64 * chunks
        self.found = found


def plan(table: int, growth: int = 0, widest: int = 8) -> SweepPlan:
    size = StretchWindowSize(capacity=640, heap=0, nbytes=1_000, chunk=64)
    return SweepPlan(
        budget=10_000, smallest=1, table=table, buffer_pages=1, output=1, output_rows=1,
        window=size, growth=growth, widest_row=widest,
    )  # fmt: skip


@pytest.fixture
def index() -> GrowingIndex:
    found = GrowingIndex(step_share=100)  # steps of 100 bytes
    found.plan = plan(5_000, growth=300)
    return found


@pytest.mark.parametrize(
    ("needed", "chunks"),
    [(4_000, 0), (5_000, 0), (5_001, 2), (5_100, 2), (5_101, 3)],
    ids=["smaller", "as large", "one byte more", "a chunk more", "two chunks more"],
)
def test_a_step_more_than_is_needed(index: GrowingIndex, needed: int, chunks: int) -> None:
    window: Any = Window()
    new = plan(needed + 300, growth=300)  # what is set apart for later is not needed yet
    assert index.outgrown(index.plan, new) is (chunks > 0)
    index.prepare(window, new)
    assert index.chunks == chunks
    index.prepare(None, new)
    assert index.chunks == 0


def test_as_much_is_spared_as_the_next_change_may_take(index: GrowingIndex) -> None:
    window: Any = Window()
    window.chunks = 80
    for needed, spare in ((4_900, 3), (5_000, 2), (5_000, 1), (4_000, 1), (9_000, 10)):
        index.prepare(window, plan(needed, growth=0))
        assert window.most_spare == spare, "a step and what it grew by; but an eighth at most"


def test_the_window_gives_half_at_most(index: GrowingIndex) -> None:
    window: Any = Window()
    assert index.fits(window, plan(5_400))
    assert not index.fits(window, plan(5_401))
    assert not index.fits(window, plan(5_400, widest=9)), "gathering has no room for wider rows"


def test_the_plan_follows(index: GrowingIndex) -> None:
    window: Any = Window()
    before, visits = index.plan, ["a visit"]
    now = index.shrink(window, plan(5_050), visits)  # type: ignore[arg-type]
    assert window.found is visits
    assert (window.chunks, window.capacity) == (8, 512)
    assert now is index.plan
    assert before.window is not None
    size = replace(before.window, capacity=512, nbytes=800)
    assert now == replace(before, table=5_150, growth=0, window=size)
    assert not index.outgrown(now, plan(5_150)), "room for the changes that come next"


def test_room_for_merging_lists_is_a_part_of_the_budget_at_most(index: GrowingIndex) -> None:
    window: Any = Window()
    window.chunks = 80
    index.prepare(window, plan(4_700), merging=150)
    assert window.most_spare == 3, "and a step"
    index.prepare(window, plan(4_700), merging=9_000)
    assert window.most_spare == 4, "a step and a 40th"


def test_room_is_what_the_table_does_not_use(index: GrowingIndex) -> None:
    index.attached(index.plan)
    assert index.room == 300, "set apart for an index that grows"
    index.attached(plan(4_900))
    assert index.room == 100
    index.attached(plan(5_400, growth=300))
    assert index.room == 0, "until the window has given way"
    index.shrink(Window(), plan(5_400, growth=300), [])  # type: ignore[arg-type]
    assert index.room == 100
