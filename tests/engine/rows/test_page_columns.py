"""Rows taken from several pages at once are those that Arrow would take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.rows.arrow_columns import paged_columns, rows_of, taken
from semistream.engine.rows.page_columns import PageColumns
from semistream.errors import MasterTableError


def filled(pages: list[list[pa.Array]]) -> PageColumns:
    columns = PageColumns([column.type for column in pages[0]], len(pages))
    for place, page in enumerate(pages):
        columns.put(place, page)
    return columns


def take(columns: PageColumns, pairs: list[tuple[int, int]]) -> list[pa.Array]:
    places, rows = np.array([*pairs, (0, 0)]).T[:, :-1]
    return columns.take(places, rows)


@settings(max_examples=100)
@given(st.data())
def test_rows_of_pages(data: Any) -> None:
    """Also if buffers are used again: rows that were taken before stay as they are."""
    pages = data.draw(paged_columns())
    source = filled(pages)
    calls = [data.draw(rows_of(pages)) for _ in range(3)]
    for columns, pairs in [(take(source, pairs), pairs) for pairs in calls]:
        for column in columns:
            column.validate(full=True)
        assert [c.type for c in columns] == [c.type for c in pages[0]]
        assert [c.to_pylist() for c in columns] == [c.to_pylist() for c in taken(pages, pairs)]


def test_large_buffers_are_not_kept() -> None:
    columns = filled([[pa.array(["a", "b" * 100_000])]])
    for _ in range(2):
        assert take(columns, [(0, 1)])[0].to_pylist() == ["b" * 100_000]
        assert columns.kept_bytes == 0
    take(columns, [(0, 0)])
    assert 0 < columns.kept_bytes < 1_000


def test_a_bitmap_is_only_made_for_rows_that_are_null() -> None:
    columns = filled([[pa.array([1, None, 3]), pa.array([[1], None, [2, None]])]])
    number, numbers = take(columns, [(0, 0), (0, 2)])
    assert number.buffers()[0] is numbers.buffers()[0] is None
    assert (number.null_count, numbers.values.null_count) == (0, 1)


def test_children_that_are_slices() -> None:
    """Arrays within arrays have offsets of their own."""
    texts = pa.array(["skipped", "a", None, "bcd", "e", None, "f"]).slice(1)
    flags = pa.array([None, True, False, None, True, True, False]).slice(1)
    struct = pa.StructArray.from_arrays([texts, flags], ["t", "f"]).slice(1)
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2, 5], pa.int32()), struct)
    fixed = pa.FixedSizeListArray.from_arrays(flags, 2)
    entries = [pa.array([8, 1, 2, 3], pa.int8()).slice(1), texts.slice(1, 3)]
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 3, 3], pa.int32()), *entries)
    page = [lists.slice(1), fixed.slice(1), maps.slice(1)]
    pairs = [(0, 1), (0, 0), (0, 1)]
    assert [c.to_pylist() for c in take(filled([page]), pairs)] == [
        [column[row].as_py() for _, row in pairs] for column in page
    ]


def test_binary_values_of_no_bytes() -> None:
    page = [pa.array([b"", None, b""], pa.binary(0))]
    assert take(filled([page]), [(0, 1), (0, 0)])[0].to_pylist() == [None, b""]


def test_a_page_is_replaced_by_another() -> None:
    columns = filled([[pa.array([None, "old"]), pa.array([None, [None]], pa.list_(pa.int8()))]])
    columns.drop(0)
    columns.put(0, [pa.array(["new"]), pa.array([[1]], pa.list_(pa.int8()))])
    assert [c.to_pylist() for c in take(columns, [(0, 0)])] == [["new"], [[1]]]


def test_no_rows() -> None:
    columns = filled([[pa.array([1]), pa.array(["a"]), pa.array([{"x": [1]}])]])
    assert [c.to_pylist() for c in take(columns, [])] == [[], [], []]


def test_pages_that_were_moved() -> None:
    """Addresses are all that is needed."""
    arrays = [pa.array([1, 2]), pa.array(["a", "bc"]), pa.array([True, None])]
    columns = filled([arrays])
    moved = columns.at_addresses(columns.addresses.copy())
    columns.drop(0)
    assert [c.to_pylist() for c in take(moved, [(0, 1), (0, 0)])] == [
        [2, 1],
        ["bc", "a"],
        [None, True],
    ]


def lists_of(offsets: Any) -> pa.Array:
    items = pa.array([97, 98, 99], pa.int8())
    kind, count = pa.list_(pa.int8()), len(offsets) - 1
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets)], children=[items])


def texts_of(offsets: Any) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"abc")]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


@pytest.mark.parametrize("make", [texts_of, lists_of])
@pytest.mark.parametrize("offsets", [[0, 99, 3], [0, 3, 2], [-1, 2, 3], [0, 1, 4]])
def test_offsets_that_point_outside_their_page_now_raise(make: Any, offsets: list[int]) -> None:
    held = np.array([0, 1, 3], np.int32)
    columns = filled([[make(held)]])
    assert len(take(columns, [(0, 0), (0, 1)])[0]) == 2
    held[:] = offsets
    with pytest.raises(MasterTableError, match="point outside their page"):
        take(columns, [(0, 0), (0, 1)])


@pytest.mark.parametrize("make", [texts_of, lists_of])
@pytest.mark.parametrize("offsets", [[0, 99, 3], [0, 3, 2], [-1, 2, 3], [0, 1, 4]])
def test_the_same_within_a_list(make: Any, offsets: list[int]) -> None:
    held = np.array([0, 1, 3], np.int32)
    columns = filled([[pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), make(held))]])
    assert len(take(columns, [(0, 0)])[0]) == 1
    held[:] = offsets
    with pytest.raises(MasterTableError, match="point outside their page"):
        take(columns, [(0, 0)])
