"""Rows in slots: the memory that the window and the front stage keep their tuples in.

A ``RowStore`` copies values out of Arrow batches, so a waiting tuple never keeps the batch
that brought it alive. Fixed-width columns lie side by side in one record per slot (one cache
line per tuple, not one per column); text and binary go to a bounded heap that is compacted in
place; nested columns, which are rare, stay Arrow arrays in an arena.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.errors import InternalError, SchemaError
from semistream.joins.arena import Arena

Slots: TypeAlias = "np.ndarray[Any, np.dtype[np.int32]]"
Rows: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

_NONE = np.zeros(0, np.bool_)
_UNIT = 8
_ALIGNED = 64  # where a column begins in a block of several, as Arrow likes it
_LIVE_SHARE = 0.8  # of the heap; the rest lets a compaction free enough to be worth its walk
_ARENA_SHARE = 0.4  # of the arena; merging its chunks needs the old and the new copy at once


class Layout:
    """Which columns of a schema go where, and what a slot costs."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self.types = list(types)
        self.fixed = [i for i, kind in enumerate(types) if width_of(kind) is not None]
        self.text = [i for i, kind in enumerate(types) if is_text(kind)]
        self.empty = [i for i, kind in enumerate(types) if pa.types.is_null(kind)]
        placed = {*self.fixed, *self.text, *self.empty}
        self.nested = [i for i in range(len(types)) if i not in placed]
        widths = sorted(self.fixed, key=lambda i: -(width_of(types[i]) or 0))
        masks = -(-len(self.fixed) // 8)
        self.record = np.dtype(
            [(f"c{i}", _storage(types[i])) for i in widths]
            + [(f"valid{m}", np.uint8) for m in range(masks)]
        )
        offsets: Any = self.record.fields
        self.widths = np.array([width_of(types[i]) for i in self.fixed], np.int64)
        self.places = np.array([offsets[f"c{i}"][1] for i in self.fixed], np.int64)
        self.nth = {i: place for place, i in enumerate(self.fixed)}
        self._choices: dict[tuple[int, ...], tuple[dict[int, int], Any, Any]] = {}
        self.slot_bytes = self.record.itemsize + 4 * len(self.text) + 16 * len(self.nested)

    def choice(self, wanted: tuple[int, ...]) -> tuple[dict[int, int], Any, Any]:
        """Of these columns the fixed ones with their widths; both and their places as arrays."""
        found = self._choices.get(wanted)
        if found is None:
            which = [self.nth[i] for i in wanted if i in self.nth]
            widths = self.widths[which]
            fixed = dict(zip((self.fixed[n] for n in which), widths.tolist(), strict=True))
            found = self._choices[wanted] = fixed, widths, self.places[which]
        return found

    def heap_bytes(self, columns: Sequence[pa.Array]) -> float:
        """Average heap and arena bytes of a row of these columns."""
        rows = max(1, len(columns[0])) if columns else 1
        total = 0.0
        for i in self.text:
            total += (columns[i].nbytes / rows + 12) / _LIVE_SHARE
        for i in self.nested:
            total += (columns[i].nbytes / rows + 8) / _ARENA_SHARE
        return total


class RowStore:
    """``capacity`` slots for rows of one layout, and ``heap_bytes`` for what has no fixed width."""

    def __init__(self, layout: Layout, capacity: int, heap_bytes: int = 0) -> None:
        self.layout = layout
        self.capacity = capacity
        self._matrix = np.empty((capacity, layout.record.itemsize), np.uint8)
        self._records: Any = None
        if layout.fixed:
            self._records = self._matrix.view(layout.record).reshape(capacity)
        self._at = self._matrix.ctypes.data
        self._masks = -(-len(layout.fixed) // 8)
        self._nullable = np.zeros(len(layout.types), np.bool_)
        nested = len(layout.nested)
        arena = heap_bytes * nested // max(1, nested + len(layout.text))
        units = (heap_bytes - arena) // _UNIT if layout.text else 0
        self._heap = np.empty(units * _UNIT, np.uint8)
        self._headers = self._heap.view(np.int32)
        self._positions = np.full((capacity, len(layout.text)), -1, np.int32)
        self._top = 0
        self._live = 0
        self._limit = int(units * _LIVE_SHARE)
        self._arenas = {i: Arena(layout.types[i], capacity) for i in layout.nested}
        self._arena_limit = int(arena * _ARENA_SHARE) // max(1, nested)
        self._arena_bytes = arena

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
        """How many of these rows, from the first on, the heap and the arena can take now."""
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
            arena.live_bytes + _taken_bytes(columns[i], rows) <= self._arena_limit
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
            for row, _ in _rows_above(columns[i], self._arena_limit, 0, len(columns[i])):
                return row
        return None

    def bytes_for(self, columns: Sequence[pa.Array], rows: Rows) -> int:
        """Heap and arena bytes that a store needs to hold just these rows."""
        heap = int(self._units(columns, rows) * _UNIT / _LIVE_SHARE) + 2 * _UNIT
        arena = [int(_taken_bytes(columns[i], rows) / _ARENA_SHARE) for i in self._arenas]
        parts = max(1, len(self._arenas) + len(self.layout.text))
        return max([heap, *arena]) * parts + 64 * parts

    def _units(self, columns: Sequence[pa.Array], rows: Rows) -> int:
        total = 0
        for i in self.layout.text:
            offsets, data, valid = _text_parts(columns[i])
            needed = kernels.rows.units_needed(offsets, len(data), valid, rows)
            if needed < 0:
                raise SchemaError(
                    f"a {self.layout.types[i]} column has offsets outside its content; call "
                    "validate(full=True) on the batch to see which, and repair what made it"
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
        """From the first null on, every slot's validity counts; until then none was written."""
        if not self._nullable.any():
            for m in range(self._masks):
                self._records[f"valid{m}"][:] = 255
        self._nullable[i] = True

    def _put_text(self, columns: Sequence[pa.Array], rows: Rows, slots: Slots) -> None:
        needed = self._units(columns, rows)
        if self._top + needed > len(self._heap) // _UNIT:
            self._top = kernels.rows.compact(self._heap, self._headers, self._positions, self._top)
        if self._top + needed > len(self._heap) // _UNIT:
            raise InternalError("a row store was given more text than it said it has room for")
        for place, i in enumerate(self.layout.text):
            offsets, data, valid = _text_parts(columns[i])
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
        """The values of those of these columns that have a fixed width, side by side."""
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
        """These slots' values are no longer needed."""
        if self.layout.text:
            self._live -= kernels.rows.release(slots, self._headers, self._positions)
        for arena in self._arenas.values():
            arena.free(slots)


class PlainColumns:
    """Columns of fixed width without nulls: rows of all of them are taken by one compiled call."""

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
    """Memory for so many values of each width, as one allocation; and where each part begins."""
    sizes, starts, end = [width * rows for width in widths], [], 0
    for size in sizes:
        starts.append(end)
        end += -(-size // _ALIGNED) * _ALIGNED
    memory = pa.allocate_buffer(end)
    parts = zip(starts, sizes, strict=True)
    return [memory.slice(start, size) for start, size in parts], np.array(starts) + memory.address


def fixed_buffer(column: pa.Array) -> tuple[Any, int]:
    """Who owns the values of a fixed-width column, and their address."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8()).fill_null(0)
    width, buffer = width_of(column.type) or 0, column.buffers()[1]
    if buffer is None:  # allowed where all is null
        buffer, column = pa.py_buffer(bytes(width * len(column))), column.slice(0, 0)
    return buffer, buffer.address + column.offset * width


def validity(column: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.asarray(column.is_valid())


def array_of(kind: pa.DataType, rows: int, values: Any, present: Any = None) -> pa.Array:
    """An Arrow array over these values; ``present`` tells which are not null."""
    if pa.types.is_boolean(kind):
        flags = np.frombuffer(values, np.bool_, rows)
        values = pa.py_buffer(np.packbits(flags, bitorder="little"))
    mask = None
    if present is not None and not np.all(present):
        mask = pa.py_buffer(np.packbits(present.astype(np.bool_), bitorder="little"))
    return pa.Array.from_buffers(kind, rows, [mask, values])


def width_of(kind: pa.DataType) -> int | None:
    types = pa.types
    if types.is_boolean(kind):
        return 1
    if types.is_fixed_size_binary(kind) or types.is_decimal(kind) or types.is_primitive(kind):
        return int(kind.bit_width) // 8
    if types.is_interval(kind):
        return 16
    return None


def _storage(kind: pa.DataType) -> Any:
    width = width_of(kind) or 0
    return {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}.get(width, f"V{width}")


def is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_binary(kind) or is_large(kind))


def is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


def _text_parts(column: pa.Array) -> tuple[Any, Any, Any]:
    """(offsets, bytes, validity or nothing) of a text or binary column."""
    _, offsets, data = column.buffers()
    dtype = np.int64 if is_large(column.type) else np.int32
    if offsets is None or len(column) == 0:
        starts = np.zeros(len(column) + 1, dtype)
    else:
        starts = np.frombuffer(
            offsets, dtype, len(column) + 1, column.offset * np.dtype(dtype).itemsize
        )
    content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return starts, content, validity(column) if column.null_count else _NONE


def _taken_bytes(column: pa.Array, rows: Rows) -> int:
    return int(column.take(pa.array(rows)).nbytes)


def _units_of(column: pa.Array) -> Any:
    """Heap units that each value of a text column takes."""
    offsets, _, valid = _text_parts(column)
    units = 1 - np.diff(offsets) // -_UNIT
    return np.where(valid, units, 0) if len(valid) else units


def _rows_above(column: pa.Array, limit: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Those of these rows that take more than ``limit`` bytes when they are copied out."""
    if end - start == 1:
        nbytes = _taken_bytes(column, np.array([start]))
        if nbytes > limit:
            yield start, nbytes
    elif end > start and column.slice(start, end - start).nbytes + 16 > limit:
        middle = (start + end) // 2
        yield from _rows_above(column, limit, start, middle)
        yield from _rows_above(column, limit, middle, end)


def longest_row(batch: pa.RecordBatch, notable: int) -> int:
    """An upper bound on the bytes of the batch's longest row.

    For nested values it is an estimate, unless one has more than ``notable`` bytes.
    """
    total = 8
    for column in batch.columns:
        width = width_of(column.type)
        if width is not None:
            total += width
        elif is_text(column.type):
            offsets = _text_parts(column)[0]
            total += int(np.diff(offsets).max(initial=0)) + 9
        elif len(column):
            # nested: no cheap bound but the column itself; far above average is rare
            usual = int(min(column.nbytes, 64 + 8 * column.nbytes // len(column)))
            above = _rows_above(column, max(usual, notable), 0, len(column))
            total += max((nbytes for _, nbytes in above), default=usual)
    return total


def ranges(low: Any, counts: Any) -> Any:
    """low[0] .. low[0]+counts[0]-1, low[1] .. and so on, as one array."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(low - ends + counts, counts)
