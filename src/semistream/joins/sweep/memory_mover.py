"""Which part of SweepJoin's budget its front stage should have, from what a run has seen.

A byte more for the front stage saves the waits of its coldest rows' hits. A byte more for the
window spreads every page visit over more tuples. Both gains are in seconds per tuple and per
byte, and are measured: the coldest rows' hits by the hand that passes them, the cost of waiting
by the clock. Memory moves to where it gains more, in large steps and at growing intervals,
because the window must be empty for a move.
"""

from __future__ import annotations

from dataclasses import dataclass

from semistream.engine.front.counting_cache import CountingCache
from semistream.joins.sweep.stretch_window import StretchWindow
from semistream.stats import Stats

START, LEAST, MOST = 0.3, 0.02, 0.5
IDLE_WINDOW = 0.6  # the front stage's share if the window is hardly used
_HARDLY = 4  # a window is hardly used if at most slots // 4 were ever taken
_SERVING = 0.1e-6  # seconds per tuple of a visit that no larger window would save
_CLEAR = 2.0  # gains that differ by less are as good as equal: a move costs a sweep
_SWEEPS = 3.0  # between the first two decisions


@dataclass
class Term:
    """What happened since the last decision."""

    tuples: int = 0  # that were served, hits included
    hits: int = 0
    seconds: float = 0.0  # in visits
    sweeps: int = 0


class MemoryMover:
    """Decides on the front stage's share."""

    def __init__(self) -> None:
        self.share = START
        self.term = Term()
        self.moves = False  # memory is to move as soon as nothing waits,
        self.drains = False  # and until then no tuple is taken in
        self._interval = _SWEEPS
        self._direction = 0
        self._filled = False  # the window was full during this sweep
        self._most_waiting = 0
        self._served_before = self._hits_before = 0  # when the last decision was made

    # -- what a run observes ---------------------------------------------------------------

    def note_window(self, waiting: int, is_full: bool) -> None:
        """Tuples were taken in."""
        self._filled |= is_full
        self._most_waiting = max(self._most_waiting, waiting)

    def note_visit(self, seconds: float) -> None:
        self.term.seconds += seconds

    def sweep_done(self, front: CountingCache, window: StretchWindow, stats: Stats) -> None:
        """Decide, when a sweep has gone round, whether memory should move."""
        filled, self._filled = self._filled, False
        if self.moves:
            return
        if not filled:
            is_full = 10 * front.count > 9 * front.capacity
            self.moves = is_full and self.decide_idle(self._most_waiting, window.capacity)
            self.drains = False
            self._most_waiting = window.count
            return
        term = self.term
        term.sweeps += 1
        served = stats.matched + stats.unmatched
        term.tuples = served - self._served_before
        term.hits = stats.front_stage_hits - self._hits_before
        row_bytes = front.nbytes / max(1, front.capacity)
        self.drains = self.moves = self.decide(front.coldest, row_bytes, window.nbytes)
        if self.term is not term:
            self._served_before, self._hits_before = served, stats.front_stage_hits

    def moved(self) -> None:
        """The budget has been divided anew."""
        self.moves = self.drains = False

    # -- decisions -------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether the window is hardly used, because every micro-batch is drained."""
        return self.share == IDLE_WINDOW

    def decide_idle(self, most_waiting: int, capacity: int) -> bool:
        """At the end of a sweep that never filled the window: whether the share has changed.

        So it is where every micro-batch is drained before the next one comes.
        """
        if self.share >= IDLE_WINDOW or _HARDLY * most_waiting > capacity:
            return False
        self.term = Term()
        self.share = IDLE_WINDOW
        return True

    def decide(self, coldest: float, row_bytes: float, window_bytes: int) -> bool:
        """At the end of a sweep: whether the share has changed.

        ``coldest`` is the number of hits that each of the least used rows has per sweep.
        """
        term = self.term
        missed = term.tuples - term.hits
        if term.sweeps < self._interval or not missed:
            return False
        self.term = Term()
        waiting = term.seconds / missed
        front = coldest / (term.tuples / term.sweeps) / row_bytes * waiting
        window = missed / term.tuples * max(0.0, waiting - _SERVING) / window_bytes
        if front * _CLEAR < window:
            direction, ratio = -1, window / max(front, 1e-30)
        elif window * _CLEAR < front:
            direction, ratio = 1, front / max(window, 1e-30)
        else:
            self._interval *= 2
            return False
        if direction == -self._direction:  # it went a little too far: near enough
            self._direction = 0
            self._interval *= 4
            return False
        step = 2.0 if ratio > 3 else 1.4
        share = self.share * step if direction > 0 else self.share / step
        share = min(max(share, LEAST), MOST)
        self._interval *= 1.3
        self._direction = direction
        changed = abs(share - self.share) > 0.005
        self.share = share
        return changed
