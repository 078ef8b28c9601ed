"""The columns beside the key, derived from a row's number, and their packed form for LMDB.

A packed row has a fixed width: numbers as they are, text of one width, a list as its length and
room for its longest value, a null as a flag. That suits these tables and is the fastest form for a
key-value store that we know of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lab.shapes.keys import Numbers, characters_of, fixed_width_text, mix
from semistream import workload
from semistream.workload.relations import FIXED_BYTES

TEXT_WIDTH = 85  # with an int64 key, a row of 113 bytes
MOST_TAGS = 4
NULLS_IN = 20  # one in so many values is null
SIZE = pa.struct([pa.field("width", pa.int32()), pa.field("height", pa.int32())])
NUMERIC = {"price": "f8", "supplier_id": "i4", "category": "i4"}


@dataclass(frozen=True)
class Payload:
    """Which columns there are. ``copies`` rows of a key differ in the remainder of ``category``."""

    text_width: int = TEXT_WIDTH
    with_nulls: bool = False
    with_nested: bool = False
    measures: int = 0  # further columns of two bytes
    copies: int = 1
    seed: int = 0

    @property
    def schema(self) -> pa.Schema:
        may_be_null = ("supplier_id", "description") if self.with_nulls else ()
        kinds = {
            "price": pa.float64(),
            "supplier_id": pa.int32(),
            "category": pa.int32(),
            "description": pa.string(),
        }
        if self.with_nested:
            kinds |= {"tags": pa.list_(pa.int32()), "size": SIZE, "in_stock": pa.bool_()}
            may_be_null = ("tags", "size")
        kinds |= {name: pa.int16() for name in self.measure_names}
        return pa.schema([pa.field(n, kind, n in may_be_null) for n, kind in kinds.items()])

    @property
    def measure_names(self) -> list[str]:
        return [f"measure_{i:02}" for i in range(self.measures)]

    def columns(self, numbers: Numbers) -> list[pa.Array]:
        """The rows of these numbers, in the schema's order."""
        made = workload.product_rows(numbers, FIXED_BYTES + self.text_width, self.seed)
        price, supplier, category, text = made.columns[1:]
        if self.copies > 1:
            marked = category.to_numpy() * self.copies + numbers % self.copies
            category = pa.array(marked.astype(np.int32))
        if self.with_nulls:
            supplier = _with_validity(supplier, _valid(numbers, 1))
            text = _with_validity(text, _valid(numbers, 2))
        found = [price, supplier, category, text]
        if self.with_nested:
            bits = mix(numbers, 3)
            lengths = (bits % np.uint64(MOST_TAGS + 1)).astype(np.int32)
            tags = np.empty((numbers.size, MOST_TAGS), np.int32)
            tags[:] = (numbers[:, None] + np.arange(MOST_TAGS)) & 0x7FFFFFFF
            sizes = np.stack([numbers % 997, numbers % 1009], axis=1).astype(np.int32)
            found += _nested(lengths, tags, sizes, (bits >> np.uint64(40)) % np.uint64(2) == 1)
        for place in range(self.measures):
            found.append(pa.array(((numbers * (place + 3)) % 30_011).astype(np.int16)))
        return found

    @property
    def packed(self) -> np.dtype[Any]:
        """NumPy's view of one packed row."""
        parts: list[Any] = [(name, f"<{kind}") for name, kind in NUMERIC.items()]
        if self.with_nulls:
            parts += [("has_supplier", "u1"), ("has_text", "u1")]
        if self.with_nested:
            parts += [("length", "<i4"), ("tags", "<i4", MOST_TAGS), ("size", "<i4", 2)]
            parts += [("in_stock", "?")]
        parts += [(name, "<i2") for name in self.measure_names]
        return np.dtype([*parts, ("description", f"S{self.text_width}")])

    def pack(self, numbers: Numbers) -> bytes:
        """The packed rows of these numbers, one after the other."""
        columns = dict(zip(self.schema.names, self.columns(numbers), strict=True))
        rows = np.zeros(numbers.size, self.packed)
        for name in (*NUMERIC, *self.measure_names):
            rows[name] = columns[name].fill_null(0).to_numpy(zero_copy_only=False)
        if self.with_nulls:
            rows["has_supplier"], rows["has_text"] = _valid(numbers, 1), _valid(numbers, 2)
        if self.with_nested:
            tags = columns["tags"]
            rows["length"] = np.diff(tags.offsets.to_numpy())
            room = np.arange(MOST_TAGS) < rows["length"][:, None]
            rows["tags"][room] = tags.values.to_numpy()
            rows["size"] = np.stack([part.to_numpy() for part in columns["size"].flatten()], axis=1)
            rows["in_stock"] = columns["in_stock"].to_numpy(zero_copy_only=False)
        rows["description"] = characters_of(columns["description"], self.text_width)
        return rows.tobytes()

    def unpack(self, packed: bytes) -> list[pa.Array]:
        """Arrow columns of packed rows."""
        rows = np.frombuffer(packed, self.packed)
        text = np.ascontiguousarray(rows["description"]).view(np.uint8)
        columns = {name: pa.array(np.ascontiguousarray(rows[name])) for name in NUMERIC}
        columns["description"] = fixed_width_text(text.reshape(rows.size, self.text_width))
        if self.with_nulls:
            for name, flag in (("supplier_id", "has_supplier"), ("description", "has_text")):
                columns[name] = _with_validity(columns[name], rows[flag] != 0)
        if self.with_nested:
            parts = (rows[name] for name in ("length", "tags", "size", "in_stock"))
            nested = _nested(*parts)
            columns |= dict(zip(("tags", "size", "in_stock"), nested, strict=True))
        for name in self.measure_names:
            columns[name] = pa.array(np.ascontiguousarray(rows[name]))
        return [columns[name] for name in self.schema.names]


def _valid(numbers: Numbers, salt: int) -> npt.NDArray[np.bool_]:
    return mix(numbers, salt) % np.uint64(NULLS_IN) != 0


def _with_validity(column: pa.Array, valid: npt.NDArray[np.bool_]) -> pa.Array:
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(column.type, len(column), [bitmap, *column.buffers()[1:]])


def _nested(
    lengths: npt.NDArray[np.int32],
    tags: npt.NDArray[np.int32],
    sizes: npt.NDArray[np.int32],
    in_stock: npt.NDArray[np.bool_],
) -> list[pa.Array]:
    """A list, a struct and a boolean; ``tags`` has room for the longest list in every row."""
    offsets = np.zeros(lengths.size + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    values = np.ascontiguousarray(tags)[np.arange(MOST_TAGS) < lengths[:, None]]
    halves = [pa.array(np.ascontiguousarray(sizes[:, half])) for half in (0, 1)]
    return [
        pa.ListArray.from_arrays(pa.array(offsets), pa.array(values)),
        pa.StructArray.from_arrays(halves, fields=list(SIZE)),
        pa.array(np.ascontiguousarray(in_stock)),
    ]
