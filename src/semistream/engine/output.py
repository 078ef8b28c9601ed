"""Output: finished batches, and how many rows may be built at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from semistream.engine.context import Context
from semistream.engine.rows.message import FEW_ROWS, Message, flat_forms

_FEW_SHARE = 4  # of the bytes of output rows, for such a batch

Divert = Callable[[Sequence[pa.Array], int], tuple[Sequence[pa.Array], int]]
"""Takes some of the given unmatched tuples; returns the others."""


class Output:
    """The queue of finished output batches.

    ``most_rows`` is how many output rows may be built at once: it follows from the bytes that
    the plan gives to output and from the widest row seen so far.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._binding = context.binding
        self.ready: deque[pa.RecordBatch] = deque()
        self.most_rows = 1
        self._planned_bytes = 0
        self._planned_rows = 1
        self._row_bytes = 1
        self._message: Message | None = None  # for batches of a few rows
        self._beside = 0  # bytes of ready messages beside those of their rows, at most
        self.few_rows = 0  # most rows of such a batch
        self.divert: Divert | None = None  # where unmatched tuples go first: parking

    def allocate(self, nbytes: int, rows: int, row_bytes: int) -> None:
        """Set the byte budget of output rows, and ``rows``, the capacity of the row buffers."""
        self._planned_bytes, self._planned_rows = nbytes, rows
        schema, stream = self._binding.schema, self._binding.stream_schema
        if schema is not None and stream is not None and flat_forms(schema.types) is not None:
            self._message = Message(schema, len(stream))
        self.set_row_bytes(row_bytes)

    def set_row_bytes(self, row_bytes: int) -> None:
        """Adapt ``most_rows`` to the widest row. Rows briefly exist twice: buffers and batch."""
        fit = self._planned_bytes // (2 * row_bytes)
        self.most_rows = max(1, min(self._planned_rows, fit))
        self._row_bytes = row_bytes
        if self._message is not None:
            few = (self._planned_bytes // _FEW_SHARE - self._message.overhead) // row_bytes
            self.few_rows = max(0, min(FEW_ROWS, self.most_rows, few))

    def __bool__(self) -> bool:
        return bool(self.ready)

    @property
    def nbytes(self) -> int:
        """Bytes of the batches that the caller has not taken."""
        total = sum(int(rows.get_total_buffer_size()) for rows in self.ready)
        return total + self._beside

    def pop(self) -> pa.RecordBatch:
        rows = self.ready.popleft()
        if not self.ready:
            self._beside = 0
        self._context.stats.rows_out += rows.num_rows
        return rows

    def emit(self, stream: Sequence[pa.Array], master: Sequence[pa.Array]) -> None:
        rows = pa.RecordBatch.from_arrays([*stream, *master], schema=self._binding.schema)
        self.ready.append(rows)

    def begin_few(self, count: int) -> Message:
        """Start a batch of at most ``few_rows`` rows; see :meth:`emit_few`."""
        assert self._message is not None
        self._message.begin(count, count * self._row_bytes)
        return self._message

    def emit_few(self) -> bool:
        """Emit the rows that were written since :meth:`begin_few`; False: they must be emitted
        as arrays."""
        assert self._message is not None
        rows = self._message.finish()
        if rows is None:
            return False
        self.ready.append(rows)
        self._beside += self._message.overhead
        return True

    @property
    def wants_unmatched(self) -> bool:
        return self.divert is not None or self._binding.how in ("left", "left_anti")

    def emit_unmatched(self, stream: Sequence[pa.Array], count: int) -> None:
        """Emit unmatched tuples, if ``how`` keeps them."""
        if count and self.divert is not None:
            stream, count = self.divert(stream, count)
        if count and self._binding.how in ("left", "left_anti"):
            self.emit(stream, self._binding.nulls(count))

    def emit_unmatched_rows(self, batch: pa.RecordBatch, rows: Any) -> None:
        """The same for tuples that never entered the window."""
        if len(rows) and self.wants_unmatched:
            self.emit_unmatched(batch.take(pa.array(rows)).columns, len(rows))
