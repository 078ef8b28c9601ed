"""Gathers the master columns of output rows from many pages until a batch is full.

Each page has only a few matches, and an output batch per page would cost more than its rows. So
values are copied straight into the buffers of the batch while their page is in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.engine.rows.layout import is_large, is_text, width_of
from semistream.engine.rows.page_columns import PageColumns, corrupt_text

_SMALL = 4  # a batch of fewer than capacity // 4 rows is copied out of the buffers


class RowBuffer:
    """Buffers for ``most`` rows of some columns, about ``row_bytes`` each."""

    def __init__(self, types: Sequence[pa.DataType], most: int, row_bytes: float) -> None:
        self.most = most
        self.count = 0
        texts = sum(map(is_text, types))
        fixed = sum(width_of(kind) or 0 for kind in types)
        text_bytes = int(most * max(0.0, row_bytes - fixed) / max(1, texts))
        self._buffers = _Buffers(len(types))
        self._columns = [
            _Column(kind, most, text_bytes, self._buffers, i) for i, kind in enumerate(types)
        ]
        self._widths = np.array([column.width for column in self._columns], np.int64)
        self._begun = False

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self._columns)

    def add(self, columns: PageColumns, places: Any, rows: Any) -> None:
        """Append row ``rows[i]`` of the page at ``places[i]``, for every i."""
        if not self._begun:
            self._begun = True
            for column in self._columns:
                column.begin()
        if columns.known_plain:
            self._append(columns, places, rows)
        else:
            for i, column in enumerate(self._columns):
                column.add(columns, i, places, rows, self.count)
        self.count += len(rows)

    def _append(self, columns: PageColumns, places: Any, rows: Any) -> None:
        """All columns with one compiled call, or more if a text buffer must grow."""
        b = self._buffers
        while True:
            lacking = kernels.pages.append(
                *columns.addresses, self._widths, places, rows, self.count,
                b.values, b.contents, b.used, b.room,
            )  # fmt: skip
            if lacking == -1:
                return
            if lacking < 0:
                raise corrupt_text()
            self._columns[lacking].grow(0)

    def clear(self) -> None:
        """Discard the gathered rows."""
        self.count = 0
        self._begun = False
        for column in self._columns:
            column.clear()

    def finish(self) -> list[pa.Array]:
        """Return the gathered rows as arrays, and start again with no rows."""
        small = self.count * _SMALL < self.most
        arrays = [column.finish(self.count, small) for column in self._columns]
        self.count = 0
        self._begun = small
        return arrays


class _Buffers:
    """Addresses and fill levels of the columns' buffers, for compiled code."""

    def __init__(self, columns: int) -> None:
        self.values = np.zeros(columns, np.int64)
        self.contents = np.zeros(columns, np.int64)
        self.used = np.zeros(columns, np.int64)
        self.room = np.zeros(columns, np.int64)


class _Column:
    """One column: a buffer for plain values, and pieces gathered by Arrow for all others."""

    def __init__(
        self, kind: pa.DataType, most: int, text_bytes: int, buffers: _Buffers, place: int
    ) -> None:
        self._kind = kind
        self._most = most
        self._is_text = is_text(kind)
        self._offset = np.int64 if is_large(kind) else np.int32
        self.width = width_of(kind) or 0  # bytes of a value; for text, minus the bytes of an offset
        if self._is_text:
            self.width = -np.dtype(self._offset).itemsize
        self._text_bytes = text_bytes if self._is_text else 0
        self._buffers = buffers
        self._place = place
        self._values: Any = None
        self._content: Any = None

    @property
    def nbytes(self) -> int:
        content = self._text_bytes if self._content is None else len(self._content)
        return (self._most + self._is_text) * abs(self.width) + content

    @property
    def _used(self) -> int:
        return int(self._buffers.used[self._place])

    def clear(self) -> None:
        self._values = self._content = None

    def begin(self) -> None:
        self._pieces: list[pa.Array] = []
        self._start = 0
        self._buffers.used[self._place] = 0
        if self._is_text:
            self._values = np.empty(self._most + 1, self._offset)
            self._values[0] = 0
            self._hold(np.empty(self._text_bytes, np.uint8))
        else:
            self._values = np.empty(self._most * self.width, np.uint8)
        self._buffers.values[self._place] = self._values.ctypes.data

    def _hold(self, content: Any) -> None:
        self._content = content
        self._buffers.contents[self._place] = content.ctypes.data
        self._buffers.room[self._place] = len(content)

    def grow(self, end: int) -> None:
        """Double the buffer for texts, to at least ``end`` bytes."""
        grown = np.empty(max(end, 2 * len(self._content), 64), np.uint8)
        grown[: self._used] = self._content[: self._used]
        self._hold(grown)

    def add(self, columns: PageColumns, i: int, places: Any, rows: Any, at: int) -> None:
        if not columns.plain(i):
            self._seal(at, copy=True)
            self._pieces.append(columns.take_with_arrow(i, places, rows))
            self._start = at + len(rows)
            if self._is_text:
                self._values[self._start] = self._used
        elif not self._is_text:
            columns.copy_fixed(i, places, rows, self._values[at * self.width :])
        else:
            offsets = self._values[at : at + len(rows) + 1]
            end = columns.measure_text(i, places, rows, offsets, self._used)
            if end > len(self._content):
                self.grow(end)
            columns.copy_text(i, places, rows, offsets, self._content)
            self._buffers.used[self._place] = end

    def _seal(self, end: int, copy: bool) -> None:
        """Turn the buffered rows from ``_start`` to ``end`` into a piece."""
        if end == self._start:
            return
        count = end - self._start
        if self._is_text:
            values, content = self._values[self._start : end + 1], self._content[: self._used]
            if copy:
                values, content = values.copy(), content.copy()
            buffers = [None, pa.py_buffer(values), pa.py_buffer(content)]
        else:
            values = self._values[self._start * self.width : end * self.width]
            buffers = [None, pa.py_buffer(values.copy() if copy else values)]
        self._pieces.append(pa.Array.from_buffers(self._kind, count, buffers))

    def finish(self, count: int, small: bool) -> pa.Array:
        self._seal(count, copy=small)
        pieces = self._pieces
        if small:
            self._pieces, self._start = [], 0
            self._buffers.used[self._place] = 0
        else:
            self.clear()  # the batch owns the buffers now
        return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
