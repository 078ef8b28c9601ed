"""Copies the rows that the tuples of a visit need out of mapped pages, where that costs less than
reading the pages.

What a map costs depends on the page cache: if a file is there in huge pages, one fault maps 2 MB;
if it is there in small ones, mapping takes longer than reading. So both ways are timed.
"""

from __future__ import annotations

from typing import Any

from semistream.engine.context import Context
from semistream.engine.page_rows import Openers
from semistream.engine.rows.copied_rows import CopiedRows
from semistream.engine.rows.page_opener import LoadedPages
from semistream.joins.sweep.plan import SweepPlan
from semistream.joins.sweep.visit import MAP, NOT_CHOSEN, READ, Visit
from semistream.keys import Codes
from semistream.master.mapped_pages import Places
from semistream.master.pages import PageSource

_DENSITIES = 6  # needed pages on a huge page: 1, 2, 4, 8, 16, 32 or more
_TRY_AGAIN = 64  # visits after which the other way is timed again,
_TRIALS = 2  # so many times: the first one allocates the memory that the way before has released
_MOST_UNCHECKED = 1 / 4  # of a visit's pages: else reading, which checks them, is not much dearer
_KEPT = 7 / 8  # of the visits before in the sums of the better way;
_TRIAL_KEPT = 1 / 2  # the other one has few
_MOST = 4  # times the usual that one visit counts: the host may have paused


class WayChoice:
    """Which way was cheaper, by the density of a visit's pages."""

    def __init__(self) -> None:
        # Of the last visits, by density and way: a small one, most of whose time is not for its
        # pages, counts little.
        self._sums: list[dict[int, tuple[float, float]]] = [{} for _ in range(_DENSITIES)]
        self._visits = [0] * _DENSITIES
        self._last = NOT_CHOSEN

    def choose(self, density: int) -> int:
        known = self._sums[density]
        for way in (MAP, READ):
            if way not in known:
                return way
        self._visits[density] += 1
        better = self._better(density)
        is_trial = self._visits[density] % _TRY_AGAIN < _TRIALS
        return READ + MAP - better if is_trial else better

    def _better(self, density: int) -> int:
        return min((READ, MAP), key=lambda way: self.page_seconds(density, way))

    def page_seconds(self, density: int, way: int) -> float:
        seconds, pages = self._sums[density][way]
        return seconds / pages

    def took(self, density: int, way: int, seconds: float, pages: int) -> None:
        """A visit took so long. The first one after another way does not count: it allocates what
        the other one has released."""
        is_first, self._last = way != self._last, way
        known = self._sums[density]
        if is_first:
            return
        if way in known:
            seconds = min(seconds, _MOST * pages * self.page_seconds(density, way))
            is_rare = len(known) == 2 and way != self._better(density)
            kept = _TRIAL_KEPT if is_rare else _KEPT
            before, pages_before = known[way]
            known[way] = kept * before + seconds, kept * pages_before + pages
        else:
            known[way] = seconds, float(pages)


class VisitCopies:
    """The copied rows of a visit, and the choice between copying rows and reading pages."""

    def __init__(
        self, context: Context, openers: Openers, reader: Any, source: PageSource, plan: SweepPlan
    ) -> None:
        binding = context.binding
        wanted = [binding.master_columns, binding.compared_keys]
        if binding.conditions:
            wanted += [binding.condition_columns, binding.further_columns]
        names = [name for some in wanted for name in some]
        parts = [openers(some) if some or i != 1 else None for i, some in enumerate(wanted)]
        self._rows = CopiedRows(
            openers(names), parts, plan.copied_rows, source.row_bytes, source.max_row_bytes
        )
        self._context = context
        self._reader = reader
        self._pages = reader.mapped_pages(plan.mapped_bytes)
        self._least_bytes = max(0, plan.mapped_bytes - reader.nbytes)
        self._choice, self._can_map = WayChoice(), True
        self.visit_pages = plan.copied_pages
        self.are_preferred = False  # the last visit has copied rows

    @property
    def nbytes(self) -> int:
        return int(self._rows.nbytes + self._least_bytes)

    def load(self, visit: Visit, codes: Codes) -> LoadedPages | None:
        """The rows for the next tuples of a visit; None if its pages are to be read."""
        if visit.way == NOT_CHOSEN:
            self._choose(visit)
            self.are_preferred = visit.way == MAP
        if visit.way == READ:
            return None
        first, places = visit.copied, self._pages.places()
        self._can_map = places is not None
        if places is not None:
            self._copy(codes[visit.slots], visit, places)
        if visit.copied == first:  # these rows do not fit, or a page cannot be read
            visit.way, self.are_preferred = READ, False
            return None
        return self._rows.loaded(first)

    def _choose(self, visit: Visit) -> None:
        pages, unchecked = visit.pages, self._pages.unchecked(visit.pages)
        if not self._can_map or _MOST_UNCHECKED * len(pages) < len(unchecked):
            visit.way = READ
            return
        per_huge = len(pages) // self._pages.huge_pages(pages)
        density = min(per_huge.bit_length(), _DENSITIES) - 1
        way = self._choice.choose(density)
        if way == READ or not len(unchecked):
            visit.density = density
        else:  # a visit that reads pages to check them is not a measure of copying
            self._check(unchecked)
        visit.way = way

    def _check(self, pages: Any) -> None:
        """Read pages for the first time: that checks them."""
        while len(pages):
            read = self._reader.plan(pages)
            before = self._reader.bytes_read
            self._reader.load(read)
            self._context.stats.bytes_read += self._reader.bytes_read - before
            pages = pages[len(read.pages) :]

    def _copy(self, codes: Codes, visit: Visit, places: Places) -> None:
        """Copy rows of the next tuples, and count the pages that are done with."""
        context, pages, done = self._context, visit.pages, visit.done
        started = context.clock()
        visit.copied = self._rows.copy(codes, visit.places, visit.copied, pages, places)
        is_last = visit.copied == len(codes)
        visit.done = len(pages) if is_last else int(visit.places[visit.copied])
        count, nbytes = visit.done - done, self._rows.nbytes_read
        context.stats.pages_read += count
        context.stats.bytes_read += nbytes
        context.observer.page_read(int(pages[done]), count, nbytes, context.clock() - started)

    def visited(self, visit: Visit, seconds: float) -> None:
        """A visit took so long."""
        if visit.density >= 0:
            self._choice.took(visit.density, visit.way, seconds, len(visit.pages))
