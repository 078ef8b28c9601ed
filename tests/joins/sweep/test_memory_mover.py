"""Memory moves to where it gains more, in large steps, and comes to rest."""

from __future__ import annotations

import pytest

from semistream.joins.sweep.memory_mover import IDLE_WINDOW, LEAST, MOST, START, MemoryMover


def term(mover: MemoryMover, sweeps: int = 100) -> None:
    """Half of a million tuples were hits; the others waited for ten microseconds each."""
    mover.term.sweeps, mover.term.tuples, mover.term.hits = sweeps, 1_000_000, 500_000
    mover.note_visit(5.0)


def test_nothing_moves_before_enough_sweeps() -> None:
    mover = MemoryMover()
    term(mover, sweeps=2)
    assert not mover.decide(1000.0, 100, 1_000_000)
    assert mover.share == START


@pytest.mark.parametrize(("coldest", "share"), [(1e6, MOST), (0.0, LEAST)])
def test_the_share_moves_to_its_bounds_and_no_further(coldest: float, share: float) -> None:
    mover = MemoryMover()
    moved = []
    for _ in range(20):
        term(mover)
        moved.append(mover.decide(coldest, 100, 1_000_000))
        assert LEAST <= mover.share <= MOST
    assert mover.share == share
    assert moved[0]
    assert not moved[-1]


def test_equal_gains_move_nothing_and_are_looked_at_less_often() -> None:
    mover = MemoryMover()
    for sweeps, decided in ((3, True), (3, False), (6, True)):
        term(mover, sweeps)
        gain = 0.5 * 100 * (1_000_000 / sweeps) / 1_000_000  # as much as the window's
        before = mover.term
        assert not mover.decide(gain, 100, 1_000_000)
        assert (mover.term is not before) is decided
        if not decided:
            mover.term.seconds = 0.0
    assert mover.share == START


def test_it_does_not_swing_back() -> None:
    mover = MemoryMover()
    term(mover)
    assert mover.decide(1e6, 100, 1_000_000)
    up = mover.share
    term(mover)
    assert not mover.decide(0.0, 100, 1_000_000)
    assert mover.share == up > START


@pytest.mark.parametrize(("waiting", "moves"), [(10, True), (25, True), (26, False)])
def test_a_window_that_is_hardly_used_gives_its_memory_away_once(waiting: int, moves: bool) -> None:
    mover = MemoryMover()
    assert mover.decide_idle(waiting, 100) is moves
    assert mover.idle is moves
    assert (mover.share == IDLE_WINDOW) is moves
    assert not mover.decide_idle(waiting, 100)
