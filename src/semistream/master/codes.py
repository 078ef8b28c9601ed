"""The code column: every page stores the codes of its keys, and rows are sorted by code.

If the key is one column of signed 64-bit values, that column is the code column. Otherwise the
codes are stored in a last column, which only readers of pages see.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from semistream.errors import SchemaError
from semistream.keys import Codes, KeyCodec, int64_view

CODE_COLUMN = "__code"
_FIELD = pa.field(CODE_COLUMN, pa.int64(), nullable=False)


class KeyCodes:
    """How rows of one schema store their codes. ``schema`` is that of the pages, with the codes."""

    def __init__(self, schema: pa.Schema, key: Sequence[str]) -> None:
        self.key = list(key)
        self.rows_schema = schema
        self.codec = KeyCodec.for_types([schema.field(name).type for name in key], self.key)
        self.column = self.key[0] if self.codec.native else CODE_COLUMN
        self.schema = schema if self.codec.native else schema.append(_FIELD)

    def add(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Add the codes to rows whose keys are not null."""
        if self.codec.native:
            return batch
        codes = pa.array(self.compute(batch))
        return pa.RecordBatch.from_arrays([*batch.columns, codes], schema=self.schema)

    def compute(self, batch: pa.RecordBatch) -> Codes:
        """The codes of these rows, computed from their keys."""
        return self.codec.codes(self.keys(batch))[0]

    def stored(self, batch: pa.RecordBatch) -> Codes:
        """The codes that a page stores, without a copy."""
        return int64_view(batch.column(self.column))

    def keys(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [batch.column(name) for name in self.key]


def check_no_code_column(names: Sequence[str]) -> None:
    """Raise if the data has a column with the name of the code column."""
    if CODE_COLUMN in names:
        raise SchemaError(
            f"column {CODE_COLUMN!r}: the name is reserved for the codes of the keys; rename it"
        )
