"""Memory moves to where it saves most, in large steps, and comes to rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from semistream.engine.memory_mover import MemoryMover, starting_at
from semistream.joins.sweep.sweepjoin import LIMITS
from semistream.stats import Stats

START, LEAST, MOST, IDLE_WINDOW = LIMITS.start, LIMITS.least, LIMITS.most, LIMITS.idle
BUDGET = 10_000_000
FLAT = 0.0  # elasticity of hits that do not depend on the size of the front stage
UNIFORM = 1.0


@dataclass
class World:
    """A run with a budget of 10 MB: a row of the front stage has 100 bytes, a tuple of the window
    20. A tenth of the budget is for neither.

    ``hits`` is the share of hits with the front stage that it starts with, and grows with the
    ``elasticity``-th power of its size. Every round costs ``pages`` seconds, beside what every
    tuple costs.
    """

    hits: float = 0.5
    elasticity: float = FLAT
    pages: float = 0.1
    mover: MemoryMover = field(default_factory=lambda: MemoryMover(LIMITS))
    stats: Stats = field(default_factory=Stats)
    is_full: bool = True  # the front stage
    slower: float = 1.0
    refreshed: int = 0

    def hits_at(self, share: float) -> float:
        return float(min(0.95, self.hits * (share / START) ** self.elasticity))

    def window_at(self, share: float) -> int:
        return int((0.9 - share) * BUDGET) // 20

    def cost(self, share: float) -> float:
        """Seconds per tuple."""
        waiting = self.pages / self.window_at(share) + LIMITS.serve_seconds
        return 0.1e-6 + (1 - self.hits_at(share)) * waiting

    def best(self) -> float:
        return min((LEAST * 1.05**i for i in range(66)), key=self.cost)

    def round(self, waiting: float = 1.0, left: float = 0.0) -> None:
        """``waiting`` and ``left``: of the window's slots, at most and at the end."""
        mover, share = self.mover, self.mover.share
        window, hits = self.window_at(share), self.hits_at(share)
        tuples = window / (1 - hits)
        mover.note_window(int(waiting * window), waiting == 1.0)
        mover.note_seconds(self.slower * (self.cost(share) - 0.1e-6) * tuples)
        mover.note_admission(self.slower * 0.1e-6 * tuples)
        self.stats.matched += round(tuples)
        self.stats.front_stage_hits += round(tuples * hits)
        rows = int(share * BUDGET) // 100
        front: Any = SimpleNamespace(
            count=rows if self.is_full else rows // 2,
            capacity=rows,
            nbytes=100 * rows,
            coldest=self.elasticity * hits * tuples / rows,
            refresh=self.refresh,
        )
        waits: Any = SimpleNamespace(capacity=window, count=int(left * window), nbytes=20 * window)
        mover.round_done(front, waits, self.stats)

    def refresh(self) -> None:
        self.refreshed += 1

    def rounds(self, count: int) -> list[float]:
        """Memory moves as soon as it is to; returns the share after every round."""
        shares = []
        for _ in range(count):
            self.round()
            if self.mover.moves:
                self.mover.moved()
            shares.append(self.mover.share)
        return shares


def useless(**options: Any) -> World:
    """A front stage that the stream does not need."""
    return World(hits=0.0, **options)


def test_nothing_moves_before_the_window_was_filled_and_enough_rounds() -> None:
    world = useless()
    for _ in range(3):
        world.round()
        assert not world.mover.moves
    world.round()
    assert world.mover.moves
    assert world.mover.drains
    assert world.mover.share < START


@pytest.mark.parametrize("pages", [0.01, 0.1, 1.0])
@pytest.mark.parametrize(
    ("hits", "elasticity"),
    [(0.0, FLAT), (0.02, UNIFORM), (0.1, 0.5), (0.4, 0.3), (0.7, 0.1), (0.4, 0.8), (0.58, UNIFORM)],
)
def test_the_share_comes_to_rest_where_tuples_cost_little(
    hits: float, elasticity: float, pages: float
) -> None:
    world = World(hits, elasticity, pages)
    shares = world.rounds(1_000)
    assert LEAST <= min(shares) <= max(shares) <= MOST
    assert world.cost(shares[-1]) <= 1.06 * world.cost(world.best())
    assert sum(a != b for a, b in pairwise([START, *shares])) <= 3
    assert len({*shares[100:]}) == 1


def test_a_small_gain_moves_nothing_and_is_looked_for_less_often() -> None:
    world = World(0.7, 0.1)
    assert 1.0 < world.cost(START) / world.cost(world.best()) < 1.05
    intervals = []
    for _ in range(100):
        world.round()
        assert not world.mover.moves
        intervals.append(world.mover._interval)
    assert world.mover.share == START
    assert sorted({*intervals}) == [3, 6, 12, 24, 48, 96]


@pytest.mark.parametrize(
    ("slower", "is_taken_back"), [(1.0, False), (1.2, False), (1.4, True), (2.0, True)]
)
def test_a_move_after_which_tuples_cost_more_is_taken_back(
    slower: float, is_taken_back: bool
) -> None:
    """It saves a fifth."""
    world = useless()
    shares = world.rounds(4)
    assert shares[-1] < START
    assert 1.15 < world.cost(START) / world.cost(shares[-1]) < 1.25
    world.slower = slower
    shares += world.rounds(8)
    assert (shares[-1] == START) is is_taken_back
    world.slower = 1.0
    if is_taken_back:  # and tried again later: the machine may have been slow
        shares = world.rounds(100)
        assert {*shares[:10]} == {START}
        assert shares[-1] < START


def test_one_slow_measurement_takes_no_move_back() -> None:
    world = useless()
    world.rounds(4)
    world.slower = 2.0
    slow = world.rounds(4)
    world.slower = 1.0
    assert START not in {*slow, *world.rounds(100)}


def test_a_move_that_is_always_worse_is_tried_ever_more_rarely() -> None:
    world = useless()
    moves = []
    for number in range(2_000):
        world.slower = 1.0 if world.mover.share == START else 2.0
        before = world.mover.share
        world.rounds(1)
        if world.mover.share < before:
            moves.append(number)
    gaps = [later - earlier for earlier, later in pairwise(moves)]
    assert len(gaps) >= 2
    assert all(later > 2.5 * earlier for earlier, later in pairwise(gaps))


def test_rounds_in_which_the_window_is_emptied_and_filled_are_not_compared() -> None:
    world = useless()
    world.rounds(3)
    world.round()
    assert world.mover.moves
    world.slower = 10.0
    world.round()  # it is being emptied,
    world.mover.moved()
    world.round()  # and filled
    world.slower = 1.0
    assert START not in world.rounds(20)


def test_nothing_is_decided_while_hits_still_rise() -> None:
    world = World(0.2, 0.3)
    for _ in range(20):
        world.hits += 0.012
        world.round()
        assert not world.mover.moves
    before = world.mover.term
    world.round()
    assert world.mover.term is not before


def test_until_memory_has_moved_nothing_else_is_decided() -> None:
    world = useless()
    for _ in range(20):
        world.round()
    mover, share = world.mover, world.mover.share
    assert mover.moves
    world.hits, world.elasticity = 0.5, UNIFORM
    for _ in range(20):
        world.round()
        world.round(waiting=0.0)
    assert (mover.share, mover.moves, mover.drains) == (share, True, True)
    mover.moved()
    assert not mover.moves
    assert not mover.drains


def test_a_term_counts_what_came_since_the_window_was_full_or_the_last_decision() -> None:
    world = World(0.5, FLAT)
    tuples = 2 * world.window_at(START)
    for rounds in (0, 1, 2):
        world.round()
        term = world.mover.term
        assert (term.rounds, term.tuples, term.hits) == (
            rounds,
            rounds * tuples,
            rounds * tuples // 2,
        )
        assert term.admission == pytest.approx(rounds * tuples * 0.1e-6)


def test_a_round_counts_if_the_window_was_full_at_any_moment_of_it() -> None:
    world = World()
    world.round()
    world.mover.note_window(100, True)
    world.round(waiting=0.1)
    assert world.mover.term.rounds == 1
    world.round(waiting=0.9)
    assert world.mover.term.rounds == 1


def test_a_stream_that_swings_does_not_move_memory_back_and_forth() -> None:
    world, shares = World(0.06), list[float]()
    for turn in range(40):  # too little for a drift
        world.hits, world.elasticity = (0.14, UNIFORM) if turn % 2 else (0.06, FLAT)
        shares += world.rounds(30)
    assert sum(a != b for a, b in pairwise(shares)) <= 4


# -- windows that are hardly used ---------------------------------------------------------------


@pytest.mark.parametrize(("waiting", "moves"), [(5, True), (80, True), (81, False)])
def test_a_nearly_empty_window_releases_memory_once(waiting: int, moves: bool) -> None:
    mover = MemoryMover(LIMITS)
    assert mover.decide_idle(waiting, 100) is moves
    assert mover.idle is moves
    assert (mover.share == IDLE_WINDOW) is moves
    assert not mover.decide_idle(waiting, 100)


@pytest.mark.parametrize(
    ("is_full", "waiting", "moves"), [(True, 0.17, True), (True, 0.19, False), (False, 0.05, False)]
)
def test_a_window_that_was_never_full(is_full: bool, waiting: float, moves: bool) -> None:
    """The front stage must be full to need its memory; and nothing is held up for the move."""
    world = World(is_full=is_full)
    world.round(waiting)
    world.round(waiting)
    mover = world.mover
    assert (mover.moves, mover.drains, mover.idle) == (moves, False, moves)
    assert mover.share == (IDLE_WINDOW if moves else START)


def test_only_the_last_round_says_how_the_window_is_used() -> None:
    world = World()
    world.round()
    world.round(waiting=0.9, left=0.3)
    world.round(waiting=0.1, left=0.05)
    assert not world.mover.moves, "30 % were left from the round before"
    world.round(waiting=0.1)
    assert world.mover.moves


@pytest.mark.parametrize(("hits", "stays"), [(0.3, True), (0.0, False)])
def test_a_window_that_fills_again_takes_memory_back_if_it_gains(hits: float, stays: bool) -> None:
    world = World(hits, UNIFORM, pages=0.001)
    world.round(waiting=0.05)
    world.round(waiting=0.05)
    assert world.mover.idle
    world.mover.moved()
    shares = world.rounds(20)
    assert (shares[-1] == IDLE_WINDOW) is stays


# -- drift, other tables, other starts ----------------------------------------------------------


def settled() -> World:
    """A world in which decisions have become rare."""
    world = World(0.5, 0.15)
    assert {*world.rounds(60)} == {START}
    return world


def test_after_the_share_of_hits_has_changed_decisions_come_soon_again() -> None:
    calm, shaken = settled(), settled()
    for world, hits in ((calm, 0.45), (shaken, 0.1)):
        world.hits, world.elasticity = hits, FLAT
        world.rounds(5)
    assert calm.mover.share == START
    assert shaken.mover.share < START
    assert (calm.refreshed, shaken.refreshed) == (0, 1)


@pytest.mark.parametrize(("rows", "soon"), [(1_000, False), (1_200, False), (2_000, True)])
def test_a_table_that_has_doubled_is_decided_for_again(rows: int, soon: bool) -> None:
    world = settled()
    world.mover.table_changed_from(1_000, rows)
    world.hits, world.elasticity = 0.45, FLAT
    assert (world.rounds(4)[-1] < START) is soon


def test_a_share_into_which_no_row_fits_is_taken_back() -> None:
    world = useless()
    for _ in range(4):
        world.round()
    mover = world.mover
    assert mover.share < START
    mover.too_small()
    mover.moved()
    assert mover.share == START
    assert {*world.rounds(50)} == {START}


@pytest.mark.parametrize(
    ("front_stage", "start"), [(None, START), (0.1, 0.1), ("5MB", 0.5), (100_000, 0.01)]
)
def test_memory_moves_from_where_it_was_configured(front_stage: Any, start: float) -> None:
    limits = starting_at(LIMITS, front_stage, 10_000_000)
    assert limits.start == pytest.approx(start)
    assert limits.least <= limits.start <= limits.most


def test_nothing_is_decided_while_the_front_stage_is_being_filled() -> None:
    world = World()
    front: Any = SimpleNamespace(count=5, capacity=100, nbytes=10_000, coldest=None)
    waits: Any = SimpleNamespace(capacity=100, count=0, nbytes=1_000_000)
    for _ in range(10):
        world.mover.note_window(100, True)
        world.mover.round_done(front, waits, world.stats)
    assert world.mover.term.rounds == 0
    assert not world.mover.moves
