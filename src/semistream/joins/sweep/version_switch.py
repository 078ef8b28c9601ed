"""Lets tuples wait on while the table changes.

A change adds a delta, and may fold younger ones into it; the pages of the base and of all other
deltas stay. A tuple that waits for a page that stays meets the row there that its own version has,
also when the run has moved to a newer version. The pages of deltas that are folded come after those
of the new version until no tuple waits for them, and are visited first. Only if they are too many,
tuples of the oldest ones are served before the next switch. What later visits find out about a key
must not be remembered if the key has changed since: the row that they read is hidden in the new
version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from semistream.joins.sweep.route import Route
from semistream.joins.sweep.stretch_window import StretchWindow
from semistream.joins.sweep.stretches import Stretches
from semistream.joins.sweep.visit import Visit
from semistream.keys import Codes, Mask
from semistream.master.index import PageIndex
from semistream.master.pages import PageSource


class VersionSwitch:
    """``kept``: the stretches that keep their number; 0: all tuples must be served before the
    switch. Otherwise those of stretches from ``urgent`` on must be."""

    def __init__(self) -> None:
        self.kept = self.urgent = 0
        self._stretches: Stretches | None = None  # of this version, while older tuples wait

    def prepare(
        self, old: PageSource, new: PageSource, stretches: Stretches, pages: int, fits: bool
    ) -> None:
        """``pages`` per stretch of the new version; ``fits``: no memory must be allocated anew."""
        self.kept = self.urgent = 0
        shared = new.pages_shared_with(old)
        if fits and shared and new.index is not None and new.distinct == old.distinct:
            coming = Stretches(new.index, pages)
            self.kept = self.urgent = stretches.shared_with(coming, shared)
            if self.kept:
                self.urgent += stretches.moved_to(coming, self.kept)

    def urgent_first(self, visits: Iterable[Visit]) -> list[Visit]:
        """These visits, beginning with those that must be made before the switch."""
        return sorted(visits, key=lambda visit: visit.first < self.urgent)

    def is_ready(self, window: StretchWindow, visits: Sequence[Visit], route: Route) -> bool:
        """Whether no tuple waits that must be served before. Urgent visits come first."""
        urgent = visits and visits[0].first >= self.urgent
        return self.kept > 0 and not urgent and not route.waiting_from(window, self.urgent)

    def follow(self, visits: Iterable[Visit], old: Stretches, new: Stretches) -> list[Visit]:
        """Visits that were found before the switch, with their numbers in the new version. They
        are to be requested again."""
        found = [visit.unread() for visit in visits]
        for visit in found:
            if visit.first >= self.kept:
                pages = int(new.first_page[new.own] - old.first_page[self.kept])
                visit.first += new.own - self.kept
                visit.pages = visit.pages + pages
        return found

    def done(self, stretches: Stretches, waits: bool) -> None:
        """The run has this version now; ``waits``: with older tuples."""
        self._stretches = stretches if waits else None
        self.kept = self.urgent = 0

    def outdated(self, visit: Visit) -> Callable[[Codes], Mask] | None:
        """Tells which codes' rows this visit may read in an older version; None: none's."""
        stretches = self._stretches
        if stretches is None or not stretches.index.has_changes:
            return None
        first, end = stretches.pages_from(visit.first)
        return lambda codes: _is_elsewhere(stretches.index, codes, first, end)

    def current(self, visit: Visit, codes: Codes) -> Codes:
        """Those of these codes that are the same in the version that the run has now."""
        outdated = self.outdated(visit)
        return codes if outdated is None else codes[~outdated(codes)]


def _is_elsewhere(index: PageIndex, codes: Codes, first: int, end: int) -> Mask:
    """Which codes have changed, and have no row in these pages: those of the base or of a delta."""
    deltas = index.deltas_of(codes)
    places = np.array([delta.first for delta in index.deltas])[deltas]
    is_here = (places >= first) & (places < end)
    deleted = index.is_deleted(codes)
    if deleted is not None:
        is_here &= ~deleted
    return np.asarray((deltas >= 0) & ~is_here)
