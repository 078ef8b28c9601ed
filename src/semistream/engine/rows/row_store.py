"""Row storage in slots, used by the window and the front stage.

A ``RowStore`` copies values out of Arrow batches, so a waiting tuple does not keep its input batch
alive. Fixed-width columns are adjacent in one record per slot (one cache line per tuple, not one
per column); text and binary go to a bounded heap that is compacted in place; nested columns, which
are rare, stay Arrow arrays in an arena.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.engine.rows.arena import Arena
from semistream.engine.rows.layout import (
    ARENA_LIVE_SHARE,
    HEAP_LIVE_SHARE,
    RecordLayout,
    Rows,
    Slots,
    array_of,
    fixed_buffer,
    is_large,
    rows_above,
    taken_bytes,
    text_parts,
    validity,
    width_of,
)
from semistream.errors import InternalError, SchemaError

_UNIT = 8
_ALIGNED = 64  # alignment of columns in a shared allocation, as Arrow recommends


class RowStore:
    """``capacity`` slots for rows of one layout, and ``heap_bytes`` for variable-width values."""

    def __init__(self, layout: RecordLayout, capacity: int, heap_bytes: int = 0) -> None:
        self.layout = layout
        self.capacity = capacity
        self._matrix = np.empty((capacity, layout.record.itemsize), np.uint8)
        self._records: Any = None
        if layout.fixed:
            self._records = self._matrix.view(layout.record).reshape(capacity)
        self._at = self._matrix.ctypes.data
        self._masks = -(-len(layout.fixed) // 8)
        self._nullable = np.zeros(len(layout.types), np.bool_)
        arena, units = _divide(layout, heap_bytes)
        self._heap = np.empty(units * _UNIT, np.uint8)
        self._headers = self._heap.view(np.int32)
        self._positions = np.full((capacity, len(layout.text)), -1, np.int32)
        self._top = 0
        self._live = 0
        self._limit = int(units * HEAP_LIVE_SHARE)
        self._arenas = {i: Arena(layout.types[i], capacity) for i in layout.nested}
        self._arena_limit = int(arena * ARENA_LIVE_SHARE) // max(1, len(layout.nested))
        self._arena_bytes = arena

    @staticmethod
    def bytes_of(layout: RecordLayout, capacity: int, heap_bytes: int = 0) -> int:
        """The bytes of a store of this size, without allocating it."""
        arena, units = _divide(layout, heap_bytes)
        return capacity * layout.slot_bytes + units * _UNIT + arena

    @property
    def nbytes(self) -> int:
        where = sum(arena.where.nbytes for arena in self._arenas.values())
        return int(
            self._matrix.nbytes
            + self._heap.nbytes
            + self._positions.nbytes
            + where
            + self._arena_bytes
        )

    def room(self, columns: Sequence[pa.Array], rows: Rows) -> int:
        """How many of these rows, from the first on, fit into the heap and the arena now."""
        if not self.layout.text and not self.layout.nested:
            return len(rows)
        count = len(rows)
        while count and not self._fits(columns, rows[:count]):
            count //= 2
        return count

    def _fits(self, columns: Sequence[pa.Array], rows: Rows) -> bool:
        if self.layout.text and self._live + self._units(columns, rows) > self._limit:
            return False
        return all(
            arena.live_bytes + taken_bytes(columns[i], rows) <= self._arena_limit
            for i, arena in self._arenas.items()
        )

    def first_too_large(self, columns: Sequence[pa.Array]) -> int | None:
        """The first row that would not fit even if nothing else were held; None if all would."""
        sizes = [_units_of(columns[i]) for i in self.layout.text]
        if sum(int(units.max(initial=0)) for units in sizes) > self._limit:
            large = np.flatnonzero(sum(sizes) > self._limit)
            if len(large):
                return int(large[0])
        for i in self._arenas:
            for row, _ in rows_above(columns[i], self._arena_limit, 0, len(columns[i])):
                return row
        return None

    def bytes_for(self, columns: Sequence[pa.Array], rows: Rows) -> int:
        """Heap and arena bytes that a store needs for these rows alone."""
        heap = int(self._units(columns, rows) * _UNIT / HEAP_LIVE_SHARE) + 2 * _UNIT
        arena = [int(taken_bytes(columns[i], rows) / ARENA_LIVE_SHARE) for i in self._arenas]
        parts = max(1, len(self._arenas) + len(self.layout.text))
        return max([heap, *arena]) * parts + 64 * parts

    def _units(self, columns: Sequence[pa.Array], rows: Rows) -> int:
        total = 0
        for i in self.layout.text:
            offsets, data, valid = text_parts(columns[i])
            needed = kernels.rows.units_needed(offsets, len(data), valid, rows)
            if needed < 0:
                raise SchemaError(
                    f"a {self.layout.types[i]} column has offsets outside its content; call "
                    "validate(full=True) on the batch for details, and fix the code that built it"
                )
            total += needed
        return total

    def put(self, columns: Sequence[pa.Array], rows: Rows, slots: Slots) -> None:
        """Copy these rows of the columns into these slots, which must be free."""
        if self._records is not None:
            self._put_fixed(columns, rows, slots)
        if self.layout.text:
            self._put_text(columns, rows, slots)
        for i, arena in self._arenas.items():
            arena.put(columns[i], rows, slots)

    def _put_fixed(self, columns: Sequence[pa.Array], rows: Rows, slots: Slots) -> None:
        records = self._records
        assert records is not None
        masks: dict[int, Any] = {}
        layout = self.layout
        owners = [fixed_buffer(columns[i]) for i in layout.fixed]
        sources = np.array([address for _, address in owners], np.int64)
        size = layout.record.itemsize
        kernels.rows.put_fixed(sources, layout.widths, layout.places, rows, slots, self._at, size)
        for place, i in enumerate(self.layout.fixed):
            column = columns[i]
            if column.null_count:
                self._expect_nulls(i)
                absent = (~validity(column)[rows]).astype(np.uint8) << (place % 8)
                masks[place // 8] = masks.get(place // 8, np.uint8(255)) & ~absent
        if self._nullable.any():
            for m in range(self._masks):
                records[f"valid{m}"][slots] = masks.get(m, 255)

    def _expect_nulls(self, i: int) -> None:
        """Initialise all validity bits at the first null; before it, none are written."""
        if not self._nullable.any():
            for m in range(self._masks):
                self._records[f"valid{m}"][:] = 255
        self._nullable[i] = True

    def _put_text(self, columns: Sequence[pa.Array], rows: Rows, slots: Slots) -> None:
        needed = self._units(columns, rows)
        if self._top + needed > len(self._heap) // _UNIT:
            self._top = kernels.rows.compact(self._heap, self._headers, self._positions, self._top)
        if self._top + needed > len(self._heap) // _UNIT:
            raise InternalError("a row store got more text than room() allowed; please report this")
        for place, i in enumerate(self.layout.text):
            offsets, data, valid = text_parts(columns[i])
            self._top = kernels.rows.put(
                offsets,
                data,
                valid,
                rows,
                slots,
                place,
                len(self.layout.text),
                self._heap,
                self._headers,
                self._positions,
                self._top,
            )
        self._live += needed

    def take(self, slots: Slots, only: Sequence[int] | None = None) -> list[pa.Array]:
        """Arrow arrays of all columns (or only some) for these slots."""
        wanted = tuple(range(len(self.layout.types)) if only is None else only)
        values = self._take_fixed(wanted, slots)
        return [self._column(i, slots, values.get(i)) for i in wanted]

    def _take_fixed(self, wanted: tuple[int, ...], slots: Slots) -> dict[int, pa.Buffer]:
        """The values of the fixed-width columns among these, in one allocation."""
        fixed, widths, places = self.layout.choice(wanted)
        if not fixed:
            return {}
        buffers, targets = _side_by_side(fixed.values(), len(slots))
        kernels.rows.take_fixed(
            targets, widths, places, slots, self._at, self.layout.record.itemsize
        )
        return dict(zip(fixed, buffers, strict=True))

    def _column(self, i: int, slots: Slots, values: pa.Buffer | None) -> pa.Array:
        kind = self.layout.types[i]
        if i in self._arenas:
            return self._arenas[i].take(slots)
        if i in self.layout.empty:
            return pa.nulls(len(slots))
        if i in self.layout.text:
            return self._text_column(i, slots)
        present = None
        if self._nullable[i]:
            place = self.layout.nth[i]
            present = (self._records[f"valid{place // 8}"][slots] >> (place % 8)) & 1
        return array_of(kind, len(slots), values, present)

    def _text_column(self, i: int, slots: Slots) -> pa.Array:
        place = self.layout.text.index(i)
        kind = self.layout.types[i]
        offsets = np.empty(len(slots) + 1, np.int64 if is_large(kind) else np.int32)
        present = np.empty(len(slots), np.bool_)
        size, nulls = kernels.rows.measure(
            slots, place, self._headers, self._positions, offsets, present
        )
        data = np.empty(size, np.uint8)
        kernels.rows.gather(slots, place, self._heap, self._positions, offsets, data)
        mask = pa.py_buffer(np.packbits(present, bitorder="little")) if nulls else None
        buffers = [mask, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(kind, len(slots), buffers)

    def free(self, slots: Slots) -> None:
        """Release the values of these slots."""
        if self.layout.text:
            self._live -= kernels.rows.release(slots, self._headers, self._positions)
        for arena in self._arenas.values():
            arena.free(slots)


def heap_bound(layout: RecordLayout, widest: int) -> int:
    """Heap and arena bytes that suffice for any one row of at most ``widest`` bytes."""
    texts, nested = len(layout.text), len(layout.nested)
    if not texts and not nested:
        return 0
    units = 2 * texts + widest // _UNIT + 1
    heap = int(units * _UNIT / HEAP_LIVE_SHARE) + 2 * _UNIT
    arena = int((widest + 16) / ARENA_LIVE_SHARE) if nested else 0
    return (max(heap, arena) + 64) * (texts + nested)


def _units_of(column: pa.Array) -> Any:
    """Heap units that each value of a text column takes."""
    offsets, _, valid = text_parts(column)
    units = 1 - np.diff(offsets) // -_UNIT
    return np.where(valid, units, 0) if len(valid) else units


def _divide(layout: RecordLayout, heap_bytes: int) -> tuple[int, int]:
    """Bytes of the arena of nested values, and units of the heap of texts."""
    nested = len(layout.nested)
    arena = heap_bytes * nested // max(1, nested + len(layout.text))
    return arena, (heap_bytes - arena) // _UNIT if layout.text else 0


class PlainColumns:
    """Columns of fixed width without nulls: one compiled call gathers rows of all of them."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self._columns = columns  # they own the values
        self._widths = np.array([width_of(column.type) for column in columns], np.int64)
        self._sources = np.array([fixed_buffer(column)[1] for column in columns], np.int64)

    @staticmethod
    def fit(columns: Sequence[pa.Array]) -> bool:
        return all(
            width_of(column.type) and not pa.types.is_boolean(column.type) and not column.null_count
            for column in columns
        )

    def take(self, rows: Rows) -> list[pa.Array]:
        buffers, targets = _side_by_side(self._widths.tolist(), len(rows))
        kernels.rows.pick(targets, self._sources, self._widths, rows)
        parts = zip(self._columns, buffers, strict=True)
        return [pa.Array.from_buffers(c.type, len(rows), [None, values]) for c, values in parts]


def _side_by_side(widths: Iterable[int], rows: int) -> tuple[list[pa.Buffer], Any]:
    """One allocation for ``rows`` values of each width. Also returns the address of each part."""
    sizes, starts, end = [width * rows for width in widths], [], 0
    for size in sizes:
        starts.append(end)
        end += -(-size // _ALIGNED) * _ALIGNED
    memory = pa.allocate_buffer(end)
    parts = zip(starts, sizes, strict=True)
    return [memory.slice(start, size) for start, size in parts], np.array(starts) + memory.address
