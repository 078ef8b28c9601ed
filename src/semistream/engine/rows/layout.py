"""How the columns of a row are stored in a slot, and the bytes of a slot.

Fixed-width columns are adjacent in one record per slot (one cache line per tuple, not one per
column); text and binary values have a position in a heap; nested values stay Arrow arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from semistream.kernels import column_forms as forms

Slots: TypeAlias = "np.ndarray[Any, np.dtype[np.int32]]"
Rows: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

NO_MASK = np.zeros(0, np.bool_)
HEAP_LIVE_SHARE = 0.9  # maximum fill of the heap: a compaction, for texts of new sizes, must pay
ARENA_LIVE_SHARE = 0.4  # maximum fill of the arena: a merge needs the old and the new copy


class RecordLayout:
    """Where each column of a schema is stored, and the bytes of a slot."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self.types = list(types)
        self.fixed = [i for i, kind in enumerate(types) if width_of(kind) is not None]
        self.text = [i for i, kind in enumerate(types) if is_text(kind)]
        self.empty = [i for i, kind in enumerate(types) if pa.types.is_null(kind)]
        placed = {*self.fixed, *self.text, *self.empty}
        self.nested = [i for i in range(len(types)) if i not in placed]
        self.has_heap = bool(self.text or self.nested)  # values outside the record
        widths = sorted(self.fixed, key=lambda i: -(width_of(types[i]) or 0))
        masks = -(-len(self.fixed) // 8)
        self.record = np.dtype(
            [(f"c{i}", _storage(types[i])) for i in widths]
            + [(f"valid{m}", np.uint8) for m in range(masks)]
        )
        offsets: Any = self.record.fields
        self.masks = masks  # bytes of the validity bits, from record offset ``mask`` on
        self.mask = offsets["valid0"][1] if masks else 0
        self.forms = np.array([form_of(types[i]) for i in self.fixed], np.int64)
        self.fixed_forms = list(zip(self.fixed, self.forms.tolist(), strict=True))
        self.places = np.array([offsets[f"c{i}"][1] for i in self.fixed], np.int64)
        self.all = tuple(range(len(types)))
        self.nth = {i: place for place, i in enumerate(self.fixed)}
        self._choices: dict[tuple[int, ...], tuple[list[int], Any, Any, Any]] = {}
        self._nodes: dict[tuple[tuple[int, ...], int], tuple[Any, ...]] = {}
        self.slot_bytes = self.record.itemsize + 4 * len(self.text) + 16 * len(self.nested)

    def choice(self, wanted: tuple[int, ...]) -> tuple[list[int], Any, Any, Any]:
        """Of these columns, the fixed ones; their forms, record offsets and validity bits."""
        found = self._choices.get(wanted)
        if found is None:
            which = np.array([self.nth[i] for i in wanted if i in self.nth], np.int64)
            fixed = [self.fixed[n] for n in which]
            found = self._choices[wanted] = fixed, self.forms[which], self.places[which], which
        return found

    def nodes_of(self, wanted: tuple[int, ...], code_column: int) -> tuple[Any, ...]:
        """These columns as kernels.message.add_stored describes them, if column ``code_column``
        stands among them (-1: nowhere): the fixed ones, their forms, record offsets and validity
        bits; the texts, and their numbers."""
        found = self._nodes.get((wanted, code_column))
        if found is None:
            at = [n for n in range(len(wanted) + 1) if n != code_column]
            fixed = [n for n, i in zip(at, wanted, strict=False) if i in self.nth]
            texts = [
                (n, self.text.index(i)) for n, i in zip(at, wanted, strict=False) if i in self.text
            ]
            numbers = np.array(fixed, np.int64), *self.choice(wanted)[1:]
            text_numbers = np.array(texts, np.int64).reshape(-1, 2)
            found = *numbers, text_numbers[:, 0].copy(), text_numbers[:, 1].copy()
            self._nodes[wanted, code_column] = found
        return found

    def heap_bytes(self, columns: Sequence[pa.Array]) -> float:
        """Average heap and arena bytes of a row of these columns."""
        rows = max(1, len(columns[0])) if columns else 1
        return self.heap_bytes_of([column.nbytes / rows for column in columns])

    def heap_bytes_of(self, sizes: Sequence[float]) -> float:
        """The same, where values of the columns have these bytes on average."""
        texts = sum(sizes[i] + 12 for i in self.text) / HEAP_LIVE_SHARE
        return texts + sum(sizes[i] + 8 for i in self.nested) / ARENA_LIVE_SHARE


def fixed_buffer(column: pa.Array, form: int) -> tuple[Any, int]:
    """The buffer that owns the values of a column of this form, and their address: in bits for
    booleans."""
    buffer, offset = column.buffers()[1], column.offset
    if buffer is None:  # Arrow allows this if all values are null
        buffer, offset = pa.py_buffer(bytes(max(1, form) * len(column))), 0
    if form == forms.BITS:
        return buffer, buffer.address * 8 + offset
    return buffer, buffer.address + offset * form


def validity(column: pa.Array) -> int:
    """The position of the first validity bit, 8 times its address; 0 if no value is null."""
    if not column.null_count or column.buffers()[0] is None:
        return 0
    return int(column.buffers()[0].address * 8 + column.offset)


def width_of(kind: pa.DataType) -> int | None:
    types = pa.types
    if types.is_boolean(kind):
        return 1
    if types.is_fixed_size_binary(kind) or types.is_decimal(kind) or types.is_primitive(kind):
        return int(kind.bit_width) // 8
    if types.is_interval(kind):
        return 16
    return None


def form_of(kind: pa.DataType) -> int:
    """How compiled code copies values of a fixed width."""
    return forms.BITS if pa.types.is_boolean(kind) else width_of(kind) or 0


def _storage(kind: pa.DataType) -> Any:
    width = width_of(kind) or 0
    return {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}.get(width, f"V{width}")


def is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_binary(kind) or is_large(kind))


def is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


def text_parts(column: pa.Array) -> tuple[Any, Any, Any]:
    """(offsets, bytes, position of the validity or 0) of a text or binary column."""
    _, offsets, data = column.buffers()
    dtype = np.int64 if is_large(column.type) else np.int32
    if offsets is None or len(column) == 0:
        starts = np.zeros(len(column) + 1, dtype)
    else:
        starts = np.frombuffer(
            offsets, dtype, len(column) + 1, column.offset * np.dtype(dtype).itemsize
        )
    content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return starts, content, validity(column)


def taken_bytes(column: pa.Array, rows: Rows) -> int:
    """Bytes of these rows when they are copied out of the column."""
    return int(column.take(pa.array(rows)).nbytes)


def rows_above(column: pa.Array, limit: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The rows that take more than ``limit`` bytes when copied, with their bytes."""
    if end - start == 1:
        nbytes = taken_bytes(column, np.array([start]))
        if nbytes > limit:
            yield start, nbytes
    elif end > start and column.slice(start, end - start).nbytes + 16 > limit:
        middle = (start + end) // 2
        yield from rows_above(column, limit, start, middle)
        yield from rows_above(column, limit, middle, end)


class RowWidths:
    """The bytes of the rows of one schema."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        widths = [width_of(kind) for kind in types]
        self._fixed = 8 + sum(width for width in widths if width is not None)
        varying = [i for i, width in enumerate(widths) if width is None]
        self._varying = [(i, is_text(types[i])) for i in varying]
        self.is_fixed = not varying  # all rows have the same bytes

    def longest(self, batch: pa.RecordBatch, notable: int) -> int:
        """An upper bound on the bytes of the batch's longest row.

        For nested values of unusual types it is an estimate, unless one has more than ``notable``
        bytes. A row of a dictionary column counts the whole dictionary: it is kept for any row.
        """
        total = self._fixed
        for i, is_textual in self._varying:
            column = batch.column(i)
            if is_textual:
                offsets = text_parts(column)[0]
                total += int(np.diff(offsets).max(initial=0)) + 9
            elif len(column):
                total += _longest_nested(column, notable)
        return total


def _longest_nested(column: pa.Array, notable: int) -> int:
    sizes = _value_bytes(column)
    if sizes is not None:
        return int(sizes.max()) + 16
    # no cheap bound, so assume 8 times the average, and look for larger ones
    usual = int(min(column.nbytes, 64 + 8 * column.nbytes // len(column)))
    above = rows_above(column, max(usual, notable), 0, len(column))
    return max((nbytes for _, nbytes in above), default=usual)


def _value_bytes(column: pa.Array) -> Any:
    """An upper bound on the bytes of each value; None for types that are not looked into."""
    kind, types = column.type, pa.types
    width = width_of(kind)
    if width is not None:
        return np.full(len(column), width + 1, np.int64)
    if is_text(kind):
        return np.diff(text_parts(column)[0]).astype(np.int64) + 9
    if types.is_dictionary(kind):
        return np.full(len(column), column.dictionary.nbytes + 9, np.int64)
    if types.is_struct(kind):
        return _sum([np.ones(len(column)), *map(_value_bytes, column.flatten())])
    if types.is_map(kind):
        parts = [column.keys, column.items]
    elif types.is_list(kind) or types.is_large_list(kind):
        parts = [column.values]
    else:
        return None
    # A slice has the children of the whole column: look at its own items only.
    offsets = column.offsets.to_numpy(zero_copy_only=False)
    first, count = offsets[0], offsets[-1] - offsets[0]
    items = _sum([_value_bytes(part.slice(first, count)) for part in parts])
    if items is None:
        return None
    before = np.concatenate([[0], np.cumsum(items)])
    return before[offsets[1:] - first] - before[offsets[:-1] - first] + 18


def _sum(sizes: list[Any]) -> Any:
    return None if any(part is None for part in sizes) else np.sum(sizes, axis=0)


def ranges(low: Any, counts: Any) -> Any:
    """The integers ``low[i]`` to ``low[i] + counts[i] - 1`` for every i, as one array."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(low - ends + counts, counts)
