"""The window: stream tuples that wait in memory, in a multi-hash-map with their arrival order.

Two kinds, one for each way in which tuples leave:

- ``RingWindow`` (MESHJOIN): tuples leave in arrival order, so the slots are a ring and the
  queue is just its two ends.
- ``QueueWindow`` (HYBRIDJOIN): a matched tuple leaves at once, from anywhere, so the queue is
  a doubly linked list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.joins.binding import Binding
from semistream.joins.rows import Layout, Rows, RowStore, Slots, array_of
from semistream.keys import Codes, Mask

_NONE = np.zeros(0, np.bool_)


class StreamLayout:
    """How a stream's tuples are kept. A key column that its code restores is not kept twice."""

    def __init__(self, binding: Binding, schema: pa.Schema) -> None:
        self.schema = schema
        self._binding = binding
        self._from_code = _restorable(binding, schema)
        self.kept = [i for i, field in enumerate(schema) if field.name != self._from_code]
        self.layout = Layout([schema.field(i).type for i in self.kept])
        self._key_places = [schema.get_field_index(name) for name in binding.stream_key]

    def columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [batch.column(i) for i in self.kept]

    def restore(self, kept: Sequence[pa.Array], codes: Codes) -> list[pa.Array]:
        """All columns of the stream from the kept ones and the codes."""
        columns = dict(zip(self.kept, kept, strict=True))
        if self._from_code is not None:
            columns[self._key_places[0]] = self._key_of(codes)
        return [columns[i] for i in range(len(self.schema))]

    def _key_of(self, codes: Codes) -> pa.Array:
        kind = self.schema.field(self._key_places[0]).type
        values = codes.astype(np.dtype(f"i{kind.bit_width // 8}"))
        return array_of(kind, len(codes), pa.py_buffer(values))

    def keys(self, store: RowStore, slots: Slots, codes: Codes) -> list[pa.Array]:
        """The key columns of these slots."""
        if self._from_code is not None:
            return [self._key_of(codes)]
        return store.take(slots, [self.kept.index(place) for place in self._key_places])


def _restorable(binding: Binding, schema: pa.Schema) -> str | None:
    """The key column's name if its values can be computed from their codes."""
    if not binding.codec.exact:
        return None
    name = binding.stream_key[0]
    kind, master = schema.field(name).type, binding.codec.types[0]
    types = pa.types
    same_code = (types.is_integer(kind) and types.is_integer(master)) or kind == master
    plain = types.is_integer(kind) or types.is_temporal(kind)
    unsigned = types.is_uint64(kind) or types.is_uint64(master)
    return name if same_code and plain and not unsigned else None


class Window:
    """What both kinds share: slots, rows, and the multi-hash-map over their codes."""

    slot_bytes = 8 + 4 + 4 + 4 + 1  # code, bucket, chain, dup, state

    def __init__(self, stream: StreamLayout, nbytes: int, variable_bytes: float) -> None:
        capacity = self._lay_out(stream, nbytes, variable_bytes)
        self.state = np.empty(capacity, np.uint8)
        self._heads = np.full(capacity, -1, np.int32)
        nodes = np.empty((capacity, 2), np.int64)  # side by side: a probe touches one cache line
        self.codes = nodes[:, 0]
        self._chain = nodes.view(np.int32)[:, 2]
        self._dup = nodes.view(np.int32)[:, 3]

    def _lay_out(self, stream: StreamLayout, nbytes: int, variable_bytes: float) -> int:
        """Divide the bytes between slots and what has no fixed width; returns the slots."""
        self.stream = stream
        per_slot = self.slot_bytes + stream.layout.slot_bytes
        capacity = int(nbytes / (per_slot + variable_bytes))
        self.capacity = min(max(capacity, 1), 2**31 - 2)
        heap = max(0, nbytes - self.capacity * per_slot - 64)
        self.rows = RowStore(stream.layout, self.capacity, heap)
        self.count = 0
        return self.capacity

    @classmethod
    def smallest(cls, stream: StreamLayout, columns: Sequence[pa.Array], row: int) -> int:
        """Bytes for one slot that holds this row."""
        probe = RowStore(stream.layout, 1)
        needed = probe.bytes_for(columns, np.array([row]))
        return cls.slot_bytes + stream.layout.slot_bytes + needed + 128

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self.capacity * self.slot_bytes

    @property
    def vacant(self) -> int:
        return self.capacity - self.count

    def probe(
        self,
        page_codes: Codes,
        valid: Mask | None,
        cursor: Any,
        mark: bool,
        once: bool,
        rows: Any,
        slots: Any,
    ) -> int:
        """Pair page rows with waiting tuples; see the kernel."""
        return int(
            kernels.window.probe(
                page_codes,
                _NONE if valid is None else valid,
                cursor,
                mark,
                once,
                self._heads,
                self._chain,
                self._dup,
                self.codes,
                self.state,
                rows,
                slots,
            )
        )

    def count_pairs(self, rows: Any, counts: Any) -> None:
        """Add to each page row's count the pairs that it has: the papers' frequency f."""
        kernels.window.count_pairs(rows, counts)

    def take(self, slots: Slots) -> list[pa.Array]:
        """The stream's columns for these slots."""
        return self.stream.restore(self.rows.take(slots), self.codes[slots])

    def keys(self, slots: Slots) -> list[pa.Array]:
        return self.stream.keys(self.rows, slots, self.codes[slots])

    def _insert(self, codes: Codes, columns: Sequence[pa.Array], rows: Rows, slots: Slots) -> None:
        self.rows.put(columns, rows, slots)
        kernels.window.insert(
            codes, rows, slots, self._heads, self._chain, self._dup, self.codes, self.state
        )
        self.count += len(rows)


class RingWindow(Window):
    """Tuples leave in the order in which they came."""

    def __init__(self, stream: StreamLayout, nbytes: int, variable_bytes: float) -> None:
        super().__init__(stream, nbytes, variable_bytes)
        self._first = 0

    def add(self, codes: Codes, columns: Sequence[pa.Array], rows: Rows) -> int:
        """Admit as many of these tuples as fit; returns how many."""
        fit = self.rows.room(columns, rows[: self.vacant])
        if fit:
            start = self._first + self.count
            slots = (np.arange(start, start + fit) % self.capacity).astype(np.int32)
            self._insert(codes, columns, rows[:fit], slots)
        return fit

    def oldest(self, count: int) -> Slots:
        positions = np.arange(self._first, self._first + count)
        return (positions % self.capacity).astype(np.int32)

    def expire(self, count: int) -> None:
        """Remove the oldest ``count`` tuples."""
        self.rows.free(self.oldest(count))
        kernels.window.expire(
            self._first, count, self.capacity, self._heads, self._chain, self._dup, self.codes
        )
        self._first = (self._first + count) % self.capacity
        self.count -= count


class QueueWindow(Window):
    """Tuples leave from anywhere; a doubly linked queue keeps their order."""

    slot_bytes = Window.slot_bytes + 4 + 4 + 4 + 4  # older, newer, free slot, born

    def __init__(self, stream: StreamLayout, nbytes: int, variable_bytes: float) -> None:
        super().__init__(stream, nbytes - 2 * 4, variable_bytes)
        links = np.empty((self.capacity + 1, 2), np.int32)
        self._older, self._newer = links[:, 0], links[:, 1]
        self._older[-1] = self._newer[-1] = self.capacity
        self._free = np.arange(self.capacity, dtype=np.int32)[::-1].copy()
        self._free_count = self.capacity
        self.turn = 1
        self.born = np.empty(self.capacity, np.int32)  # the turn in which a tuple came

    @property
    def nbytes(self) -> int:
        return super().nbytes + 2 * 4

    def add(self, codes: Codes, columns: Sequence[pa.Array], rows: Rows) -> int:
        """Admit as many of these tuples as fit; returns how many."""
        fit = self.rows.room(columns, rows[: self.vacant])
        if fit:
            self._free_count -= fit
            slots = self._free[self._free_count : self._free_count + fit][::-1].copy()
            self._insert(codes, columns, rows[:fit], slots)
            self.born[slots] = self.turn
            kernels.window.enqueue(slots, self._older, self._newer)
        return fit

    @property
    def oldest(self) -> int:
        """The slot of the tuple that has waited longest."""
        return int(self._newer[-1])

    def proven(self, firsts: Any, continues: Any, probed: Any, most: int) -> Slots:
        """Among the oldest tuples, those whose page was probed after they came."""
        slots = np.empty(min(most, 4096), np.int32)
        found = kernels.window.proven(
            firsts, continues, probed, self.born, self.codes, self._newer, 4096, slots
        )
        return slots[:found]

    def with_code(self, code: int, start: int, most: int) -> tuple[Slots, int]:
        """Slots of tuples that wait with this code, and where to go on (-1: that is all)."""
        slots = np.empty(most, np.int32)
        found, following = kernels.window.tuples_of(
            code, start, self._heads, self._chain, self._dup, self.codes, slots
        )
        return slots[:found], following

    def settle(self, codes: Codes) -> int:
        """Remove the tuples with these codes that are marked; returns how many."""
        before = self._free_count
        self._free_count = kernels.window.settle(
            codes,
            self._heads,
            self._chain,
            self._dup,
            self.codes,
            self.state,
            self._older,
            self._newer,
            self._free,
            before,
        )
        self.rows.free(self._free[before : self._free_count])
        left = int(self._free_count - before)
        self.count -= left
        return left
