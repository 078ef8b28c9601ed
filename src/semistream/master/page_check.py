"""Validates a page before compiled code reads it.

Compiled code follows a page's offsets without bounds checks. A checksum proves that a page is
unchanged, not that it was written correctly. So every page is validated once, when a process first
reads it: its metadata, buffers, offsets, rows and keys.

Only the structure is checked. Invalid UTF-8 or impossible dates are passed on unchanged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.keys import KeyCodec
from semistream.master.index import SegmentPages

_WIDTHS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_ALIGNED = 8
UNREADABLE = (pa.ArrowException, OSError, EOFError, KeyError, ValueError, MemoryError)
"""The exceptions that Arrow raises for malformed bytes."""


class PageCheck:
    """The check for pages of one schema, sorted by these key columns."""

    def __init__(self, schema: pa.Schema, key: pa.Schema) -> None:
        self._schema = schema
        self._bare = pa.schema([_bare_field(field) for field in schema])
        self._key = [schema.get_field_index(name) for name in key.names]
        self._codec = KeyCodec.for_types(key.types)

    def problem(
        self, data: Any, rows: int, first: pa.RecordBatch, last: pa.RecordBatch
    ) -> str | None:
        """The problem of these bytes as a page of ``rows`` rows; None if it is valid.

        ``first`` and ``last`` are one row each: the page's first and last key in the page index.
        """
        found = self.malformed(data, rows)
        if found is not None:
            return found
        try:
            return self._order(data, first, last)
        except UNREADABLE as error:
            return f"its keys cannot be read ({error})"

    def malformed(self, data: Any, rows: int) -> str | None:
        """The same without checking the keys."""
        try:
            return self._structure(data, rows)
        except UNREADABLE as error:
            return f"its content cannot be read ({error})"

    def _structure(self, data: Any, rows: int) -> str | None:
        batch = pa.ipc.read_record_batch(data, self._bare)
        if batch.num_rows != rows:
            return f"it has {batch.num_rows} rows instead of {rows} as in its index"
        batch.validate(full=True)
        end = data.address + data.size
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            for buffer in column.buffers():
                if buffer is None or not buffer.size:
                    continue
                at = buffer.address - data.address
                if at < 0 or buffer.address + buffer.size > end or at % _ALIGNED:
                    return f"the values of {name!r} are compressed or outside the page"
        return None

    def _order(self, data: Any, first: pa.RecordBatch, last: pa.RecordBatch) -> str | None:
        batch = pa.ipc.read_record_batch(data, self._schema)
        if not batch.num_rows:
            return None
        keys = [batch.column(i) for i in self._key]
        if any(column.null_count for column in keys):
            return "a key is null"
        for place, ends in ((0, first), (batch.num_rows - 1, last)):
            same = zip(keys, ends.columns, strict=True)
            if not all(column.slice(place, 1).equals(end) for column, end in same):
                return "its first or last key is not the one in the page index"
        if self._codec.exact:
            codes, _ = self._codec.codes(keys)
            return None if bool(np.all(codes[:-1] <= codes[1:])) else "its keys are out of order"
        return None if _is_sorted(self._codec.adopt(keys)) else "its keys are out of order"


def index_problem(pages: SegmentPages, file_bytes: int) -> str | None:
    """The problem of a page index; None if its pages are inside the file, in order."""
    numbers = (pages.offsets, pages.lengths, pages.rows, pages.max_row_bytes)
    if any(column.dtype != np.int64 for column in numbers):
        return "a number is missing"
    if pages.firsts.num_columns and any(
        column.null_count for column in (*pages.firsts.columns, *pages.lasts.columns)
    ):
        return "a key is null"
    if not len(pages):
        return None
    begins, sizes = pages.offsets, pages.lengths
    if min(begins.min(), sizes.min() - 1, pages.rows.min() - 1, pages.max_row_bytes.min()) < 0:
        return "a page has no position, no bytes or no rows"
    if sizes.max() > file_bytes or (begins > file_bytes - sizes).any():
        return "a page is beyond the end of the file"
    if (begins[1:] < (begins + sizes)[:-1]).any():
        return "pages overlap"
    return None


def _is_sorted(columns: list[pa.Array]) -> bool:
    """Whether the rows are in ascending lexicographic order."""
    rows, order = len(columns[0]) - 1, None
    for column in reversed(columns):
        before, after = column.slice(0, rows), column.slice(1)
        if order is None:
            order = pc.less_equal(before, after)
        else:
            order = pc.or_(pc.less(before, after), pc.and_(pc.equal(before, after), order))
    return bool(pc.all(order, min_count=0).as_py())


def _bare_field(field: pa.Field) -> pa.Field:
    return field.with_type(_bare(field.type)).with_nullable(True)


def _bare(kind: pa.DataType) -> pa.DataType:
    """A type with the same buffers, for which any value is valid."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _bare(kind.storage_type)
    if types.is_string(kind):
        return pa.binary()
    if types.is_large_string(kind):
        return pa.large_binary()
    if types.is_decimal(kind):
        return pa.binary(kind.bit_width // 8)
    if types.is_struct(kind):
        return pa.struct([_bare_field(kind.field(i)) for i in range(kind.num_fields)])
    if types.is_map(kind):
        entry = pa.struct([_bare_field(kind.key_field), _bare_field(kind.item_field)])
        return pa.list_(entry)
    if types.is_fixed_size_list(kind):
        return pa.list_(_bare_field(kind.value_field), kind.list_size)
    if types.is_large_list(kind):
        return pa.large_list(_bare_field(kind.value_field))
    if types.is_list(kind):
        return pa.list_(_bare_field(kind.value_field))
    if types.is_primitive(kind) and not types.is_boolean(kind):
        return _WIDTHS.get(kind.bit_width, kind)
    return kind
