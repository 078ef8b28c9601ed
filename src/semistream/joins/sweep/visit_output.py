"""Gathers the output rows of several visits until a batch is full.

Each page has only a few matches, and an output batch per page would cost more than its rows.
Master columns are copied while their page is in memory, stream columns when the batch is built, so
the slots of served tuples are freed only then.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from semistream.engine.context import Context
from semistream.engine.output import Output
from semistream.engine.rows.layout import Slots
from semistream.engine.rows.page_columns import PageColumns
from semistream.engine.rows.row_buffer import RowBuffer
from semistream.engine.shape import TableShape
from semistream.joins.sweep.plan import SweepPlan
from semistream.joins.sweep.stretch_window import StretchWindow
from semistream.joins.sweep.visit import Visit
from semistream.kernels import states


class VisitOutput:
    """Pairs and absent tuples of the last visits, and the visits whose slots are to be freed."""

    def __init__(
        self,
        context: Context,
        output: Output,
        window: StretchWindow,
        table: TableShape,
        plan: SweepPlan,
    ) -> None:
        self._how = context.binding.how
        self._output = output
        self._window = window
        most, row_bytes = plan.output_rows, min(table.row_bytes, plan.widest_row)
        self._gathered = RowBuffer(table.output_types, most, row_bytes)
        self._has_columns = len(table.output_types) > 0
        self._partners: list[Slots] = []  # the tuples of the gathered rows
        self._absent: list[Slots] = []
        self._absent_count = 0
        self._served: list[Visit] = []
        self.served_tuples = 0
        self.places = np.empty(most, np.int32)  # scratch for one call of a matching kernel
        self.rows = np.empty(most, np.int32)
        self.slots = np.empty(most, np.int32)

    @property
    def nbytes(self) -> int:
        scratch = self.places.nbytes + self.rows.nbytes + self.slots.nbytes
        return self._gathered.nbytes + scratch

    @property
    def served_visits(self) -> int:
        return len(self._served)

    def room(self, part: int | None = None) -> int:
        """Rows that can still be gathered; at least one, or this part of a batch: a batch with less
        room is handed over."""
        most = self._output.most_rows  # it shrinks when a wide tuple arrives
        least = 1 if part is None else max(1, most // part)
        if most - self._gathered.count < least:
            self.hand_over()
        return most - self._gathered.count

    def add(self, columns: PageColumns | None, places: Any, rows: Any, slots: Any) -> None:
        """Add pairs of page rows (row ``rows[i]`` of page ``places[i]``) and tuples."""
        if self._how == "left_anti" or not len(rows):
            return
        if columns is not None:
            self._gathered.add(columns, places, rows)
        else:
            self._gathered.count += len(rows)
        self._partners.append(slots.copy())
        if self._gathered.count >= self._output.most_rows:
            self.hand_over()

    def add_absent(self, slots: Slots) -> Slots:
        """Add unmatched tuples, if ``how`` keeps them; returns those that do not fit into this
        batch."""
        if not self._output.wants_unmatched:
            return slots[:0]
        some = slots[: self._output.most_rows - self._absent_count]
        self._absent.append(some)
        self._absent_count += len(some)
        self._window.state[some] = states.ABSENT
        if self._absent_count >= self._output.most_rows:
            self.hand_over()
        return slots[len(some) :]

    def _emit_few(self, slots: Slots) -> bool:
        """Emit the gathered rows as one message; False: it has no room."""
        message = self._output.begin_few(len(slots))
        self._window.write(message, slots)
        if self._has_columns:
            self._gathered.write(message)
        if not self._output.emit_few():
            return False
        self._gathered.reset()
        return True

    def add_served(self, visit: Visit) -> None:
        self._served.append(visit)
        self.served_tuples += len(visit.slots)

    def hand_over(self) -> None:
        """Emit the gathered rows, and free the slots of served tuples."""
        if self._partners:
            parts, self._partners = self._partners, []
            slots = parts[0] if len(parts) == 1 else np.concatenate(parts)
            if len(slots) > self._output.few_rows or not self._emit_few(slots):
                columns = self._gathered.finish()
                self._output.emit(self._window.take(slots), columns)
        if self._absent:
            absent = np.concatenate(self._absent)
            self._absent, self._absent_count = [], 0
            self._output.emit_unmatched(self._window.take(absent), len(absent))
        for visit in self._served:
            self._window.free(visit.slots, visit.chunks)
        self._served.clear()
        self.served_tuples = 0
