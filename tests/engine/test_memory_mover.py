"""Memory moves to where it gains more, in large steps, and converges."""

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


def term(mover: MemoryMover, sweeps: int = 100) -> None:
    """Half of a million tuples were hits; the others waited for ten microseconds each."""
    mover.term.rounds, mover.term.tuples, mover.term.hits = sweeps, 1_000_000, 500_000
    mover.note_seconds(5.0)


def test_nothing_moves_before_enough_sweeps() -> None:
    mover = MemoryMover(LIMITS)
    term(mover, sweeps=2)
    assert not mover.decide(1000.0, 100, 1_000_000)
    assert mover.share == START


@pytest.mark.parametrize(("coldest", "share"), [(1e6, MOST), (0.0, LEAST)])
def test_the_share_moves_to_its_bounds_and_no_further(coldest: float, share: float) -> None:
    mover = MemoryMover(LIMITS)
    moved = []
    for _ in range(20):
        term(mover)
        moved.append(mover.decide(coldest, 100, 1_000_000))
        assert LEAST <= mover.share <= MOST
    assert mover.share == share
    assert moved[0]
    assert not moved[-1]


def test_equal_gains_move_nothing_and_are_checked_less_often() -> None:
    mover = MemoryMover(LIMITS)
    for sweeps, decided in ((3, True), (3, False), (6, True)):
        term(mover, sweeps)
        gain = 0.5 * 100 * (1_000_000 / sweeps) / 1_000_000  # as much as the window's
        before = mover.term
        assert not mover.decide(gain, 100, 1_000_000)
        assert (mover.term is not before) is decided
        if not decided:
            mover.term.seconds = 0.0
    assert mover.share == START


def test_the_share_does_not_oscillate() -> None:
    mover = MemoryMover(LIMITS)
    term(mover)
    assert mover.decide(1e6, 100, 1_000_000)
    up = mover.share
    term(mover)
    assert not mover.decide(0.0, 100, 1_000_000)
    assert mover.share == up > START


@pytest.mark.parametrize(("seconds", "is_taken_back"), [(5.0, False), (5.2, False), (5.5, True)])
def test_a_move_that_costs_more_is_taken_back(seconds: float, is_taken_back: bool) -> None:
    mover = MemoryMover(LIMITS)
    term(mover)
    assert mover.decide(1e6, 100, 1_000_000)
    up = mover.share
    term(mover)
    mover.term.seconds = seconds
    mover.decide(1e6, 100, 1_000_000)
    assert up > START
    assert (mover.share == START) is is_taken_back
    term(mover)  # and it stays there for some time
    if is_taken_back:
        mover.term.rounds = 10
        assert not mover.decide(1e6, 100, 1_000_000)


@pytest.mark.parametrize(("waiting", "moves"), [(5, True), (12, True), (13, False)])
def test_a_nearly_empty_window_releases_memory_once(waiting: int, moves: bool) -> None:
    mover = MemoryMover(LIMITS)
    assert mover.decide_idle(waiting, 100) is moves
    assert mover.idle is moves
    assert (mover.share == IDLE_WINDOW) is moves
    assert not mover.decide_idle(waiting, 100)


# -- through a run's eyes: sweeps, the window, the counters -------------------------------------


@dataclass
class World:
    """Sweeps of 1,000 tuples, half of them hits; each of the others waited for a millisecond.

    The window has 100 slots and a million bytes; a row of the front stage has 100 bytes.
    """

    mover: MemoryMover = field(default_factory=lambda: MemoryMover(LIMITS))
    stats: Stats = field(default_factory=Stats)
    cached: int = 100  # rows in the front stage, of 100
    refreshed: list[int] = field(default_factory=list)

    def sweep(self, gain: float = 1.0, waiting: int = 100, left: int = 0) -> None:
        """The front stage would gain ``gain`` times as much as the window."""
        self.mover.note_window(waiting, waiting == 100)
        self.mover.note_seconds(0.5)
        self.stats.matched += 900
        self.stats.unmatched += 100
        self.stats.front_stage_hits += 500
        row, window = 100, 1_000_000
        coldest = gain * 0.5 / window * 1_000 * row
        front: Any = SimpleNamespace(
            count=self.cached,
            capacity=100,
            nbytes=100 * row,
            coldest=coldest,
            refresh=lambda: self.refreshed.append(len(self.refreshed)),
        )
        waits: Any = SimpleNamespace(capacity=100, count=left, nbytes=window)
        self.mover.round_done(front, waits, self.stats)

    def sweeps(self, gains: list[float]) -> list[float]:
        """Memory moves as soon as it is to; returns the share after every sweep."""
        shares = []
        for gain in gains:
            self.sweep(gain)
            self.mover.moved()
            shares.append(self.mover.share)
        return shares


@pytest.mark.parametrize(("gain", "grows"), [(3.0, 1), (1.8, 0), (1.0, 0), (0.55, 0), (0.3, -1)])
def test_memory_moves_only_for_a_clear_gain(gain: float, grows: int) -> None:
    world = World()
    for _ in range(2):
        world.sweep(gain)
        assert not world.mover.moves
    world.sweep(gain)
    mover = world.mover
    assert mover.moves is mover.drains is (grows != 0)
    assert (mover.share > START, mover.share < START) == (grows > 0, grows < 0)


def test_until_memory_has_moved_nothing_else_is_decided() -> None:
    world = World()
    for _ in range(20):
        world.sweep(10.0)
    mover = world.mover
    assert mover.moves
    assert mover.drains
    assert mover.share == MOST
    for _ in range(20):
        world.sweep(0.1)
        world.sweep(1.0, waiting=0)
    assert (mover.share, mover.moves, mover.drains) == (MOST, True, True)
    mover.moved()
    assert not mover.moves
    assert not mover.drains


def test_a_term_counts_what_came_since_the_last_decision() -> None:
    world = World()
    world.sweep(10.0)
    world.sweep(10.0)
    term = world.mover.term
    assert (term.rounds, term.tuples, term.hits, term.seconds) == (2, 2_000, 1_000, 1.0)
    world.sweep(10.0)
    world.mover.moved()
    world.sweep(10.0)
    term = world.mover.term
    assert (term.rounds, term.tuples, term.hits, term.seconds) == (1, 1_000, 500, 0.5)


def test_a_sweep_counts_if_the_window_was_full_at_any_moment_of_it() -> None:
    world = World()
    world.mover.note_window(100, True)
    world.sweep(waiting=10)
    assert world.mover.term.rounds == 1
    world.sweep(waiting=90)
    assert world.mover.term.rounds == 1


@pytest.mark.parametrize(
    ("best", "rest"), [(0.05, 0.05), (0.12, 0.12), (0.4, 0.4), (0.001, LEAST), (5.0, MOST)]
)
def test_the_share_comes_to_rest_near_the_best_one(best: float, rest: float) -> None:
    """A share that is too small gains as the square of what it lacks."""
    world, shares, moves = World(), [], 0
    for _ in range(1_000):
        world.sweep((best / world.mover.share) ** 2)
        moves += world.mover.moves
        world.mover.moved()
        shares.append(world.mover.share)
    assert rest / 1.5 <= shares[-1] <= rest * 1.5
    assert min(shares) >= LEAST
    assert max(shares) <= MOST
    assert moves <= 5
    assert len({*shares[100:]}) == 1


def test_gains_that_swing_do_not_move_memory_back_and_forth() -> None:
    shares = World().sweeps([10.0 if turn // 30 % 2 else 0.1 for turn in range(1_000)])
    moved = [turn for turn, (a, b) in enumerate(pairwise(shares)) if a != b]
    assert all(late - early > 3 for early, late in pairwise(moved))
    assert len([turn for turn in moved if turn >= 30]) <= 1, "after the first swing"


@pytest.mark.parametrize(
    ("cached", "waiting", "moves"),
    [(100, 12, True), (100, 13, False), (91, 5, True), (90, 5, False)],
    ids=["hardly used", "used", "front stage almost full", "front stage has room"],
)
def test_a_window_that_was_never_full(cached: int, waiting: int, moves: bool) -> None:
    """The front stage must be full to need its memory; and nothing is held up for the move."""
    world = World(cached=cached)
    world.sweep(waiting=waiting)
    mover = world.mover
    assert (mover.moves, mover.drains, mover.idle) == (moves, False, moves)
    assert mover.share == (IDLE_WINDOW if moves else START)


def test_only_the_last_sweep_says_how_the_window_is_used() -> None:
    world = World()
    world.sweep(waiting=90, left=30)
    world.sweep(waiting=10, left=5)
    assert not world.mover.moves, "30 were left from the sweep before"
    world.sweep(waiting=10)
    assert world.mover.moves


def test_full_windows_that_come_later_are_counted_from_then_on() -> None:
    world = World()
    world.sweep(waiting=5)
    assert world.mover.idle
    world.mover.moved()
    world.sweep()
    term = world.mover.term
    assert (term.rounds, term.tuples, term.hits, term.seconds) == (1, 1_000, 500, 0.5)


@pytest.mark.parametrize(("gain", "share"), [(10.0, IDLE_WINDOW), (1.0, IDLE_WINDOW), (0.1, 0.425)])
def test_a_window_that_fills_again_takes_memory_back_if_it_gains(gain: float, share: float) -> None:
    world = World()
    world.sweep(waiting=5)
    world.mover.moved()
    for _ in range(4):
        world.sweep(gain)
    assert world.mover.share == share
    assert world.mover.moves is (share != IDLE_WINDOW)


# -- drift, other tables, other starts ----------------------------------------------------------


def settled() -> World:
    """A world in which decisions have become rare."""
    world = World()
    for _ in range(60):
        world.sweep()
    return world


def test_after_the_share_of_hits_has_changed_decisions_come_soon_again() -> None:
    calm, shaken = settled(), settled()
    shaken.stats.front_stage_hits -= 300  # one round with a fifth of the hits instead of half
    for _ in range(4):
        for world in (calm, shaken):
            world.sweep(gain=10.0)
    assert not calm.mover.moves
    assert shaken.mover.moves
    assert (len(calm.refreshed), len(shaken.refreshed)) == (0, 1)


@pytest.mark.parametrize(("rows", "soon"), [(1_000, False), (1_200, False), (2_000, True)])
def test_a_table_that_has_doubled_is_decided_for_again(rows: int, soon: bool) -> None:
    world = settled()
    world.mover.table_changed_from(1_000, rows)
    for _ in range(3):
        world.sweep(gain=10.0)
    assert world.mover.moves is soon


def test_a_share_into_which_no_row_fits_is_taken_back() -> None:
    world = World()
    for _ in range(3):
        world.sweep(gain=0.01)
    mover = world.mover
    assert mover.share < START
    mover.too_small()
    mover.moved()
    assert mover.share == START
    for _ in range(50):
        world.sweep(gain=0.01)
        mover.moved()
    assert mover.share == START


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
