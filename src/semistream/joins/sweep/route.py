"""The order of a sweep: which tuples are served next, and which pages are read for them."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.engine.context import Context
from semistream.joins.sweep.stretch_window import NEVER, StretchWindow
from semistream.joins.sweep.stretches import Stretches
from semistream.joins.sweep.visit import Visit
from semistream.keys import Codes

_NO_PAGES = np.zeros(0, np.int64)


class Route:
    """Goes round the stretches in key order, and skips those that no tuple waits for.

    A visit serves the tuples of one stretch, or of several where few tuples wait: as many as need
    ``most`` pages together, or one that needs ``dense`` pages alone. Up to ``gap`` unneeded pages
    are read to make one request of two, unless the visit would have more than ``most`` with them:
    its second part could not be requested ahead. Where more than ``most_tuples`` wait for one
    stretch, as for a hot key that is not cached yet, several visits serve them: each is done within
    one push.
    """

    def __init__(
        self,
        context: Context,
        stretches: Stretches,
        most: int,
        gap: int,
        dense: int = NEVER,
        position: int = 0,
    ) -> None:
        self._context = context
        self._stretches = stretches
        self.most_pages = most
        self.dense_pages = dense
        self.gap_pages = gap
        self._position = position  # the stretch to look at next
        self.most_tuples = NEVER
        self.sweeps = 0  # how often it has gone round
        self._folded_turn = False
        self._folded, self._swept = 0, 1  # tuples of the last turn of either

    def farthest(self, window: StretchWindow) -> int:
        """The stretch with waiting tuples to which the sweep comes last; -1 if none wait."""
        return window.farthest(self._position % len(self._stretches))

    def release(self, window: StretchWindow, most: int) -> list[pa.Array] | None:
        """The stream's columns of up to ``most`` tuples to which the sweep comes last, which leave
        the window; None if none wait."""
        taken: list[tuple[Any, Any]] = []
        while most > 0 and (stretch := self.farthest(window)) >= 0:
            taken.append(window.pop(stretch, most))
            most -= len(taken[-1][0])
        if not taken:
            return None
        columns = window.take(np.concatenate([slots for slots, _ in taken]))
        for slots, chunks in taken:
            window.leave(slots)
            window.free(slots, chunks)
        return columns

    @property
    def most_visits(self) -> int:
        """Visits of a whole sweep, at most."""
        return len(self._stretches)

    def position_after(self, kept: int) -> int:
        """The stretch to look at next, if only the first ``kept`` ones stay."""
        return self._position if self._position < kept else 0

    def waiting_from(self, window: StretchWindow, first: int) -> bool:
        """Whether tuples wait for stretches from ``first`` on."""
        return first < len(self._stretches) and window.next_needed(first) >= first

    def next_visits(self, window: StretchWindow, first: int = 0) -> list[Visit]:
        """The next tuples that wait, which leave their lists: one visit, or several to one stretch;
        empty if none wait. :meth:`find_pages` is to be called before a visit is made.

        ``first``: only those of stretches from this one on, apart from the sweep. Every second time
        it is the turn of deltas that were folded, the oldest first, so that few of them are to be
        kept; and every time while as many tuples wait for their stretches as for those of the
        sweep.
        """
        if not window.is_awaited:
            self._folded_turn = False
            if first:
                self._folded = 0
            elif self._position:
                # This sweep is over: the next micro-batch is one visit from the first stretch on,
                # not one up to the last stretch and another one behind it.
                self._position = len(self._stretches)
            return []
        stretches = self._stretches
        is_turn = self._folded >= self._swept or not self._folded_turn
        self._folded_turn = is_turn and self.waiting_from(window, stretches.own)
        if first or self._folded_turn:
            begin = window.next_needed(first) if first else self._oldest_folded(window)
            visits = self._visits(window, begin)[0] if begin >= first else []
            self._folded = sum(len(visit.slots) for visit in visits)
            return visits
        begin = window.next_needed(self._position % len(stretches))
        self.sweeps += begin < self._position
        visits, self._position = self._visits(window, begin)
        self._swept = sum(len(visit.slots) for visit in visits)
        return visits

    def _oldest_folded(self, window: StretchWindow) -> int:
        """The first stretch with waiting tuples of the oldest folded delta that has one."""
        found = ((window.next_needed(start), start) for start in reversed(self._stretches.folded))
        return next(begin for begin, start in found if begin >= start)

    def _visits(self, window: StretchWindow, begin: int) -> tuple[list[Visit], int]:
        """Visits from this stretch on, and the stretch after their last."""
        ends = self._stretches.segment_ends
        end = ends[bisect_right(ends, begin)]
        most = self.most_tuples
        pages = self.most_pages if self._stretches.by_code else 1
        slots, chunks, end = window.collect(begin, end, pages, self.dense_pages, most)
        parts = [(slots, chunks)] if end - begin > 1 else window.cut(slots, chunks, most)
        return [Visit(_NO_PAGES, None, *part, end - begin, begin, False) for part in parts], end

    def find_pages(self, window: StretchWindow, visit: Visit) -> None:
        """Sort the tuples of a visit, and find the pages that they need."""
        if visit.is_found:
            return
        visit.slots, codes = kernels.sweep.in_order(window.codes, visit.slots)
        first, end = self._stretches.first_page, visit.first + visit.stretches
        low, high = int(first[visit.first]), int(first[end]) - 1
        visit.pages, visit.places = self._pages(codes, low, high, self.gap_pages)
        if self.gap_pages and visit.stretches > 1 and len(visit.pages) > self.most_pages:
            visit.pages, visit.places = self._pages(codes, low, high, 0)
        visit.is_found = True

    def _pages(self, codes: Codes, low: int, high: int, gap: int) -> tuple[Any, Any]:
        """The pages to read, and for every tuple the first of them that can hold its code."""
        places = np.zeros(len(codes), np.int32)
        if high < low:
            return _NO_PAGES, places  # an empty table: nothing to read
        index = self._stretches.index
        if not self._stretches.by_code:
            return np.arange(low, high + 1), places
        most = high - low + 1
        if not index.has_spanning_keys:
            most = min(most, len(codes) * (1 + gap))
        pages = np.empty(most, np.int64)
        count = kernels.sweep.needed_pages(
            codes, index.firsts, index.continues, low, high, gap, pages, places
        )
        return pages[:count].copy(), places
