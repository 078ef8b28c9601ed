"""The layout of columns in a slot, and the size of a slot."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from semistream.engine.rows.layout import (
    RecordLayout,
    RowWidths,
    fixed_buffer,
    form_of,
    ranges,
    rows_above,
    text_parts,
    validity,
    width_of,
)

LIST = pa.list_(pa.int64())


def test_columns_are_sorted_by_kind() -> None:
    layout = RecordLayout([pa.string(), pa.int8(), LIST, pa.float64(), pa.null(), pa.bool_()])
    assert layout.fixed == [1, 3, 5]
    assert layout.text == [0]
    assert layout.nested == [2]
    assert layout.empty == [4]


@pytest.mark.parametrize(
    ("types", "slot"),
    [
        ([], 0),
        ([pa.int64()], 8 + 1),
        ([pa.int64()] * 8, 64 + 1),
        ([pa.int64()] * 9, 72 + 2),
        ([pa.bool_(), pa.int16(), pa.decimal128(10, 2)], 1 + 2 + 16 + 1),
        ([pa.string(), pa.large_binary()], 4 + 4),
        ([LIST, pa.struct([("x", LIST)])], 16 + 16),
        ([pa.null()], 0),
    ],
)
def test_bytes_of_a_slot(types: list[pa.DataType], slot: int) -> None:
    """Values side by side, one bit per fixed column for nulls, positions of the others."""
    assert RecordLayout(types).slot_bytes == slot


def test_fixed_columns_do_not_overlap() -> None:
    layout = RecordLayout([pa.int8(), pa.int64(), pa.binary(3), pa.int16(), pa.int32()])
    taken = sorted(zip(layout.places.tolist(), layout.forms.tolist(), strict=True))
    assert [place for place, _ in taken] == np.cumsum([0, *(w for _, w in taken[:-1])]).tolist()


def test_selected_columns_keep_the_requested_order() -> None:
    layout = RecordLayout([pa.int8(), pa.string(), pa.int64(), pa.int32()])
    fixed, forms, places, bits = layout.choice((3, 1, 0))
    assert fixed == [3, 0]
    assert forms.tolist() == [4, 1]
    assert bits.tolist() == [2, 0]
    assert places.tolist() == [layout.places[2], layout.places[0]]
    assert layout.choice((3, 1, 0)) is layout.choice((3, 1, 0))


@pytest.mark.parametrize(
    ("kind", "width"),
    [
        (pa.bool_(), 1),
        (pa.date32(), 4),
        (pa.timestamp("us", "UTC"), 8),
        (pa.decimal256(60, 1), 32),
        (pa.month_day_nano_interval(), 16),
        (pa.string(), None),
        (LIST, None),
        (pa.null(), None),
    ],
)
def test_widths(kind: pa.DataType, width: int | None) -> None:
    assert width_of(kind) == width


def test_heap_bytes_of_an_average_row() -> None:
    layout = RecordLayout([pa.int64(), pa.string()])
    short = [pa.array([1, 2]), pa.array(["a", "b"])]
    long = [pa.array([1, 2]), pa.array(["a" * 100, "b" * 100])]
    assert layout.heap_bytes(long) - layout.heap_bytes(short) == pytest.approx(99 / 0.9)
    assert RecordLayout([pa.int64()]).heap_bytes([pa.array([1])]) == 0
    assert RecordLayout([]).heap_bytes([]) == 0


def test_values_of_a_sliced_column_are_found() -> None:
    column = pa.array([1, 2, 3, None], pa.int32()).slice(1)
    owner, address = fixed_buffer(column, 4)
    assert address == owner.address + 4
    _, address = fixed_buffer(pa.Array.from_buffers(pa.int64(), 0, [None, None]), 8)
    assert address > 0


def test_positions_of_bits() -> None:
    flags = pa.array([True, False, None, True, True]).slice(3)
    owner, position = fixed_buffer(flags, form_of(flags.type))
    assert position == owner.address * 8 + 3
    assert validity(flags) == 0
    flags = pa.array([True, False, None, True, True]).slice(1)
    assert validity(flags) == flags.buffers()[0].address * 8 + 1
    assert validity(pa.nulls(3)) == 0  # of a type without bits


def test_parts_of_a_text_column() -> None:
    column = pa.array(["no", "a", None, "bcd"]).slice(1)
    offsets, content, valid = text_parts(column)
    assert (np.diff(offsets)).tolist() == [1, 0, 3]
    assert content[offsets[0] : offsets[-1]].tobytes() == b"abcd"
    assert valid == validity(column) > 0
    assert text_parts(pa.array([], pa.large_string()))[0].tolist() == [0]
    assert text_parts(pa.array(["x"]))[2] == 0


@pytest.mark.parametrize("limit", [0, 50, 5_000])
def test_rows_above_a_size_limit(limit: int) -> None:
    lists = [[1] * n for n in (0, 1, 200, 3, 1000, 2)]
    column = pa.array(lists, LIST)
    above = list(rows_above(column, limit, 0, len(column)))
    sizes = [column.take(pa.array([row])).nbytes for row in range(len(column))]
    assert above == [(row, size) for row, size in enumerate(sizes) if size > limit]


def test_the_longest_row_is_never_underestimated() -> None:
    batch = pa.record_batch(
        {
            "n": [1, 2, 3],
            "t": ["", "a" * 50, None],
            "l": pa.array([[1] * 500, [], None], LIST),
        }
    )
    sizes = [batch.take(pa.array([row])).nbytes for row in range(3)]
    assert RowWidths(batch.schema.types).longest(batch, 100) >= max(sizes)
    assert RowWidths(batch.schema.types).longest(batch.slice(0, 0), 100) >= 8


NESTED = {
    "list": pa.array([[1] * n for n in (0, 1, 300, 3)], LIST),
    "large list of text": pa.array(
        [["a" * n] * 3 for n in (0, 1, 90, 3)], pa.large_list(pa.string())
    ),
    "struct": pa.array([{"a": 1, "b": "x" * n} for n in (0, 5, 200, 1)]),
    "list of structs": pa.array([[{"b": [n] * n}] * 4 for n in (0, 1, 40, 2)]),
    "map": pa.array([[("k", "v" * n)] for n in (0, 1, 150, 2)], pa.map_(pa.string(), pa.string())),
    "dictionary": pa.array(["a", "b" * 200, "c", None]).dictionary_encode(),
    "null lists": pa.array([None, [1] * 100, None, []], LIST),
}


@pytest.mark.parametrize("name", list(NESTED))
def test_no_nested_value_is_underestimated_however_rare(name: str) -> None:
    usual = NESTED[name].take(pa.array([0] * 3000 + [2, 1]))  # the average says nothing
    for column in (NESTED[name], NESTED[name].slice(1, 3), usual):
        batch = pa.record_batch({"c": column})
        held = [batch.take(pa.array([row])).nbytes for row in (0, len(column) - 2, len(column) - 1)]
        assert RowWidths(batch.schema.types).longest(batch, 1 << 30) >= max(held)


def test_ranges_one_after_the_other() -> None:
    low, counts = np.array([5, 0, 9]), np.array([2, 0, 3])
    assert ranges(low, counts).tolist() == [5, 6, 9, 10, 11]
    assert ranges(np.zeros(0, np.int64), np.zeros(0, np.int64)).tolist() == []
