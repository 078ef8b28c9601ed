"""Intake: the queue of pushed batches that are not fully admitted yet, read in slices."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.engine.binding import Binding
from semistream.engine.context import Context
from semistream.engine.rows.layout import Rows, is_text, width_of
from semistream.engine.rows.message import FEW_ROWS, Message
from semistream.engine.rows.page_columns import PageColumns
from semistream.engine.window.tuple_layout import TupleLayout
from semistream.keys import Codes, Mask

_NO_ROWS = np.zeros(0, np.int64)
_FIRST_PAGE = np.zeros(FEW_ROWS, np.int32)


class Slice:
    """The part of a batch that is being admitted, with its key codes."""

    def __init__(self, batch: pa.RecordBatch, context: Context, layout: TupleLayout) -> None:
        self.batch = batch
        self._layout = layout
        self._addresses: Any = None
        self.codes, self.valid = self._codes(context.binding)
        self.position = 0
        self.is_observed = False  # counted by a join that samples the head of the stream
        self._keys = context.binding.stream_key
        self._codec = context.binding.codec
        self._key_columns: PageColumns | None = None
        self.compared: Any = None  # the columns that conditions compare, for compiled code
        self._all: list[pa.Array] | None = None
        self._is_plain = False

    def _codes(self, binding: Binding) -> tuple[Codes, Mask | None]:
        """The code of every key, and which keys are not null; None: all."""
        rows, key = self.batch.num_rows, self._layout.native_key
        if not binding.has_key:  # conditions alone decide: every tuple meets every row
            return np.zeros(rows, np.int64), None
        # The columns of a few tuples are needed by their addresses, which costs more than a copy.
        if key >= 0 and rows <= FEW_ROWS and self.addresses() is not None:
            codes = np.empty(rows, np.int64)
            if kernels.message.copy_codes(self._addresses, key, codes):
                return codes, None
        return binding.codec.codes(self._layout.key_columns(self.batch))

    def _columns(self) -> list[pa.Array]:
        """All columns; a batch of a few tuples may need no Arrow object for each."""
        if self._all is None:
            self._all = self.batch.columns
            self._is_plain = self._layout.plain.fit(self._all)
        return self._all

    @property
    def columns(self) -> list[pa.Array]:
        """The columns that wait in a window."""
        columns = self._columns()
        return [columns[i] for i in self._layout.kept]

    def addresses(self) -> Any:
        """All columns as one page, for compiled code; None: it cannot read them."""
        if self._addresses is None and self._layout.addresses is not None:
            self._addresses = self._layout.addresses.of(self.batch)
        return self._addresses

    def write(self, message: Message, rows: Rows) -> None:
        """Write a few rows of the batch's columns."""
        addresses = self.addresses()
        if addresses is None:
            message.refuse()
        else:
            message.add_pages(addresses, _FIRST_PAGE[: len(rows)], rows)

    def take(self, rows: Rows) -> Sequence[pa.Array]:
        """These rows of the batch's columns."""
        columns = self._columns()
        if self._is_plain:
            return self._layout.plain.take(columns, rows)
        return self.batch.take(pa.array(rows)).columns  # type: ignore[no-any-return]

    def keys(self, rows: Rows | None = None) -> list[pa.Array]:
        """The key columns, or these rows of them."""
        columns = [self.batch.column(name) for name in self._keys]
        return columns if rows is None else [column.take(pa.array(rows)) for column in columns]

    def key_columns(self) -> PageColumns:
        """The key columns, for compiled code."""
        if self._key_columns is None:
            columns = self.keys()
            if not all(is_text(column.type) or width_of(column.type) for column in columns):
                columns = self._codec.adopt(columns)  # dictionaries and views
            self._key_columns = PageColumns([column.type for column in columns], 1)
            self._key_columns.put(0, columns)
        return self._key_columns

    def without_key(self, stop: int) -> Rows:
        """Rows before ``stop`` whose key is null."""
        if self.valid is None:
            return _NO_ROWS
        return self.position + np.flatnonzero(~self.valid[self.position : stop])


class _Pushed:
    def __init__(self, batch: pa.RecordBatch, version: int) -> None:
        self.batch = batch
        self.version = version
        self.taken = 0


class Intake:
    """A queue of pushed batches, each with the table version that it must be joined with."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._batches: deque[_Pushed] = deque()
        self._slice: Slice | None = None
        self.layout: TupleLayout | None = None  # None before the first batch

    def __bool__(self) -> bool:
        return bool(self._batches)

    def push(self, batch: pa.RecordBatch, version: int) -> None:
        self._batches.append(_Pushed(batch, version))

    def redirect(self, old: int, new: int) -> None:
        """Join batches that were queued for version ``old`` with version ``new`` instead."""
        for pushed in self._batches:
            if pushed.version == old:
                pushed.version = new

    @property
    def version(self) -> int:
        """The table version that the next tuple must be joined with."""
        return self._batches[0].version

    @property
    def left(self) -> int:
        """Tuples of the first batch that are not admitted yet."""
        return self._batches[0].batch.num_rows - self._batches[0].taken if self._batches else 0

    def withdraw(self, most: int) -> list[pa.RecordBatch]:
        """Remove up to ``most`` of the newest tuples, for load shedding, in arrival order.

        Those of the slice that is being admitted stay.
        """
        found: list[pa.RecordBatch] = []
        for pushed in reversed(list(self._batches)):
            kept = pushed.taken
            if self._slice is not None and pushed is self._batches[0]:
                kept += self._slice.batch.num_rows - self._slice.position
            start = max(kept, pushed.batch.num_rows - most)
            part = pushed.batch.slice(start)
            if not part.num_rows:
                continue
            found.append(part)
            most -= part.num_rows
            pushed.batch = pushed.batch.slice(0, start)
            if pushed.taken == start:
                self._batches.remove(pushed)
            if not most:
                break
        return found[::-1]

    def slice(self) -> Slice:
        if self._slice is None:
            first = self._batches[0]
            assert self.layout is not None
            rows, batch = self._context.settings.slice_rows, first.batch
            if first.taken or batch.num_rows > rows:
                batch = batch.slice(first.taken, rows)
            self._slice = Slice(batch, self._context, self.layout)
        return self._slice

    def skip_empty(self) -> bool:
        """Remove the first batch if it has no tuples."""
        if self._batches[0].batch.num_rows:
            return False
        self._batches.popleft()
        self._slice = None
        return True

    def consume(self, stop: int) -> None:
        """Mark the slice's tuples before ``stop`` as admitted."""
        part, first = self._slice, self._batches[0]
        assert part is not None
        first.taken += stop - part.position
        part.position = stop
        if stop == part.batch.num_rows:
            self._slice = None
        if first.taken >= first.batch.num_rows:
            self._batches.popleft()
            self._slice = None
