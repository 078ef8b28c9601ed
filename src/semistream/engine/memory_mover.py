"""Moves memory between front stage and window while a run works (004's dynamic tuning).

A larger front stage has more hits, and a larger window amortises the pages of a round over more
tuples. What a tuple would cost with another front stage follows from what the run observes::

    admission + (1 - hits(front)) * (serve + pages / window(front))

    hits(front) = hits * (front / front now) ** elasticity

The elasticity is what one row more would be hit, the hits of the coldest rows, relative to the
average row: 1 for a uniform stream, near 0 where few keys have most tuples. Memory moves if a clear
part of the seconds per tuple is saved, because the window must be empty for a move, which costs
about a round: in large steps and at growing intervals. A move after which tuples cost more than
before is taken back. A machine may be slow for a second, so this takes two measurements, and the
move may be tried again, after four times as many rounds. When the share of hits has changed, the
next decisions come soon again: the hot keys, or the table, are others.

A policy reports what it does (``note_window``, ``note_seconds``, ``note_admission``,
``round_done``), admits no tuple while ``drains``, plans with ``share`` when no tuple waits, and
reports ``moved``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from semistream.engine.front.contract import FrontStage
from semistream.engine.plan import Part
from semistream.memory import parse_size
from semistream.stats import Stats

IDLE_ROOM = 1.25  # slots that an idle window keeps for each tuple that ever waited in a round
# Sizes to compare with, relative to the front stage's. Fewer moves down, as each costs a round; up
# the hits are less certain.
_STEPS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1 / 1.4, 1.4, 2.0)
_WORTH = 0.05  # of the seconds per tuple: a smaller gain is not worth the round that a move costs
_LEAST_WINDOW = 1 / 4  # of the window: what a step may leave
_BACK = 1.2  # a move back ends clearly before the share that the move came from
_WORSE = 1.05  # seconds per tuple after a move, as a ratio: it is taken back
_SETTLES = 2  # rounds after a move until its share of hits is the usual one
_FIRST_INTERVAL = 3.0  # rounds between the first two decisions
_GROWN = 1.25  # rows, as a ratio: another table for the decisions
_LEARNS = 0.01  # rise of the share of hits over a round: the front stage lacks hot rows still
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
    admission: float = 0.0  # seconds
    rounds: int = 0


class Trial(NamedTuple):
    """What was before a move."""

    share: float
    cost: float  # seconds per tuple
    between: tuple[float, float]
    looked_worse: bool = False  # by one measurement since the move


class MemoryMover:
    """Decides the front stage's share."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.share = self._allocated = limits.start
        self.term = Term()
        self.moves = False  # re-plan memory as soon as no tuple waits,
        self.drains = False  # and admit no tuple until then
        self._interval = _FIRST_INTERVAL
        self._between = 0.0, 1.0  # shares that are left to try
        self._trial: Trial | None = None  # until a move has been judged
        self._filled = False  # the window was full during this round
        self._most_waiting = 0
        self._served_before = self._hits_before = 0  # when the last decision was made
        self._counts = False  # the window has been full since memory moved
        self._hit_share = 0.0  # of the last round
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

    def note_admission(self, seconds: float) -> None:
        """Called after tuples were admitted."""
        self.term.admission += seconds

    def round_done(self, front: FrontStage, window: Any, stats: Stats) -> None:
        """Called when as many pages were visited as the table has: decide whether memory should
        move."""
        filled, self._filled = self._filled, False
        if self.moves:
            return
        served, hits = stats.matched + stats.unmatched, stats.front_stage_hits
        if not self._counts:  # the window was being filled
            self._counts = True
            self._count_from(served, hits)
            return
        rise = self._note_hits(served, hits)
        if filled and self._has_drifted():
            self._start_again(served, hits)
            front.refresh()
            return
        coldest = front.coldest
        if coldest is None:  # the front stage is still being filled
            self._count_from(served, hits)
            return
        term = self.term
        if filled:
            term.rounds += 1
            term.tuples, term.hits = served - self._served_before, hits - self._hits_before
            if rise < _LEARNS:
                self.drains = self.moves = self.decide(
                    coldest, front.capacity, front.nbytes, window.nbytes
                )
        else:
            is_full = 10 * front.count > 9 * front.capacity
            kept = 1.0 - (self._limits.idle or 0.0)  # of what both have now
            kept *= 1.0 + front.nbytes / max(1, window.nbytes)
            self.moves = is_full and self.decide_idle(self._most_waiting, kept * window.capacity)
            self.drains = False
            self._most_waiting = window.count
        if self.term is not term:
            self._usual_hits = term.hits / term.tuples if term.tuples else None
            self._count_from(served, hits)

    def moved(self) -> None:
        """Called after memory was re-planned."""
        if self.moves:  # another front stage has other hits
            self._usual_hits, self._settles = None, _SETTLES
        else:  # something else has changed: a comparison would be of both
            self._trial = None
        self.moves = self.drains = False
        self._allocated = self.share
        self._counts = False

    def too_small(self) -> None:
        """Called if no row fits into the share: it stays as it was, or nothing is ever learned."""
        self.share = self._allocated
        self._limits = replace(self._limits, least=self._allocated)

    def table_changed_from(self, before: int, rows: int) -> None:
        """Called with a new version of the table: if it is much larger or smaller, decide soon."""
        if not before / _GROWN < rows < before * _GROWN:
            self._forget_moves()

    def _note_hits(self, served: int, hits: int) -> float:
        """Note this round's share of hits; returns how much higher it is than the one before."""
        tuples, hit = served - self._last_round[0], hits - self._last_round[1]
        self._last_round = served, hits
        before, self._hit_share = self._hit_share, hit / tuples if tuples else self._hit_share
        return self._hit_share - before

    def _has_drifted(self) -> bool:
        """Whether this round's share of hits differs clearly from that of the last decision."""
        if self._usual_hits is None:
            self._settles -= 1
            if not self._settles:
                self._usual_hits = self._hit_share
            return False
        return abs(self._hit_share - self._usual_hits) > _DRIFT

    def _start_again(self, served: int, hits: int) -> None:
        """What was observed before is not true any more."""
        self._forget_moves()
        self._usual_hits = None
        self._count_from(served, hits)

    def _forget_moves(self) -> None:
        self._interval, self._between, self._trial = _FIRST_INTERVAL, (0.0, 1.0), None

    def _count_from(self, served: int, hits: int) -> None:
        self.term = Term()
        self._served_before, self._hits_before = self._last_round = served, hits

    # -- decisions -------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether the window is mostly idle, because every micro-batch is drained."""
        return self.share == self._limits.idle

    def decide_idle(self, most_waiting: int, left: float) -> bool:
        """Decide after a round that never filled the window; returns whether the share changed.

        This happens if every micro-batch is drained before the next one arrives. Then the window
        needs room for the misses of one micro-batch, and no more: ``left`` is the number of slots
        that it would keep.
        """
        idle = self._limits.idle
        if idle is None or self.share >= idle or IDLE_ROOM * most_waiting > left:
            return False
        self.term = Term()
        self.share = idle
        return True

    def decide(self, coldest: float, rows: int, front_bytes: int, window_bytes: int) -> bool:
        """Decide after a round; returns whether the share changed.

        ``coldest`` is the average number of hits per round of the least used rows, ``rows`` how
        many rows the front stage has.
        """
        term = self.term
        missed = term.tuples - term.hits
        trial = self._trial
        interval = self._interval if trial is None else _FIRST_INTERVAL
        if term.rounds < interval or not missed:
            return False
        self.term = Term()
        cost = (term.admission + term.seconds) / term.tuples
        if trial is not None and cost > _WORSE * trial.cost:
            if not trial.looked_worse:
                self._trial = trial._replace(looked_worse=True)
                return False
            self.share, self._between, self._trial = trial.share, trial.between, None
            self._interval *= 4
            return True
        hits, waiting = term.hits / term.tuples, term.seconds / missed
        serve = min(self._limits.serve_seconds, waiting)
        elasticity = min(1.0, coldest * rows * term.rounds / max(1, term.hits))

        def saved(share: float) -> float:
            """Of the seconds per tuple, with this share."""
            step = share / self.share
            window = 1.0 - (step - 1.0) * front_bytes / window_bytes
            if window < _LEAST_WINDOW:
                return 0.0
            missed = 1.0 - min(1.0, hits * float(step**elasticity))
            wait = missed * (serve + (waiting - serve) / window)
            return ((1.0 - hits) * waiting - wait) / max(cost, 1e-30)

        self._trial = None
        share = max(self._candidates(), key=saved, default=self.share)
        if saved(share) < _WORTH:
            self._interval *= 2
            return False
        self._trial = Trial(self.share, cost, self._between)
        low, high = self._between
        down = share < self.share
        self._between = (low, self.share / _BACK) if down else (self.share * _BACK, high)
        self._interval *= 1.3
        self.share = share
        return True

    def _candidates(self) -> list[float]:
        """Shares to which memory may move now."""
        limits, (low, high) = self._limits, self._between
        most = max(limits.most, self.share)  # an idle window has left more to the front stage
        shares = [min(max(self.share * step, limits.least), most) for step in _STEPS]
        return [
            share for share in shares if low <= share <= high and abs(share - self.share) > 0.005
        ]
