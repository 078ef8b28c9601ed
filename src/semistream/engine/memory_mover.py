"""Moves memory between front stage and window while a run works (004's dynamic tuning).

One more byte for the front stage saves the waits of the tuples that hit its coldest rows. One more
byte for the window amortises every page over more tuples. Both gains follow from what the run
observes, in seconds per tuple and byte: the share of hits, the hits of the coldest rows (the skew),
and the cost of waiting by the run's clock. Memory moves to where it gains more, in large steps and
at growing intervals, because the window must be empty for a move. A move after which tuples cost
more than before is taken back. When the share of hits has changed, the next decisions come soon
again: the hot keys, or the table, are others.

A policy reports what it does (``note_window``, ``note_seconds``, ``round_done``), admits no tuple
while ``drains``, plans with ``share`` when no tuple waits, and reports ``moved``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from semistream.engine.front.contract import FrontStage
from semistream.engine.plan import Part
from semistream.memory import parse_size
from semistream.stats import Stats

_IDLE_PART = 8  # the window is mostly idle if at most slots // 8 were ever occupied
_LEAST_RATIO = 2.0  # of the gains: a smaller difference is not worth the round that a move costs
_WORSE = 1.05  # seconds per tuple after a move, as a ratio: it is taken back
_SETTLES = 2  # rounds after a move until its share of hits is the usual one
_FIRST_INTERVAL = 3.0  # rounds between the first two decisions
_GROWN = 1.25  # rows, as a ratio: another table for the decisions
_DRIFT = 0.1  # change of the share of hits after which decisions come soon again


@dataclass(frozen=True)
class Limits:
    """Where the front stage's share starts, and what bounds it."""

    start: float
    least: float = 0.02
    most: float = 0.5
    idle: float | None = None  # share if the window is mostly idle; None: it does not matter
    serve_seconds: float = 0.1e-6  # per waiting tuple, which a larger window would not save


def starting_at(limits: Limits, front_stage: Part | None, memory: int) -> Limits:
    """The limits for a front stage that was configured, from where memory moves."""
    if front_stage is None:
        return limits
    share = front_stage if isinstance(front_stage, float) else parse_size(front_stage) / memory
    share = min(max(float(share), 1e-3), 0.9)
    return replace(
        limits, start=share, least=min(limits.least, share), most=max(limits.most, share)
    )


@dataclass
class Term:
    """Counters since the last decision."""

    tuples: int = 0  # served, including hits
    hits: int = 0
    seconds: float = 0.0  # in iterations
    rounds: int = 0


class MemoryMover:
    """Decides the front stage's share."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.share = self._allocated = limits.start
        self.term = Term()
        self.moves = False  # re-plan memory as soon as no tuple waits,
        self.drains = False  # and admit no tuple until then
        self._interval = _FIRST_INTERVAL
        self._direction = 0
        self._trial: tuple[float, float] | None = None  # share and seconds per tuple before a move
        self._filled = False  # the window was full during this round
        self._most_waiting = 0
        self._served_before = self._hits_before = 0  # when the last decision was made
        self._usual_hits: float | None = None  # share of hits then, or soon after a move
        self._settles = 0  # rounds until then
        self._last_round = (0, 0)  # tuples served and hits at its end

    # -- measurements ----------------------------------------------------------------------

    def note_window(self, waiting: int, is_full: bool) -> None:
        """Called after tuples were admitted."""
        self._filled |= is_full
        self._most_waiting = max(self._most_waiting, waiting)

    def note_seconds(self, seconds: float) -> None:
        """Called after an iteration."""
        self.term.seconds += seconds

    def round_done(self, front: FrontStage, window: Any, stats: Stats) -> None:
        """Called when as many pages were visited as the table has: decide whether memory should
        move."""
        filled, self._filled = self._filled, False
        if self.moves:
            return
        term, served = self.term, stats.matched + stats.unmatched
        if filled and self._has_drifted(served, stats.front_stage_hits):
            self._start_again(served, stats.front_stage_hits)
            front.refresh()
            return
        coldest = front.coldest
        if coldest is None:
            return  # the front stage is still being filled
        if filled:
            term.rounds += 1
            term.tuples = served - self._served_before
            term.hits = stats.front_stage_hits - self._hits_before
            row_bytes = front.nbytes / max(1, front.capacity)
            self.drains = self.moves = self.decide(coldest, row_bytes, window.nbytes)
        else:
            is_full = 10 * front.count > 9 * front.capacity
            self.moves = is_full and self.decide_idle(self._most_waiting, window.capacity)
            self.drains = False
            self._most_waiting = window.count
        if self.term is not term:
            self._served_before, self._hits_before = served, stats.front_stage_hits
            self._usual_hits = term.hits / term.tuples if term.tuples else None

    def moved(self) -> None:
        """Called after memory was re-planned."""
        if self.moves:  # another front stage has other hits
            self._usual_hits, self._settles = None, _SETTLES
        else:  # something else has changed: a comparison would be of both
            self._trial = None
        self.moves = self.drains = False
        self._allocated = self.share

    def too_small(self) -> None:
        """Called if no row fits into the share: it stays as it was, or nothing is ever learned."""
        self.share = self._allocated
        self._limits = replace(self._limits, least=self._allocated)

    def table_changed_from(self, before: int, rows: int) -> None:
        """Called with a new version of the table: if it is much larger or smaller, decide soon."""
        if not before / _GROWN < rows < before * _GROWN:
            self._interval, self._direction, self._trial = _FIRST_INTERVAL, 0, None

    def _has_drifted(self, served: int, hits: int) -> bool:
        """Whether this round's share of hits differs clearly from that of the last decision."""
        tuples, hit = served - self._last_round[0], hits - self._last_round[1]
        self._last_round = served, hits
        if not tuples:
            return False
        if self._usual_hits is None:
            self._settles -= 1
            if not self._settles:
                self._usual_hits = hit / tuples
            return False
        return abs(hit / tuples - self._usual_hits) > _DRIFT

    def _start_again(self, served: int, hits: int) -> None:
        """What was observed before is not true any more."""
        self.term = Term()
        self._interval, self._direction, self._trial = _FIRST_INTERVAL, 0, None
        self._served_before, self._hits_before, self._usual_hits = served, hits, None

    # -- decisions -------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether the window is mostly idle, because every micro-batch is drained."""
        return self.share == self._limits.idle

    def decide_idle(self, most_waiting: int, capacity: int) -> bool:
        """Decide after a round that never filled the window; returns whether the share changed.

        This happens if every micro-batch is drained before the next one arrives.
        """
        idle = self._limits.idle
        if idle is None or self.share >= idle or _IDLE_PART * most_waiting > capacity:
            return False
        self.term = Term()
        self.share = idle
        return True

    def decide(self, coldest: float, row_bytes: float, window_bytes: int) -> bool:
        """Decide after a round; returns whether the share changed.

        ``coldest`` is the average number of hits per round of the least used rows.
        """
        term = self.term
        missed = term.tuples - term.hits
        if term.rounds < self._interval or not missed:
            return False
        self.term = Term()
        cost = term.seconds / term.tuples
        before, self._trial = self._trial, None
        if before is not None and cost > _WORSE * before[1]:
            self.share = before[0]
            self._direction = 0
            self._interval *= 4
            return True
        waiting = term.seconds / missed
        front = coldest / (term.tuples / term.rounds) / row_bytes * waiting
        window = (
            missed / term.tuples * max(0.0, waiting - self._limits.serve_seconds) / window_bytes
        )
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
        step = 4.0 if ratio > 12 else 2.0 if ratio > 3 else 1.4
        share = self.share * step if direction > 0 else self.share / step
        most = max(self._limits.most, self.share)  # an idle window has left more to the front stage
        share = min(max(share, self._limits.least), most)
        self._interval *= 1.3
        self._direction = direction
        changed = abs(share - self.share) > 0.005
        if changed:
            self._trial = self.share, cost
        self.share = share
        return changed
