"""The check of pages by Arrow, for schemas that compiled code cannot check.

These have unions, or extension types that are stored as views. It takes much longer. The compiled
check is compared with it in tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from semistream.master.codes import KeyCodes

_WIDTHS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_ALIGNED = 8
UNREADABLE = (pa.ArrowException, OSError, EOFError, KeyError, ValueError, MemoryError)
"""The exceptions that Arrow raises for malformed bytes."""


class ArrowPageCheck:
    """Only the structure is checked: any value is valid."""

    def __init__(self, codes: KeyCodes) -> None:
        self._codes = codes
        self._bare = bare_schema(codes.schema)

    def malformed(self, data: Any, rows: int) -> str | None:
        """The problem of the structure of these bytes as a page of ``rows`` rows."""
        return malformed(data, rows, self._bare)

    def out_of_order(self, data: Any, first: int, last: int) -> str | None:
        """The problem of a well-formed page's keys and codes."""
        try:
            batch = pa.ipc.read_record_batch(data, self._codes.schema)
            if not batch.num_rows:
                return None
            keys = (*self._codes.keys(batch), batch.column(self._codes.column))
            if any(column.null_count for column in keys):
                return "a key is null"
            computed = self._codes.compute(batch)
        except UNREADABLE as error:
            return f"its keys cannot be read ({error})"
        codes = self._codes.stored(batch)
        if not np.array_equal(codes, computed):
            return "its codes are not those of its keys"
        if (codes[0], codes[-1]) != (first, last):
            return "its first or last key is not the one in the page index"
        return None if bool(np.all(codes[:-1] <= codes[1:])) else "its keys are out of order"


def malformed(data: Any, rows: int, bare: pa.Schema) -> str | None:
    """The problem of the structure of a page with a schema from :func:`bare_schema`."""
    try:
        batch = pa.ipc.read_record_batch(data, bare)
        if batch.num_rows != rows:
            return f"it has {batch.num_rows} rows instead of {rows} as in its index"
        batch.validate(full=True)
    except UNREADABLE as error:
        return f"its content cannot be read ({error})"
    end = data.address + data.size
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for buffer in column.buffers():
            if buffer is None or not buffer.size:
                continue
            at = buffer.address - data.address
            if at < 0 or buffer.address + buffer.size > end or at % _ALIGNED:
                return f"the values of {name!r} are compressed or outside the page"
    return None


def bare_schema(schema: pa.Schema) -> pa.Schema:
    """The same buffers, with types for which any value is valid."""
    return pa.schema([_bare_field(field) for field in schema])


def _bare_field(field: pa.Field) -> pa.Field:
    return field.with_type(_bare(field.type)).with_nullable(True)


def _bare(kind: pa.DataType) -> pa.DataType:
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
