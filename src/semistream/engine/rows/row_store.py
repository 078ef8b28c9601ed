"""Row storage in slots, used by the window and the front stage.

A ``RowStore`` copies values out of Arrow batches, so a waiting tuple does not keep its input batch
alive. Fixed-width columns are adjacent in one record per slot (one cache line per tuple, not one
per column); text and binary go to a bounded heap that is compacted in place; nested columns, which
are rare, stay Arrow arrays in an arena.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
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
    fixed_buffer,
    is_large,
    is_text,
    rows_above,
    taken_bytes,
    text_parts,
    validity,
    width_of,
)
from semistream.engine.rows.message import Message
from semistream.errors import InternalError, SchemaError
from semistream.kernels import column_forms

_UNIT = 8
_LISTED = 128  # sizes of released entries, in units: texts of up to a kilobyte find them again
_UNLIMITED = 2**62
_OUTSIDE = (
    "a text or binary column has offsets outside its content; call validate(full=True) on the "
    "batch for details, and fix the code that built it"
)
_NO_BITMAPS = np.zeros(0, np.int64)
_NO_NULLS = np.zeros(0, np.bool_)
NO_CODES = np.zeros(0, np.int64)
_ALIGNED = 64  # alignment of columns in a shared allocation, as Arrow recommends


class RowStore:
    """``capacity`` slots for rows of one layout, and ``heap_bytes`` for variable-width values."""

    def __init__(self, layout: RecordLayout, capacity: int, heap_bytes: int = 0) -> None:
        self.layout = layout
        self.capacity = capacity
        self._matrix = np.empty((capacity, layout.record.itemsize), np.uint8)
        self._at = self._matrix.ctypes.data
        self._nullable = np.zeros(len(layout.fixed), np.bool_)
        self._has_nulls = False
        self._large = np.array([is_large(layout.types[i]) for i in layout.text], np.bool_)
        arena, units = _divide(layout, heap_bytes)
        self._heap = np.empty(units * _UNIT, np.uint8)
        self._headers = self._heap.view(np.int32)
        self._heap_at = self._heap.ctypes.data
        self._positions = np.full((capacity, len(layout.text)), -1, np.int32)
        self._vacant = np.full(_LISTED if layout.text else 0, -1, np.int32)
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
        count = len(rows)
        if self.layout.text:
            count, _ = self._fitting(columns, rows, self._limit - self._live)
        for i, arena in self._arenas.items():
            count = _rows_within(columns[i], rows[:count], self._arena_limit - arena.live_bytes)
        return count

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
        return self._fitting(columns, rows, _UNLIMITED)[1]

    def _fitting(self, columns: Sequence[pa.Array], rows: Rows, room: int) -> tuple[int, int]:
        """How many of these rows, from the first on, fit into ``room`` units; their units."""
        texts = [text_parts(columns[i]) for i in self.layout.text]
        starts = np.array([offsets.ctypes.data for offsets, _, _ in texts], np.int64)
        sizes = np.array([len(content) for _, content, _ in texts], np.int64)
        valid = np.array([position for _, _, position in texts], np.int64)
        count, units = kernels.rows.fitting(starts, sizes, valid, self._large, rows, room)
        if count < 0:
            raise SchemaError(_OUTSIDE)
        return count, units

    def put(self, columns: Sequence[pa.Array], rows: Rows, slots: Slots) -> None:
        """Copy these rows of the columns into these slots, which must be free."""
        if self.layout.fixed:
            self._put_fixed(columns, rows, slots)
        if self.layout.text:
            self._put_text(columns, rows, slots)
        for i, arena in self._arenas.items():
            arena.put(columns[i], rows, slots)

    def _put_fixed(self, columns: Sequence[pa.Array], rows: Rows, slots: Slots) -> None:
        layout = self.layout
        owners = [fixed_buffer(columns[i], form) for i, form in layout.fixed_forms]
        sources = np.array([address for _, address in owners], np.int64)
        positions = [validity(columns[i]) for i in layout.fixed]
        valid = np.array(positions, np.int64)
        if any(positions):
            self._expect_nulls(valid)
        masks = layout.masks if self._has_nulls else 0
        kernels.rows.put_fixed(
            sources, valid, layout.forms, layout.places, rows, slots, self._at,
            layout.record.itemsize, layout.mask, masks,
        )  # fmt: skip

    def put_page(self, page: Any, numbers: Any, rows: Rows, slots: Slots) -> None:
        """The same for a few rows, if no column has values outside the record: columns ``numbers``
        of a page, by their addresses."""
        layout, is_put = self.layout, False
        while not is_put:
            is_put = kernels.rows.put_page(
                page, numbers, self._nullable, layout.forms, layout.places, rows, slots, self._at,
                layout.record.itemsize, layout.mask, layout.masks if self._has_nulls else 0,
            )  # fmt: skip
            if not is_put:
                self._expect_nulls(page[column_forms.VALIDITY, numbers, 0])

    def _expect_nulls(self, valid: Any) -> None:
        """Initialise all validity bits at the first null; before it, none are written."""
        if not self._has_nulls:
            self._has_nulls = True
            self._matrix[:, self.layout.mask : self.layout.mask + self.layout.masks] = 255
        self._nullable[valid != 0] = True

    def _put_text(self, columns: Sequence[pa.Array], rows: Rows, slots: Slots) -> None:
        needed = self._units(columns, rows)
        if self._live + needed > len(self._heap) // _UNIT:
            raise InternalError("a row store got more text than room() allowed; please report this")
        for place, i in enumerate(self.layout.text):
            offsets, data, position = text_parts(columns[i])
            done = 0
            while True:
                done, self._top = kernels.rows.put(
                    offsets, data, position, rows, slots, place, len(self.layout.text), self._heap,
                    self._headers, self._positions, self._vacant, self._top, done,
                )  # fmt: skip
                if done == len(rows):
                    break
                self._top = kernels.rows.compact(
                    self._heap, self._headers, self._positions, self._vacant, self._top
                )
        self._live += needed

    def take(self, slots: Slots, only: Sequence[int] | None = None) -> list[pa.Array]:
        """Arrow arrays of all columns (or only some) for these slots."""
        wanted = self.layout.all if only is None else tuple(only)
        fixed = self._take_fixed(wanted, slots)
        return [fixed[i] if i in fixed else self._column(i, slots) for i in wanted]

    def write(
        self,
        message: Message,
        slots: Slots,
        wanted: tuple[int, ...],
        codes: Any = NO_CODES,
        code_column: int = -1,
    ) -> None:
        """Write these columns of a few slots; column ``code_column`` among them (-1: none) has the
        codes of the slots."""
        layout = self.layout
        fixed, fixed_forms, places, numbers, texts, text_numbers = layout.nodes_of(
            wanted, code_column
        )
        nullable = self._nullable if self._has_nulls else _NO_NULLS
        message.add_stored(
            slots, codes, code_column, fixed, fixed_forms, places, numbers, self._at,
            layout.record.itemsize, layout.mask, nullable, texts, text_numbers, self._heap_at,
            self._headers, self._positions,
        )  # fmt: skip

    def _take_fixed(self, wanted: tuple[int, ...], slots: Slots) -> dict[int, pa.Array]:
        """The fixed-width columns among these, in one allocation."""
        fixed, forms, places, numbers = self.layout.choice(wanted)
        if not fixed:
            return {}
        rows, bits = len(slots), (len(slots) + 7) // 8
        sizes = [form * rows if form > 0 else bits for form in forms.tolist()]
        bitmaps = nulls = _NO_BITMAPS
        if self._has_nulls:
            nulls = np.zeros(len(fixed), np.int64)
            nullable = self._nullable[numbers]
            sizes += (nullable * bits).tolist()
        buffers, targets = _side_by_side(sizes)
        if self._has_nulls:
            bitmaps = targets[len(fixed) :] * nullable
        kernels.rows.take_fixed(
            targets, bitmaps, forms, places, numbers, slots, self._at,
            self.layout.record.itemsize, self.layout.mask, nulls,
        )  # fmt: skip
        masks: list[Any] = [None] * len(fixed)
        if self._has_nulls:
            masks = [buffers[len(fixed) + c] if null else None for c, null in enumerate(nulls)]
        types, array = self.layout.types, pa.Array.from_buffers
        parts = zip(fixed, masks, buffers, strict=False)  # bitmaps follow
        return {i: array(types[i], rows, [mask, values]) for i, mask, values in parts}

    def _column(self, i: int, slots: Slots) -> pa.Array:
        if i in self._arenas:
            return self._arenas[i].take(slots)
        if i in self.layout.empty:
            return pa.nulls(len(slots))
        return self._text_column(i, slots)

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

    def addresses(self, wanted: tuple[int, ...]) -> tuple[Any, ...]:
        """Where compiled code finds these columns: records, their size, the offset of each column
        in a record and its number among the texts (or -1), heap, headers, positions."""
        layout = self.layout
        offsets = [layout.places[layout.nth[i]] if i in layout.nth else -1 for i in wanted]
        texts = [layout.text.index(i) if i in layout.text else -1 for i in wanted]
        return (
            self._at, layout.record.itemsize, np.array(offsets, np.int64),
            np.array(texts, np.int64), self._heap.ctypes.data, self._headers, self._positions,
        )  # fmt: skip

    def column_at(self, i: int) -> tuple[int, int, int]:
        """Where compiled code finds a column of fixed width: the address of slot 0's value, the
        position of its validity bit (0: no nulls), and the bytes from a slot to the next."""
        layout = self.layout
        nth, size = layout.nth[i], layout.record.itemsize
        has_nulls = self._has_nulls and self._nullable[nth]
        bits = 8 * (self._at + layout.mask) + nth if has_nulls else 0
        return self._at + int(layout.places[nth]), int(bits), size

    def move(self, slots: Slots, targets: Slots) -> None:
        """Move these rows to other slots, which are free."""
        columns = self.take(slots)
        self.free(slots)
        self.put(columns, np.arange(len(slots)), targets)

    def truncate(self, capacity: int) -> None:
        """Give back the memory of the slots from this one on, which are free. Nobody else has the
        arrays, so they can shrink in place."""
        self.capacity = capacity
        self._matrix.resize((capacity, self._matrix.shape[1]), refcheck=False)
        self._at = self._matrix.ctypes.data
        self._positions.resize((capacity, self._positions.shape[1]), refcheck=False)
        for arena in self._arenas.values():
            arena.where.resize((capacity, 2), refcheck=False)

    def free(self, slots: Slots) -> None:
        """Release the values of these slots."""
        if self.layout.text:
            self._live -= kernels.rows.release(slots, self._headers, self._positions, self._vacant)
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
    units = 1 - np.diff(text_parts(column)[0]) // -_UNIT
    return np.where(column.is_valid(), units, 0) if column.null_count else units


def _divide(layout: RecordLayout, heap_bytes: int) -> tuple[int, int]:
    """Bytes of the arena of nested values, and units of the heap of texts."""
    nested = len(layout.nested)
    arena = heap_bytes * nested // max(1, nested + len(layout.text))
    return arena, (heap_bytes - arena) // _UNIT if layout.text else 0


class PlainColumns:
    """Columns of fixed width and texts, without nulls, of which compiled code gathers rows."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._types = types
        widths = [0 if pa.types.is_boolean(kind) else width_of(kind) or 0 for kind in types]
        self._fixed = [i for i, width in enumerate(widths) if width]
        self._texts = [i for i, kind in enumerate(types) if is_text(kind)]
        self._widths = np.array([widths[i] for i in self._fixed], np.int64)
        self._fits = len(self._fixed) + len(self._texts) == len(types)

    def fit(self, columns: Sequence[pa.Array]) -> bool:
        """Whether these columns are such."""
        return self._fits and not any(column.null_count for column in columns)

    def take(self, columns: Sequence[pa.Array], rows: Rows) -> list[pa.Array]:
        count, widths = len(rows), self._widths.tolist()
        pairs = zip(self._fixed, widths, strict=True)
        sources = np.array([fixed_buffer(columns[i], width)[1] for i, width in pairs], np.int64)
        buffers, targets = _side_by_side([width * count for width in widths])
        kernels.rows.pick(targets, sources, self._widths, rows)
        taken: list[Any] = [None] * len(columns)
        for i, values in zip(self._fixed, buffers, strict=True):
            taken[i] = pa.Array.from_buffers(self._types[i], count, [None, values])
        for i in self._texts:
            taken[i] = self._take_text(columns[i], rows)
        return taken

    @staticmethod
    def _take_text(column: pa.Array, rows: Rows) -> pa.Array:
        offsets, content, _ = text_parts(column)
        starts = np.empty(len(rows) + 1, offsets.dtype)
        size = kernels.rows.pick_offsets(offsets, len(content), rows, starts)
        if size < 0:
            raise SchemaError(_OUTSIDE)
        data = np.empty(size, np.uint8)
        kernels.rows.pick_texts(offsets, content, rows, starts, data)
        buffers = [None, pa.py_buffer(starts), pa.py_buffer(data)]
        return pa.Array.from_buffers(column.type, len(rows), buffers)


def _side_by_side(sizes: list[int]) -> tuple[list[pa.Buffer], Any]:
    """One allocation for buffers of these sizes. Also returns the address of each."""
    starts, end = [], 0
    for size in sizes:
        starts.append(end)
        end += -(-size // _ALIGNED) * _ALIGNED
    memory = pa.allocate_buffer(end)
    address = memory.address
    buffers = [memory.slice(start, size) for start, size in zip(starts, sizes, strict=True)]
    return buffers, np.array([address + start for start in starts], np.int64)


def _rows_within(column: pa.Array, rows: Rows, room: int) -> int:
    """How many of these rows of a nested column, from the first on, take at most ``room`` bytes."""
    if not len(rows):
        return 0
    copied = column.take(pa.array(rows))
    if copied.nbytes <= room:
        return len(rows)
    fits = bisect_right(range(len(rows)), room, key=lambda row: copied.slice(0, row + 1).nbytes)
    # A slice counts its share of a bitmap, which a copy of it might not have.
    return fits or int(taken_bytes(column, rows[:1]) <= room)
