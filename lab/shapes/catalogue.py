"""The shapes that are measured, with the share of the int64 rate that each must reach."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lab.shapes import keys
from lab.shapes.keys import KeyCodec, Numbers, mix
from lab.shapes.payload import Payload

REFERENCE = "int64"
PLAIN = Payload()
UPSERTED_IN = 300  # each of the three deltas has one in so many rows: 1 % in all


@dataclass(frozen=True)
class Shape:
    """A master table: its key, its other columns, and how it is built."""

    name: str
    label: str
    key: KeyCodec = keys.INT64
    payload: Payload = PLAIN
    unique: bool = True
    deltas: int = 0
    least: float | None = None  # share of the int64 rate, in tuples

    @property
    def copies(self) -> int:
        return self.payload.copies

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.key.fields, *self.payload.schema])

    def keys_in(self, rows: int) -> int:
        """Distinct keys of a table of about ``rows`` rows."""
        return max(1, rows // self.copies)

    def revisions(self, numbers: Numbers) -> Numbers:
        """Which delta replaced the row of each key: 0 for none of them."""
        if not self.deltas:
            return np.zeros(numbers.size, np.int64)
        drawn = (mix(numbers, 7) % np.uint64(UPSERTED_IN)).astype(np.int64) + 1
        return np.where(drawn <= self.deltas, drawn, 0)

    def row_numbers(
        self, numbers: Numbers, copy: Numbers | int = 0, revision: Numbers | int = 0
    ) -> Numbers:
        """The number that the payload is derived from: different for every copy and revision."""
        return (numbers + np.int64(2**31) * revision) * self.copies + copy

    def rows(self, numbers: Numbers, revision: int = 0) -> pa.RecordBatch:
        """All rows of these keys, the copies of a key next to each other."""
        repeated = np.repeat(numbers, self.copies)
        copy = np.tile(np.arange(self.copies, dtype=np.int64), numbers.size)
        payload = self.payload.columns(self.row_numbers(repeated, copy, revision))
        columns = [*self.key.to_arrow(repeated), *payload]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def expected(self, numbers: Numbers, copy: Numbers | int = 0) -> list[pa.Array]:
        """The payload that the newest version of the table has for these keys."""
        return self.payload.columns(self.row_numbers(numbers, copy, self.revisions(numbers)))

    def row_bytes(self) -> float:
        """Bytes of one row in Arrow memory; budgets are a percentage of the table's."""
        sample = self.rows(np.arange(1, 4_097, dtype=np.int64))
        return float(sample.nbytes) / sample.num_rows


def with_seed(shape: Shape, seed: int) -> Shape:
    return replace(shape, payload=replace(shape.payload, seed=seed))


_LIST = (
    Shape(REFERENCE, "int64"),
    Shape("int32", "int32", keys.INT32, least=0.8),
    Shape("date", "date", keys.DATE, least=0.8),
    Shape("timestamp", "timestamp", keys.TIMESTAMP, least=0.8),
    Shape("decimal", "decimal(15,2)", keys.DECIMAL, least=0.6),
    Shape("text", "text, 17 bytes", keys.TEXT, least=0.45),
    Shape("uuid", "UUID text, 36 bytes", keys.UUID, least=0.4),
    Shape("int64+int64", "two columns: int64, int64", keys.TWO_INT64, least=0.45),
    Shape("int32+int32", "two columns: int32, int32", keys.TWO_INT32, least=0.45),
    Shape("text+int32+date", "three columns: text, int32, date", keys.TEXT_INT_DATE, least=0.45),
    Shape("nulls", "5 % nulls in two columns", payload=Payload(with_nulls=True), least=0.8),
    Shape("nested", "list, struct, boolean", payload=Payload(text_width=65, with_nested=True)),
    Shape("copies", "three rows per key", payload=Payload(copies=3), unique=False, least=0.35),
    Shape("undeclared", "uniqueness not declared", unique=False, least=0.8),
    Shape("deltas", "1 % upserted in three deltas", deltas=3, least=0.7),
    Shape("wide", "35 columns", payload=Payload(text_width=25, measures=30), least=0.5),
)
SHAPES = {shape.name: shape for shape in _LIST}
