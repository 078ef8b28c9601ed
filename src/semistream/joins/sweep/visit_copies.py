"""Copies the rows that the tuples of a visit need out of mapped pages, where that costs less than
reading the pages.

What a map costs depends on the page cache: if a file is there in huge pages, one fault maps 2 MB;
if it is there in small ones, mapping takes longer than reading. So both ways are timed.
"""

from __future__ import annotations

from typing import Any

from semistream.engine.context import Context
from semistream.engine.disk_buffer import count_read
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
_WEIGHT = 1 / 8  # of the last visit in the average of the better way;
_TRIAL_WEIGHT = 1 / 2  # the other one has few
_MOST = 4  # times the average that one visit counts: the host may have paused


class WayChoice:
    """Which way was cheaper, by the density of a visit's pages."""

    def __init__(self) -> None:
        self._seconds: list[dict[int, float]] = [{} for _ in range(_DENSITIES)]
        self._visits = [0] * _DENSITIES
        self._last = -1

    def choose(self, density: int) -> int:
        known = self._seconds[density]
        for way in (MAP, READ):
            if way not in known:
                return way
        self._visits[density] += 1
        better = self._better(density)
        is_trial = self._visits[density] % _TRY_AGAIN < _TRIALS
        return READ + MAP - better if is_trial else better

    def _better(self, density: int) -> int:
        known = self._seconds[density]
        return MAP if known[MAP] < known[READ] else READ

    def took(self, density: int, way: int, seconds: float) -> None:
        """A page of a visit took so long. The first visit after another way does not count: it
        allocates what the other one has released."""
        is_first, self._last = way != self._last, way
        known = self._seconds[density]
        if is_first:
            return
        before = known.get(way)
        if before is not None:
            is_rare = len(known) == 2 and way != self._better(density)
            weight = _TRIAL_WEIGHT if is_rare else _WEIGHT
            seconds = before + weight * (min(seconds, _MOST * before) - before)
        known[way] = seconds


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
        self._pages = reader.mapped_pages(plan.mapped_bytes)
        self._least_bytes = max(0, plan.mapped_bytes - reader.nbytes)
        self._choice, self._can_map = WayChoice(), True
        self.visit_pages = plan.copied_pages
        self.are_preferred = False  # the last visit has copied rows
        self.bytes_read = 0

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
        first, pages, places = visit.copied, visit.pages, self._pages.places()
        following, self._can_map = first, places is not None
        if places is not None:
            following = count_read(
                self._context, self, int(pages[visit.done]), len(pages) - visit.done,
                self.bytes_read, lambda: self._copy(codes[visit.slots], visit, places),
            )  # fmt: skip
        if following == first:  # these rows do not fit, or a page cannot be read
            visit.way, self.are_preferred = READ, False
            return None
        visit.copied = following
        visit.done = len(pages)
        if following < len(visit.slots):
            visit.done = min(int(visit.places[following]), len(pages) - 1)
        return self._rows.loaded(first)

    def _choose(self, visit: Visit) -> None:
        # Pages are checked when they are read.
        if not self._can_map or self._pages.are_unchecked(visit.pages):
            visit.way = READ
            return
        per_huge = len(visit.pages) // self._pages.huge_pages(visit.pages)
        visit.density = min(per_huge.bit_length(), _DENSITIES) - 1
        visit.way = self._choice.choose(visit.density)

    def _copy(self, codes: Codes, visit: Visit, places: Places) -> int:
        following = self._rows.copy(codes, visit.places, visit.copied, visit.pages, places)
        self.bytes_read += self._rows.nbytes_read
        return following

    def visited(self, visit: Visit, seconds: float) -> None:
        """A visit took so long."""
        if visit.density >= 0:
            self._choice.took(visit.density, visit.way, seconds / len(visit.pages))
