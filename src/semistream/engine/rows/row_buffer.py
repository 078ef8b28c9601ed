"""Gathers the master columns of output rows from many pages until a batch is full.

Each page has only a few matches, and an output batch per page would cost more than its rows. So
values are copied straight into the buffers of the batch while their page is in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from semistream.engine.rows.column_nodes import ColumnNodes
from semistream.engine.rows.message import Message
from semistream.engine.rows.node_buffers import NodeBuffers
from semistream.engine.rows.page_columns import PageColumns

_SMALL = 4  # a batch of fewer than capacity // 4 rows is copied out of the buffers


class RowBuffer:
    """Buffers for ``most`` rows of some columns, about ``row_bytes`` each."""

    def __init__(self, types: Sequence[pa.DataType], most: int, row_bytes: float) -> None:
        self.most = most
        self.count = 0
        self._buffers = NodeBuffers(ColumnNodes(types), most, most * row_bytes)
        self._begun = False

    @property
    def nbytes(self) -> int:
        return self._buffers.nbytes

    def add(self, columns: PageColumns, places: Any, rows: Any) -> None:
        """Append row ``rows[i]`` of the page at ``places[i]``, for every i."""
        if not self._begun:
            self._begun = True
            self._buffers.allocate()
        self._buffers.append(columns.addresses, places, rows, self.count)
        self.count += len(rows)

    def clear(self) -> None:
        """Discard the gathered rows."""
        self.count = 0
        self._begun = False
        self._buffers.release()

    def write(self, message: Message) -> None:
        """Write the gathered rows, if they are few. They stay: see :meth:`reset`."""
        self._buffers.write(message)

    def reset(self) -> None:
        """Start again with no rows in the same buffers."""
        self._buffers.reset()
        self.count = 0

    def finish(self) -> list[pa.Array]:
        """Return the gathered rows as arrays, and start again with no rows."""
        small = self.count * _SMALL < self.most
        arrays = self._buffers.arrays(self.count, copy=small)
        if small:
            self._buffers.reset()
        else:
            self._buffers.release()  # the batch owns the buffers now
        self.count = 0
        self._begun = self._begun and small
        return arrays
