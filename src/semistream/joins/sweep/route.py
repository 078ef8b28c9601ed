"""The order of a sweep: which stretch comes next, and which of its pages are visited together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from semistream.engine.context import Context
from semistream.engine.rows.layout import Slots
from semistream.joins.sweep.read_ahead import Visit
from semistream.joins.sweep.stretch_window import StretchWindow
from semistream.joins.sweep.stretches import Stretches

_NO_CHUNKS = np.zeros(0, np.int32)


class Route:
    """Goes round the stretches in key order, and skips those that no tuple waits for."""

    def __init__(self, context: Context, stretches: Stretches) -> None:
        self._context = context
        self._stretches = stretches
        self._position = 0  # the stretch to look at next
        self.sweeps = 0  # how often it has gone round

    @property
    def most_visits(self) -> tuple[int, int]:
        """Visits of a whole sweep, and of one stretch, at most."""
        gap = self._context.settings.gap_pages
        visits = -(-np.diff(self._stretches.first_page) // (2 + gap))
        return max(1, int(visits.sum())), int(visits.max(initial=1))

    def next_stretch(self, window: StretchWindow) -> list[Visit]:
        """Visits to the next stretch that tuples wait for; they leave its list. [] if none wait."""
        stretch = window.next_needed(self._position % len(self._stretches))
        if stretch < 0:
            return []
        self.sweeps += stretch < self._position
        self._position = stretch + 1
        slots, chunks = window.collect(stretch)
        if not self._stretches.first_page[-1]:
            return [Visit(0, -1, slots, chunks)]  # an empty table: nothing to read
        visits = list(self._visits(window, slots, stretch))
        visits[-1].chunks = chunks
        return visits

    def _visits(self, window: StretchWindow, slots: Slots, stretch: int) -> Iterator[Visit]:
        """Cut a stretch where more than ``gap_pages`` pages in a row are not needed."""
        settings, stretches = self._context.settings, self._stretches
        index, bounds = stretches.index, stretches.first_page
        if stretches.exact:
            codes = window.codes[slots]
            order = np.argsort(codes)
            if len(slots) > settings.dense_waiters * (bounds[stretch + 1] - bounds[stretch]):
                first, last = int(bounds[stretch]), int(bounds[stretch + 1]) - 1
                yield Visit(first, last, slots[order], _NO_CHUNKS)
                return
            low, high = index.locate_sortable(codes[order])
        else:
            low, high = index.locate(self._context.binding.codec.adopt(window.keys(slots)))
            order = np.argsort(low, kind="stable")
            low, high = low[order], high[order]
        slots, reached = slots[order], np.maximum.accumulate(high)
        cuts = (np.flatnonzero(low[1:] - reached[:-1] > 1 + settings.gap_pages) + 1).tolist()
        for begin, end in zip([0, *cuts], [*cuts, len(slots)], strict=True):
            yield Visit(int(low[begin]), int(reached[end - 1]), slots[begin:end], _NO_CHUNKS)
