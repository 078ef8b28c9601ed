"""Output rows of one portion of the stream, which leave in the order of their tuples.

A row is its tuple's number and the master's columns, in the batch in which the join has returned
it; the stream's columns are still in the portion. The order is computed from the numbers, and
compiled code gathers each batch that is returned, so that no row exists twice but those of one
batch::

    portion    n k t ...            rows    number | price supplier ...
               0 7 .                          2    |  9.5     4
               1 3 .                          0    |  8.0     1
               2 9 .                          1    |  7.5     2
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.engine.rows.page_columns import PageColumns
from semistream.keys import int64_view

_ORDER_BYTES = 4 + 4 + 4  # per row: number, place in the order, and a counter


class ReorderBuffer:
    """Rows of one portion, in at most ``room`` bytes."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.begin(pa.record_batch({}), 0)

    def begin(self, portion: pa.RecordBatch, first: int) -> None:
        """Start without rows, for these tuples, whose numbers begin with ``first``."""
        self.portion = portion
        self.rows = 0
        self.nbytes = 0
        self._first = first
        self._batches: list[list[pa.Array]] = []
        self._numbers: list[Any] = []
        self._order: Any = None  # rows that have not been returned; None: not sorted yet

    def clear(self) -> None:
        self.begin(self.portion.slice(0, 0), 0)

    def add(self, numbers: pa.Array, columns: list[pa.Array]) -> bool:
        """Keep these rows; returns whether they fit. If not, they are not kept."""
        nbytes = len(numbers) * _ORDER_BYTES
        nbytes += sum(column.get_total_buffer_size() for column in columns)
        if self.nbytes + nbytes > self.room:
            return False
        self._numbers.append((int64_view(numbers) - self._first).astype(np.int32))
        self._batches.append(columns)
        self.rows += len(numbers)
        self.nbytes += nbytes
        return True

    def sort(self) -> None:
        """All rows are here; ``take`` returns them."""
        self._starts = np.cumsum([0, *map(len, self._numbers)])
        numbers = np.concatenate(self._numbers)
        self._order = kernels.order.by_number(numbers, self.portion.num_rows)
        self._numbers = [numbers]
        types = [column.type for column in self._batches[0]]
        self._columns = PageColumns(types, len(self._batches))
        for place, columns in enumerate(self._batches):
            self._columns.put(place, columns)

    @property
    def is_sorted(self) -> bool:
        """Whether there are rows to return."""
        return self._order is not None

    def take(self, most: int, schema: pa.Schema) -> pa.RecordBatch:
        """The next rows."""
        chosen, self._order = self._order[:most], self._order[most:]
        places = np.searchsorted(self._starts, chosen, side="right") - 1
        master = self._columns.take(places, chosen - self._starts[places])
        stream = self.portion.take(pa.array(self._numbers[0][chosen])).columns
        if not len(self._order):
            self.clear()
        return pa.RecordBatch.from_arrays([*stream, *master], schema=schema)
