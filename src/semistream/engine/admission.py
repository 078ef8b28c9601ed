"""Admission: tuples probe the front stage, if there is one, and only misses enter the window.

This is the stream-probing phase of 003 (algorithm 3) and 001, the same for every join::

    slice -> front stage -hit--> output
                 |
                miss -> known absent? -> output (unmatched)
                 |
                 +----> window
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from semistream.engine.context import Context
from semistream.engine.front.absent_keys import AbsentKeys
from semistream.engine.front.contract import FrontStage
from semistream.engine.intake import Intake, Slice
from semistream.engine.key_match import KeyMatch
from semistream.engine.output import Output
from semistream.engine.pair_filter import PairFilter
from semistream.engine.rows.layout import Rows
from semistream.keys import Mask
from semistream.master.index import PageIndex
from semistream.master.pages import PageSource

Add = Callable[[Slice, Rows], int]
"""Adds rows of a slice to the window, in order; returns how many fit."""

_NOTHING = np.zeros(0, np.int64)


class Admission:
    """Moves tuples from the intake to the output (hits) or to the window (misses)."""

    def __init__(self, context: Context, intake: Intake, output: Output) -> None:
        self._context = context
        self._intake = intake
        self._output = output
        self.front: FrontStage | None = None
        self.absent: AbsentKeys | None = None
        self.index: PageIndex | None = None
        self.unique = False  # master keys are unique
        self.full = False  # the last call stopped because a miss did not fit
        self._wanted: tuple[int, ...] | None = None  # of the front stage's columns
        self._key_match: KeyMatch | None = None  # where codes are hashes
        self._filter: PairFilter | None = None  # where there are conditions

    def attach(self, source: PageSource) -> None:
        """Tuples that come now are joined with this version of the table."""
        self.unique = source.distinct
        self.index = source.index if self._context.binding.has_key else None

    def admit(self, vacant: int, add: Add) -> int:
        """Admit tuples of one slice, with at most ``vacant`` misses; returns the misses added."""
        intake, output, most = self._intake, self._output, self._output.most_rows
        self.full = False
        if intake.skip_empty():
            return 0
        part = intake.slice()
        stop, hit_rows, hit_slots, misses = self._probe(part, vacant)
        unmatched = part.without_key(stop)
        if len(unmatched):
            misses = misses[part.valid[misses]]  # type: ignore[index]
        if self._context.binding.conditions and len(hit_rows):
            hit_rows, hit_slots, refused = self._passing(part, hit_rows, hit_slots)
            unmatched = np.sort(np.r_[unmatched, refused])
        known = self._known_absent(part, misses)
        if known is not None:
            unmatched = np.sort(np.r_[unmatched, misses[known]])
            misses = misses[~known]
        if len(unmatched) > most:  # more than one output batch
            stop = int(unmatched[most])
            unmatched = unmatched[:most]
            misses = misses[: np.searchsorted(misses, stop)]
            hit_rows, hit_slots = _before(stop, hit_rows, hit_slots)
        added = add(part, misses) if len(misses) else 0
        if added < len(misses):
            stop = int(misses[added])
            self.full = True
            hit_rows, hit_slots = _before(stop, hit_rows, hit_slots)
            unmatched = unmatched[: np.searchsorted(unmatched, stop)]
        if len(hit_rows):
            self._emit_hits(part, hit_rows, hit_slots)
        if len(unmatched):
            output.emit_unmatched_rows(part.batch, unmatched)
            self._context.stats.unmatched += len(unmatched)
        intake.consume(stop)
        return added

    def _known_absent(self, part: Slice, misses: Rows) -> Mask | None:
        """Which of these tuples have a key that no page has; None: none is known to."""
        known = self.absent.lookup(part.codes, misses) if self.absent is not None else None
        deleted = None
        if self.index is not None and self.index.has_deleted:
            deleted = self.index.is_deleted(part.codes[misses])
        return known if deleted is None else deleted if known is None else known | deleted

    def _probe(self, part: Slice, vacant: int) -> tuple[int, Rows, Any, Rows]:
        """(stop, hit rows, their slots, misses)."""
        most = self._output.most_rows
        front, binding = self.front, self._context.binding
        if front is None:
            stop = min(part.batch.num_rows, part.position + min(vacant, most))
            return stop, _NOTHING, _NOTHING, np.arange(part.position, stop)
        ahead = part.position + self._context.settings.lookups_per_output_row * most
        ahead = min(part.batch.num_rows, ahead)
        while True:
            found = front.probe(
                part.codes[:ahead],
                None if part.valid is None else part.valid[:ahead],
                part.position,
                vacant,
                most,
                once=binding.takes_one_row,
            )
            if binding.codec.exact or not len(found.hit_rows):
                break
            same = self._same_keys(front, part, found.hit_rows, found.hit_slots)
            if same is None:
                break
            # Another key with the same code is cached: evict it, and probe again.
            front.forget(np.unique(part.codes[found.hit_rows[~same]]))
        return found.stop, found.hit_rows, found.hit_slots, found.miss_rows

    def _same_keys(self, front: FrontStage, part: Slice, rows: Rows, slots: Any) -> Mask | None:
        """Whether the keys of these hits are equal, not only their codes; None: all are."""
        binding = self._context.binding
        self._key_match = self._key_match or KeyMatch(binding)
        first = len(binding.master_columns)
        places = range(first, first + len(binding.master_key))
        batch = np.zeros(len(rows), np.int32)
        return self._key_match.same(front.rows, places, slots, part.key_columns(), batch, rows)

    def _passing(self, part: Slice, rows: Rows, slots: Any) -> tuple[Rows, Any, Rows]:
        """The hits that pass the conditions, and the tuples none of whose hits does: they are
        unmatched, as the front stage has all rows of their keys."""
        binding = self._context.binding
        self._filter = self._filter or binding.pair_filter()
        assert self._filter is not None
        assert self.front is not None
        passed = self._filter.cached(part, rows, self.front.rows, slots)
        if passed is None:
            passed = np.ones(len(rows), np.bool_)
        starts = _starts(rows)  # the pairs of a tuple are adjacent
        refused = rows[starts[~np.logical_or.reduceat(passed, starts)]]
        rows, slots = rows[passed], slots[passed]
        if not binding.keeps_master:  # each tuple once
            starts = _starts(rows)
            rows, slots = rows[starts], slots[starts]
        return rows, slots, refused

    def _emit_hits(self, part: Slice, rows: Rows, slots: Any) -> None:
        stats, binding = self._context.stats, self._context.binding
        hit = len(rows) if self.unique else int(np.count_nonzero(np.diff(rows)) + 1)
        stats.front_stage_hits += hit
        stats.matched += hit
        if binding.how == "left_anti":
            return
        assert self.front is not None
        if len(rows) <= self._output.few_rows and self._emit_few(part, rows, slots):
            return
        wanted = range(len(binding.master_columns))
        self._output.emit(part.take(rows), self.front.rows.take(slots, wanted) if wanted else [])

    def _emit_few(self, part: Slice, rows: Rows, slots: Any) -> bool:
        """Emit hits as one message; False: it has no room."""
        assert self.front is not None
        if self._wanted is None:
            self._wanted = tuple(range(len(self._context.binding.master_columns)))
        message = self._output.begin_few(len(rows))
        part.write(message, rows)
        if self._wanted:
            self.front.rows.write(message, slots, self._wanted)
        return self._output.emit_few()


def _before(stop: int, rows: Rows, slots: Any) -> tuple[Rows, Any]:
    """The hits before row ``stop``."""
    count = int(np.searchsorted(rows, stop))
    return rows[:count], slots[:count]


def _starts(rows: Rows) -> Rows:
    """Where a new tuple begins in the rows of pairs."""
    return np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]][: len(rows)])
