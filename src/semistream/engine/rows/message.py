"""Makes record batches of a few rows with one allocation and one call of Arrow.

An Arrow object for each column and each buffer costs more than the copy of a few rows. So compiled
code writes the columns behind each other, as an IPC message (:mod:`semistream.kernels.message`),
which Arrow opens as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.engine.rows.column_nodes import ColumnNodes
from semistream.engine.rows.node_buffers import corrupt_offsets
from semistream.errors import SchemaError
from semistream.kernels import column_forms as forms

FEW_ROWS = 1024  # of a batch that is written as one message; beyond this it saves little
_PREFIX = 8  # bytes of a message before its metadata
_ALIGNED = 64
_EXPORTED = 80  # bytes of the C data interface's struct ArrowArray


class Message:
    """Record batches of one schema; ``stream`` columns of it come from the stream, the others from
    the master."""

    def __init__(self, schema: pa.Schema, stream: int) -> None:
        self._schema = schema
        row = pa.RecordBatch.from_arrays(
            [pa.nulls(1, kind) for kind in schema.types], schema=schema
        )
        template = row.serialize()
        self._body = _PREFIX + int.from_bytes(template[4:8].to_pybytes(), "little")
        self._template = np.frombuffer(template, np.uint8, self._body).copy()
        self._template_at = self._template.ctypes.data
        numbers = kernels.page_format.message_numbers(self._template_at)
        self._numbers = np.array(numbers, np.int64) - self._template_at
        every = flat_forms(schema.types)
        assert every is not None
        self._forms = every[:stream].copy(), every[stream:].copy()
        self._out = tuple(np.zeros((forms.OUT_ROWS, len(some)), np.int64) for some in self._forms)
        self._both = self._forms[0], self._out[0], self._forms[1], self._out[1]
        # Bytes of a batch beside those of its rows, at most.
        self.overhead = self._body + 3 * _ALIGNED * len(schema)
        self._made: pa.Buffer = None
        self._side = self._count = self._at = self._end = self._limit = 0

    def begin(self, count: int, nbytes: int) -> None:
        """Start a batch of so many rows with up to ``nbytes`` bytes."""
        self._made = pa.allocate_buffer(nbytes + self.overhead, resizable=True)
        self._side, self._count = 0, count
        self._at, self._limit = self._made.address, nbytes + self.overhead
        self._end = kernels.message.begin(
            count, self._template_at, self._body, self._at, self._limit, *self._both
        )

    # Each of these writes the next columns: first those of the stream, then those of the master.

    def add_pages(self, pages: Any, places: Any, rows: Any) -> None:
        """Row ``rows[i]`` of the page at ``places[i]``, for every i."""
        if self._end >= 0:
            some = self._forms[self._side]
            self._added(kernels.message.add_pages(pages, some, places, rows, *self._room()))

    def add_buffers(self, gathered: Any) -> None:
        """The rows in output buffers."""
        if self._end >= 0:
            some = self._forms[self._side]
            self._added(kernels.message.add_buffers(gathered, some, self._count, *self._room()))

    def add_stored(self, *stored: Any) -> None:
        """Rows of a row store, as it describes them."""
        if self._end >= 0:
            self._added(kernels.message.add_stored(*stored, self._forms[self._side], *self._room()))

    def refuse(self) -> None:
        """Some rows cannot be written."""
        self._end = forms.FULL

    def _room(self) -> tuple[Any, ...]:
        return self._at, self._end, self._limit, self._out[self._side]

    def _added(self, end: int) -> None:
        if end == forms.CORRUPT and self._side:  # taking a stream's rows raises another error
            raise corrupt_offsets()
        self._end = end
        self._side += 1

    def finish(self) -> pa.RecordBatch | None:
        """The batch; None if it had no room, or was refused."""
        made, self._made = self._made, None
        if self._end < 0:
            return None
        end = -(-self._end // _PREFIX) * _PREFIX
        kernels.message.finish(self._count, *self._both, self._numbers, self._at, self._body, end)
        made.resize(end, shrink_to_fit=True)
        return pa.ipc.read_record_batch(made, self._schema)


def flat_forms(types: Sequence[pa.DataType]) -> Any:
    """The forms of columns of these types; None if one is neither of fixed width nor text."""
    try:
        nodes = ColumnNodes(types)
    except SchemaError:
        return None
    if not types or len(nodes) > len(types) or (nodes.forms == forms.EMPTY).any():
        return None
    return None if (nodes.forms <= forms.LIST).any() else nodes.forms


class BatchAddresses:
    """Where compiled code finds the columns of record batches that have these forms."""

    def __init__(self, column_forms: Any) -> None:
        self._forms = column_forms
        self._texts = np.flatnonzero(column_forms < forms.BITS).tolist()
        self._shape = forms.PAGE_ROWS, len(column_forms), 1
        self._struct = np.zeros(_EXPORTED, np.uint8)
        self._at = self._struct.ctypes.data

    def of(self, batch: pa.RecordBatch) -> Any:
        """The batch as one page, as long as it is alive; None if a column has no values."""
        columns = np.empty(self._shape, np.int64)
        batch._export_to_c(self._at)
        whole = kernels.message.open_exported(self._at, self._forms, columns)
        for n in self._texts:  # the struct has no sizes, and offsets may be wrong
            content = batch.column(n).buffers()[2]
            columns[forms.SIZE, n, 0] = 0 if content is None else content.size
        return columns if whole else None
