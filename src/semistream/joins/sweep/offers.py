"""Collects hot rows, and offers many at a time to the front stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from semistream.engine.context import Context
from semistream.engine.front.contract import FrontStage
from semistream.engine.front.learner import report
from semistream.engine.rows.layout import ranges
from semistream.engine.rows.page_opener import LoadedPages
from semistream.engine.rows.row_buffer import RowBuffer
from semistream.engine.shape import TableShape
from semistream.joins.sweep.plan import SweepPlan
from semistream.joins.sweep.stretch_window import StretchWindow
from semistream.keys import Codes, Mask

_SMALL_PART = 1024  # of a front stage that is filling, and may lack this share of its rows


class Offers:
    """Keys of the last visits with all their rows, copied while their page is in memory."""

    def __init__(self, context: Context, table: TableShape, plan: SweepPlan) -> None:
        self._context = context
        row_bytes = min(table.row_bytes, plan.widest_row)
        types, columns = table.cached_types, len(table.output_types)
        keys = columns + len(context.binding.compared_keys)
        self._rows = RowBuffer(types[:columns], plan.offers, row_bytes)
        self._keys = RowBuffer(types[columns:keys], plan.offers, row_bytes)
        self._further = RowBuffer(types[keys:], plan.offers, row_bytes)
        self._offered: list[tuple[Any, Any, Any]] = []  # codes, rows of each, worths
        # Which codes must not enter the front stage, as their rows are of an older version.
        self.outdated: Callable[[Codes], Mask] | None = None

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes + self._keys.nbytes + self._further.nbytes

    def collect(
        self,
        front: FrontStage,
        window: StretchWindow,
        loaded: LoadedPages,
        places: Any,
        rows: Any,
        slots: Any,
    ) -> None:
        """Collect the rows of the keys in these pairs that reach the front stage's threshold."""
        first, counts, worth = front.candidates(places, rows, slots, window.codes)
        if self.outdated is not None and len(first):
            fresh = ~self.outdated(window.codes[slots[first]])
            first, counts, worth = first[fresh], counts[fresh], worth[fresh]
        while len(first):
            room = self._rows.most - self._rows.count
            fit = int(counts.cumsum().searchsorted(room, side="right"))
            if fit:
                some, sizes = first[:fit], counts[:fit]
                pairs = ranges(some, sizes) if sizes.max() > 1 else some
                self._copy(loaded, places[pairs], rows[pairs])
                self._offered.append((window.codes[slots[some]], sizes, worth[:fit]))
            elif not self._rows.count:  # more rows than can ever be offered
                fit = 1
            first, counts, worth = first[fit:], counts[fit:], worth[fit:]
            if len(first) or self._rows.count == self._rows.most:
                self.offer(front)

    def _copy(self, loaded: LoadedPages, places: Any, rows: Any) -> None:
        self._rows.add(loaded.columns, places, rows)
        if loaded.keys is not None:
            self._keys.add(loaded.keys, places, rows)
        if loaded.further is not None:
            self._further.add(loaded.further, places, rows)

    def visit_over(self, front: FrontStage) -> None:
        """Offer what was collected if it is much; earlier while the front stage is filling."""
        enough = -(-self._rows.most // 2)
        if 10 * front.count < 9 * front.capacity:
            most = self._context.settings.offers_while_filling
            enough = max(1, min(enough, most, front.capacity // _SMALL_PART))
        if self._rows.count >= enough:
            self.offer(front)

    def offer(self, front: FrontStage) -> None:
        """Offer what was collected."""
        if not self._offered:
            return
        codes, counts, worth = (np.concatenate(part) for part in zip(*self._offered, strict=True))
        columns = [*self._rows.finish(), *self._keys.finish(), *self._further.finish()]
        rows = np.arange(int(counts.sum()))
        self._offered.clear()
        report(self._context, front, *front.offer(codes, counts, worth, columns, rows))

    def withdraw(self) -> None:
        """Discard the collected rows: the table has changed."""
        self._offered.clear()
        self._rows.clear()
        self._keys.clear()
        self._further.clear()
