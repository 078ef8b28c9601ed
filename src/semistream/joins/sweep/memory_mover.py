"""Adapts the front stage's share of SweepJoin's budget to what a run measures.

One more byte for the front stage saves the waits of the tuples that hit its coldest rows. One more
byte for the window amortises every page visit over more tuples. Both gains are measured, in
seconds per tuple and byte: hits of the coldest rows by the clock hand, the cost of waiting by the
clock. Memory moves to where it gains more, in large steps and at growing intervals, because the
window must be empty for a move.
"""

from __future__ import annotations

from dataclasses import dataclass

from semistream.engine.front.counting_cache import CountingCache
from semistream.joins.sweep.stretch_window import StretchWindow
from semistream.stats import Stats

START, LEAST, MOST = 0.3, 0.02, 0.5
IDLE_WINDOW = 0.6  # the front stage's share if the window is mostly idle
_IDLE_PART = 4  # the window is mostly idle if at most slots // 4 were ever occupied
_SERVE_SECONDS = 0.1e-6  # per tuple of a visit; a larger window would not save it
_LEAST_RATIO = 2.0  # of the gains: a smaller difference is not worth the sweep that a move costs
_FIRST_INTERVAL = 3.0  # sweeps between the first two decisions


@dataclass
class Term:
    """Counters since the last decision."""

    tuples: int = 0  # served, including hits
    hits: int = 0
    seconds: float = 0.0  # in visits
    sweeps: int = 0


class MemoryMover:
    """Decides the front stage's share."""

    def __init__(self) -> None:
        self.share = START
        self.term = Term()
        self.moves = False  # re-plan memory as soon as no tuple waits,
        self.drains = False  # and admit no tuple until then
        self._interval = _FIRST_INTERVAL
        self._direction = 0
        self._filled = False  # the window was full during this sweep
        self._most_waiting = 0
        self._served_before = self._hits_before = 0  # when the last decision was made

    # -- measurements ----------------------------------------------------------------------

    def note_window(self, waiting: int, is_full: bool) -> None:
        """Called after tuples were admitted."""
        self._filled |= is_full
        self._most_waiting = max(self._most_waiting, waiting)

    def note_visit(self, seconds: float) -> None:
        self.term.seconds += seconds

    def sweep_done(self, front: CountingCache, window: StretchWindow, stats: Stats) -> None:
        """Called at the end of a sweep: decide whether memory should move."""
        filled, self._filled = self._filled, False
        if self.moves:
            return
        term, served = self.term, stats.matched + stats.unmatched
        if filled:
            term.sweeps += 1
            term.tuples = served - self._served_before
            term.hits = stats.front_stage_hits - self._hits_before
            row_bytes = front.nbytes / max(1, front.capacity)
            self.drains = self.moves = self.decide(front.coldest, row_bytes, window.nbytes)
        else:
            is_full = 10 * front.count > 9 * front.capacity
            self.moves = is_full and self.decide_idle(self._most_waiting, window.capacity)
            self.drains = False
            self._most_waiting = window.count
        if self.term is not term:
            self._served_before, self._hits_before = served, stats.front_stage_hits

    def moved(self) -> None:
        """Called after memory was re-planned."""
        self.moves = self.drains = False

    # -- decisions -------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether the window is mostly idle, because every micro-batch is drained."""
        return self.share == IDLE_WINDOW

    def decide_idle(self, most_waiting: int, capacity: int) -> bool:
        """Decide after a sweep that never filled the window; returns whether the share changed.

        This happens if every micro-batch is drained before the next one arrives.
        """
        if self.share >= IDLE_WINDOW or _IDLE_PART * most_waiting > capacity:
            return False
        self.term = Term()
        self.share = IDLE_WINDOW
        return True

    def decide(self, coldest: float, row_bytes: float, window_bytes: int) -> bool:
        """Decide after a sweep; returns whether the share changed.

        ``coldest`` is the average number of hits per sweep of the least used rows.
        """
        term = self.term
        missed = term.tuples - term.hits
        if term.sweeps < self._interval or not missed:
            return False
        self.term = Term()
        waiting = term.seconds / missed
        front = coldest / (term.tuples / term.sweeps) / row_bytes * waiting
        window = missed / term.tuples * max(0.0, waiting - _SERVE_SECONDS) / window_bytes
        if front * _LEAST_RATIO < window:
            direction, ratio = -1, window / max(front, 1e-30)
        elif window * _LEAST_RATIO < front:
            direction, ratio = 1, front / max(window, 1e-30)
        else:
            self._interval *= 2
            return False
        if direction == -self._direction:  # the last step overshot slightly: close enough
            self._direction = 0
            self._interval *= 4
            return False
        step = 2.0 if ratio > 3 else 1.4
        share = self.share * step if direction > 0 else self.share / step
        most = max(MOST, self.share)  # an idle window has left more to the front stage
        share = min(max(share, LEAST), most)
        self._interval *= 1.3
        self._direction = direction
        changed = abs(share - self.share) > 0.005
        self.share = share
        return changed
