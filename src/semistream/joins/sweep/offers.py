"""Collects hot rows, and offers many at a time to the front stage."""

from __future__ import annotations

from typing import Any

import numpy as np

from semistream.engine.context import Context
from semistream.engine.front.contract import FrontStage
from semistream.engine.front.learner import report
from semistream.engine.rows.row_buffer import RowBuffer
from semistream.engine.shape import TableShape
from semistream.joins.sweep.page_map import MappedScan
from semistream.joins.sweep.plan import SweepPlan
from semistream.joins.sweep.stretch_window import StretchWindow


class Offers:
    """Candidates of the last visits; their rows are copied while their page is in memory."""

    def __init__(self, context: Context, table: TableShape, plan: SweepPlan) -> None:
        self._context = context
        row_bytes = min(table.row_bytes, plan.widest_row)
        self._rows = RowBuffer(table.output_types, plan.offers, row_bytes)
        self._keys: list[tuple[Any, Any]] = []  # codes and worths

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    def collect(
        self,
        front: FrontStage,
        window: StretchWindow,
        scan: MappedScan,
        places: Any,
        rows: Any,
        slots: Any,
    ) -> None:
        """Collect the rows of these pairs that reach the front stage's threshold."""
        first, worth = front.candidates(places, rows, slots, window.codes)
        buffer = self._rows
        while len(first):
            room = buffer.most - buffer.count
            some, first = first[:room], first[room:]
            buffer.add(scan.columns, places[some], rows[some])
            self._keys.append((window.codes[slots[some]], worth[:room]))
            worth = worth[room:]
            if buffer.count == buffer.most:
                self._offer(front)

    def _offer(self, front: FrontStage) -> None:
        codes = np.concatenate([codes for codes, _ in self._keys])
        worth = np.concatenate([worth for _, worth in self._keys])
        columns, rows = self._rows.finish(), np.arange(len(codes))
        self._keys.clear()
        report(self._context, front, *front.offer(codes, np.ones_like(rows), worth, columns, rows))

    def withdraw(self) -> None:
        """Discard the collected rows: the table has changed."""
        self._keys.clear()
        self._rows.clear()
