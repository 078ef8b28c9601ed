"""The storage layout of waiting stream tuples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from semistream.engine.binding import Binding
from semistream.engine.rows.layout import RecordLayout, RowWidths, Slots
from semistream.engine.rows.message import BatchAddresses, Message, flat_forms
from semistream.engine.rows.row_store import PlainColumns, RowStore
from semistream.keys import Codes


@dataclass(frozen=True)
class WindowSize:
    """The size of a window: slots, and a heap for variable-width values."""

    capacity: int
    heap: int
    nbytes: int


class TupleLayout:
    """Which columns of a stream are stored. A key that its code can restore is not."""

    def __init__(self, binding: Binding, schema: pa.Schema) -> None:
        self.schema = schema
        self._binding = binding
        self._from_code = _restorable(binding, schema)
        self.kept = [i for i, field in enumerate(schema) if field.name != self._from_code]
        self.record = RecordLayout([schema.field(i).type for i in self.kept])
        self.widths = RowWidths(schema.types)
        self.plain = PlainColumns(schema.types)
        self._key_places = [schema.get_field_index(name) for name in binding.stream_key]
        self._code_column = -1 if self._from_code is None else self._key_places[0]
        # Of a few tuples, only these columns are stored, if no value is outside the record.
        self.fixed = np.array([self.kept[i] for i in self.record.fixed], np.int64)
        flat = flat_forms(schema.types)
        self.addresses = None if flat is None else BatchAddresses(flat)
        self._key_type = schema.field(self._key_places[0]).type if self._key_places else pa.null()
        is_native = binding.codec.native and self._key_type == binding.codec.types[0]
        self.native_key = self._key_places[0] if is_native else -1  # its values are its codes

    def columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [batch.column(i) for i in self.kept]

    def key_columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [batch.column(i) for i in self._key_places]

    def write(self, message: Message, store: RowStore, slots: Slots, codes: Codes) -> None:
        """Write all columns of a few tuples; ``codes`` are those of all slots."""
        store.write(message, slots, self.record.all, codes, self._code_column)

    def restore(self, kept: Sequence[pa.Array], codes: Codes) -> list[pa.Array]:
        """All columns of the stream, from the stored ones and the codes."""
        columns = list(kept)
        if self._from_code is not None:
            columns.insert(self._key_places[0], self._key_of(codes))
        return columns

    def _key_of(self, codes: Codes) -> pa.Array:
        kind = self._key_type
        values = codes.astype(f"i{kind.bit_width // 8}")
        return pa.Array.from_buffers(kind, len(codes), [None, pa.py_buffer(values)])

    def keys(self, store: RowStore, slots: Slots, codes: Codes) -> list[pa.Array]:
        """The key columns of these slots."""
        if self._from_code is not None:
            return [self._key_of(codes)]
        return store.take(slots, self.key_places)

    def stored(self, name: str) -> int | None:
        """The column's number among those that are stored; None if its code restores it."""
        return (
            None if name == self._from_code else self.kept.index(self.schema.get_field_index(name))
        )

    def some(
        self, names: Sequence[str], store: RowStore, slots: Slots, codes: Codes
    ) -> list[pa.Array]:
        """These columns of these slots."""
        stored = [self.stored(name) for name in names]
        found = iter(store.take(slots, [place for place in stored if place is not None]))
        return [self._key_of(codes) if place is None else next(found) for place in stored]

    @property
    def key_places(self) -> list[int]:
        """The key columns among those that are stored, unless codes restore the key."""
        return [self.kept.index(place) for place in self._key_places]


def _restorable(binding: Binding, schema: pa.Schema) -> str | None:
    """The key column's name if its values can be computed from their codes."""
    if not binding.codec.exact or len(binding.stream_key) != 1:
        return None
    name = binding.stream_key[0]
    kind, master = schema.field(name).type, binding.codec.types[0]
    types = pa.types
    same_code = (types.is_integer(kind) and types.is_integer(master)) or kind == master
    plain = types.is_integer(kind) or types.is_temporal(kind)
    unsigned = types.is_uint64(kind) or types.is_uint64(master)
    return name if same_code and plain and not unsigned else None
