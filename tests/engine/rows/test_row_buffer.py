"""Output rows gathered from page after page are the rows of the pages, in order."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.engine.rows.page_columns import PageColumns
from semistream.engine.rows.row_buffer import RowBuffer
from semistream.errors import MasterTableError

TYPES = [pa.int64(), pa.string(), pa.large_binary(), pa.bool_(), pa.list_(pa.int64())]


def page(first: int, with_nulls: bool = False) -> PageColumns:
    numbers: list[Any] = list(range(first, first + 10))
    if with_nulls:
        numbers[3] = None
    columns = PageColumns(TYPES, 1)
    columns.put(
        0,
        [
            pa.array(numbers),
            pa.array([None if n is None else "t" * (n % 4) for n in numbers]),
            pa.array([None if n is None else b"b" * (n % 3) for n in numbers], TYPES[2]),
            pa.array([None if n is None else n % 2 == 0 for n in numbers]),
            pa.array([None if n is None else [n] for n in numbers], TYPES[4]),
        ],
    )
    return columns


def expected(first: int, with_nulls: bool, rows: list[int]) -> list[list[Any]]:
    taken = page(first, with_nulls).take(np.zeros(len(rows), np.int64), np.array(rows, np.int64))
    return [column.to_pylist() for column in taken]


@pytest.mark.parametrize("seed", range(10))
def test_pages_with_and_without_nulls_in_any_order(seed: int) -> None:
    rng = random.Random(seed)
    buffer = RowBuffer(TYPES, 40, 20.0)
    for _ in range(4):
        want: list[list[Any]] = [[] for _ in TYPES]
        for _ in range(rng.randint(1, 4)):
            first, with_nulls = rng.randrange(100), rng.random() < 0.4
            rows = [rng.randrange(10) for _ in range(rng.randint(1, 10))]
            buffer.add(page(first, with_nulls), np.zeros(len(rows), np.int64), np.array(rows))
            for column, more in zip(want, expected(first, with_nulls, rows), strict=True):
                column += more
        assert buffer.count == len(want[0])
        arrays = buffer.finish()
        assert [a.to_pylist() for a in arrays] == want
        assert [a.type for a in arrays] == TYPES
        assert buffer.count == 0


def test_emitted_batches_do_not_change() -> None:
    buffer = RowBuffer(TYPES, 8, 20.0)
    batches = []
    for first, rows in ((0, [1]), (10, list(range(8))), (20, [2, 3])):
        buffer.add(page(first), np.zeros(len(rows), np.int64), np.array(rows))
        batches.append((buffer.finish(), expected(first, False, rows)))
    for arrays, want in batches:
        assert [a.to_pylist() for a in arrays] == want


def plain(texts: list[str]) -> PageColumns:
    columns = PageColumns([pa.int32(), pa.string()], 1)
    columns.put(0, [pa.array(range(len(texts)), pa.int32()), pa.array(texts)])
    addresses = columns.addresses
    moved = columns.at_addresses(*addresses)
    moved.owner = columns  # keeps the buffers alive
    return moved


def test_the_buffer_grows_for_long_text() -> None:
    buffer = RowBuffer([pa.int32(), pa.string()], 4, 6.0)
    before = buffer.nbytes
    columns = plain(["x" * 500, "y"])
    zeros = np.zeros(2, np.int32)
    buffer.add(columns, zeros, np.array([0, 1], np.int32))
    buffer.add(columns, zeros, np.array([1, 0], np.int32))
    assert buffer.nbytes > before
    assert [a.to_pylist() for a in buffer.finish()] == [
        [0, 1, 1, 0],
        ["x" * 500, "y", "y", "x" * 500],
    ]


@pytest.mark.parametrize(
    ("types", "row_bytes", "nbytes"),
    [
        ([], 8.0, 0),
        ([pa.int64()], 8.0, 80),
        ([pa.int64(), pa.string()], 20.0, 80 + 4 * 11 + 120),
        ([pa.string(), pa.large_string()], 20.0, 4 * 11 + 8 * 11 + 200),
    ],
)
def test_planned_bytes(types: list[pa.DataType], row_bytes: float, nbytes: int) -> None:
    """Values (or offsets) for every row, and what is left of an average row for texts."""
    buffer = RowBuffer(types, 10, row_bytes)
    assert buffer.nbytes == nbytes
    columns = PageColumns(types, 1)
    columns.put(0, [pa.array([7 if kind == pa.int64() else "7"], kind) for kind in types])
    buffer.add(columns, np.zeros(1, np.int64), np.zeros(1, np.int64))
    held = sum(
        c._values.nbytes + (c._content is not None and len(c._content)) for c in buffer._columns
    )
    assert buffer.nbytes == held == nbytes


def test_clear_discards_gathered_rows() -> None:
    buffer = RowBuffer([pa.int32(), pa.string()], 4, 6.0)
    buffer.add(plain(["old"]), np.zeros(1, np.int32), np.zeros(1, np.int32))
    buffer.clear()
    assert buffer.count == 0
    buffer.add(plain(["new"]), np.zeros(1, np.int32), np.zeros(1, np.int32))
    assert [a.to_pylist() for a in buffer.finish()] == [[0], ["new"]]


def test_a_text_outside_its_page_raises() -> None:
    offsets = pa.py_buffer(np.array([0, 99, 3], np.int32))
    columns = PageColumns([pa.string()], 1)
    columns.put(0, [pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"abc")])])
    moved = columns.at_addresses(*columns.addresses)
    buffer = RowBuffer([pa.string()], 4, 6.0)
    with pytest.raises(MasterTableError, match="point outside their page"):
        buffer.add(moved, np.zeros(1, np.int32), np.zeros(1, np.int32))
    assert buffer.count == 0
