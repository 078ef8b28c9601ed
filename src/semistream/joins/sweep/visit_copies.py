"""Copies the rows that the tuples of a visit need out of scattered pages, where that costs less
than reading all pages into the disk buffer: out of pages that are read a few at a time, or mapped.

What a map costs depends on the page cache: if a file is there in huge pages, one fault maps 2 MB;
if it is there in small ones, mapping takes longer than reading. So all ways are timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semistream.engine.context import Context
from semistream.engine.page_rows import Openers
from semistream.engine.rows.copied_rows import MANY, CopiedRows
from semistream.engine.rows.page_opener import LoadedPages
from semistream.joins.sweep.plan import SweepPlan
from semistream.joins.sweep.visit import MAP_ROWS, NOT_CHOSEN, READ, READ_ROWS, Visit
from semistream.keys import Codes
from semistream.master.pages import PageSource
from semistream.master.scattered_pages import Places, ScatteredPages

_DENSITIES = 7  # needed pages on a huge page: 1, 2, 4, 8, 16, 32, 64 or more
_TRY_AGAIN = 64  # visits after which another way is timed again,
_TRIALS = 2  # so many times: the first one allocates the memory that the way before has released
_FAR, _RARELY = 1.25, 8  # a way that takes so many times as long is tried once in so many times
_MOST_UNCHECKED = 1 / 4  # of a visit's pages: else reading, which checks them, is not much dearer
_KEPT = 7 / 8  # of the visits before in the sums of the better way;
_TRIAL_KEPT = 1 / 2  # the others have few
_MOST = 4  # times the usual that one visit counts: the host may have paused


class WayChoice:
    """Which of these ways was the cheapest, by the density of a visit's pages."""

    def __init__(self, ways: Sequence[int]) -> None:
        self.ways = tuple(ways)
        # Of the last visits, by density and way: a small one, most of whose time is not for its
        # pages, counts little.
        self._sums: list[dict[int, tuple[float, float]]] = [{} for _ in range(_DENSITIES)]
        self._visits = [0] * _DENSITIES
        self._last = NOT_CHOSEN

    def choose(self, density: int) -> int:
        known = self._sums[density]
        for way in self.ways:
            if way not in known:
                return way
        self._visits[density] += 1
        best = self.best(density)
        trials, number = divmod(self._visits[density], _TRY_AGAIN)
        others = [way for way in self.ways if way != best]
        if number >= _TRIALS or not others:
            return best
        turns, turn = divmod(trials, len(others))
        other = others[turn]
        is_far = self.page_seconds(density, other) > _FAR * self.page_seconds(density, best)
        return best if is_far and turns % _RARELY else other

    def drop(self, way: int) -> None:
        """This way cannot be taken any more."""
        self.ways = tuple(other for other in self.ways if other != way)
        for known in self._sums:
            known.pop(way, None)

    def best(self, density: int) -> int:
        known = self._sums[density]
        return min(known, key=lambda way: self.page_seconds(density, way), default=READ)

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
            is_rare = len(known) > 1 and way != self.best(density)
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
        self._pages: ScatteredPages = reader.scattered_pages(plan.mapped_bytes)
        self._least_bytes = max(0, plan.mapped_bytes - reader.nbytes)
        ways = ((READ_ROWS, self._pages.can_read), (MAP_ROWS, self._pages.can_map), (READ, True))
        self._choice = WayChoice([way for way, can_go in ways if can_go])
        self.visit_pages = plan.copied_pages
        self.are_preferred = False  # the last visit has copied rows

    @property
    def nbytes(self) -> int:
        return int(self._rows.nbytes + self._least_bytes)

    def load(self, visit: Visit, codes: Codes) -> LoadedPages | None:
        """The rows for the next tuples of a visit; None if its pages are to be read."""
        if visit.way == NOT_CHOSEN:
            self._choose(visit)
        if visit.way == READ:
            return None
        first, places = visit.copied, self._places(visit.way)
        if places is not None:
            self._copy(codes[visit.slots], visit, places)
        if visit.copied == first:  # these rows do not fit, or a page cannot be read
            visit.way, self.are_preferred = READ, False
            return None
        return self._rows.loaded(first)

    def _places(self, way: int) -> Places | None:
        """None if they cannot be mapped."""
        if way == READ_ROWS:
            return self._pages.in_frames()
        places = self._pages.mapped()
        if places is None:
            self._choice.drop(MAP_ROWS)
        return places

    def _choose(self, visit: Visit) -> None:
        pages = visit.pages
        visit.way, self.are_preferred = READ, False
        if len(visit.slots) > MANY * len(pages):
            return
        unchecked = self._pages.unchecked(pages)
        if _MOST_UNCHECKED * len(pages) < len(unchecked):
            return
        per_huge = len(pages) // self._pages.huge_pages(pages)
        density = min(per_huge.bit_length(), _DENSITIES) - 1
        way = self._choice.choose(density)
        # The next visits are planned for what is best: the other ways are only tried.
        self.are_preferred = self._choice.best(density) != READ
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
