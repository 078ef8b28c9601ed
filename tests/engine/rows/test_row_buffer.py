"""Output rows gathered from page after page are the rows of the pages, in order."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.rows.arrow_columns import paged_columns, rows_of, taken
from semistream.engine.rows.page_columns import PageColumns
from semistream.engine.rows.row_buffer import RowBuffer
from semistream.errors import MasterTableError
from semistream.master.row_sizes import cumulative_bytes

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


@settings(max_examples=60)
@given(st.data())
def test_visits_to_pages_of_any_type(data: Any) -> None:
    pages = data.draw(paged_columns())
    columns = PageColumns([column.type for column in pages[0]], len(pages))
    for place, page in enumerate(pages):
        columns.put(place, page)
    most = data.draw(st.sampled_from([20, 60]))
    buffer = RowBuffer([c.type for c in pages[0]], most, data.draw(st.sampled_from([0.0, 50.0])))
    for _ in range(data.draw(st.integers(1, 3))):  # batches, small and full ones
        pairs: list[tuple[int, int]] = []
        for _ in range(data.draw(st.integers(1, 3))):
            some = data.draw(rows_of(pages, most=(most - len(pairs)) // 2))
            places, rows = np.array([*some, (0, 0)], np.int32).T[:, :-1]
            buffer.add(columns, np.ascontiguousarray(places), np.ascontiguousarray(rows))
            pairs += some
        assert buffer.count == len(pairs)
        arrays = buffer.finish()
        for array in arrays:
            array.validate(full=True)
        assert [a.to_pylist() for a in arrays] == [c.to_pylist() for c in taken(pages, pairs)]


def one_page(texts: list[str]) -> PageColumns:
    columns = PageColumns([pa.int32(), pa.string()], 1)
    columns.put(0, [pa.array(range(len(texts)), pa.int32()), pa.array(texts)])
    return columns


def test_the_buffer_grows_for_long_text() -> None:
    buffer = RowBuffer([pa.int32(), pa.string()], 4, 6.0)
    before = buffer.nbytes
    columns = one_page(["x" * 500, "y"])
    zeros = np.zeros(2, np.int32)
    buffer.add(columns, zeros, np.array([0, 1], np.int32))
    buffer.add(columns, zeros, np.array([1, 0], np.int32))
    assert buffer.nbytes > before
    assert [a.to_pylist() for a in buffer.finish()] == [
        [0, 1, 1, 0],
        ["x" * 500, "y", "y", "x" * 500],
    ]


def test_a_column_that_grows_leaves_the_others_as_they_are() -> None:
    kinds = [pa.string(), pa.list_(pa.int8()), pa.string()]
    page = [
        pa.array(["ab", None]),
        pa.array([[1, 2], [3]], kinds[1]),
        pa.array(["x" * 500, "y"]),
    ]
    columns = PageColumns(kinds, 1)
    columns.put(0, page)
    buffer = RowBuffer(kinds, 4, 40.0)
    for _ in range(2):
        buffer.add(columns, np.zeros(2, np.int32), np.arange(2, dtype=np.int32))
    assert [a.to_pylist() for a in buffer.finish()] == [2 * c.to_pylist() for c in page]


def test_a_full_buffer_has_no_more_content_than_its_longest_rows() -> None:
    """Growth is extrapolated from the rows so far, so that the planned bytes are enough."""
    buffer = RowBuffer([pa.int32(), pa.string()], 8, 6.0)
    before = buffer.nbytes
    columns = one_page(["x" * 100])
    for _ in range(8):
        buffer.add(columns, np.zeros(1, np.int32), np.zeros(1, np.int32))
        assert before < buffer.nbytes <= 8 * (4 + 4 + 100) + 4


@pytest.mark.parametrize(
    ("types", "row_bytes", "nbytes"),
    [
        ([], 8.0, 0),
        ([pa.int64()], 8.0, 80),
        ([pa.int64(), pa.string()], 20.0, 200 - 2 * 2),
        ([pa.string(), pa.large_string()], 20.0, 200 - 2 * 2),
        ([pa.string()], 4.0, 4 * 11),
        ([pa.bool_(), pa.null()], 8.0, 2),
        ([pa.list_(pa.int16(), 3)], 8.0, 60),
        ([pa.list_(pa.int32())], 20.0, 4 * 11 + int((200 - 4 * 11 - 2) / 4.125) * 4),
        ([pa.struct([("a", pa.int64()), ("b", pa.string())])], 20.0, 200 - 3 * 2),
    ],
)
def test_planned_bytes(types: list[pa.DataType], row_bytes: float, nbytes: int) -> None:
    """Values (or offsets) for every row, what is left of average rows for texts and lists, and a
    bitmap as soon as there is a null."""
    buffer = RowBuffer(types, 10, row_bytes)
    assert buffer.nbytes == nbytes
    columns = PageColumns(types, 2)
    columns.put(
        0, [pa.array([7], pa.int64()).cast(k) if k == pa.int64() else empty(k) for k in types]
    )
    columns.put(1, [pa.nulls(1, kind) for kind in types])
    zero = np.zeros(1, np.int64)
    buffer.add(columns, zero, zero)
    assert buffer.nbytes == held(buffer) == nbytes
    buffer.add(columns, zero + 1, zero)
    assert buffer.nbytes == held(buffer)
    with_bitmap = [kind for kind in types if not pa.types.is_null(kind)]
    assert buffer.nbytes >= nbytes + 2 * len(with_bitmap)


@settings(max_examples=40)
@given(st.data())
def test_bytes_are_covered_by_the_largest_rows(data: Any) -> None:
    """The plan has ``most`` times the bytes of the largest row for a buffer. It covers one text or
    list; of several, each may keep the share that it had at first while another one grows."""
    pages = [page for page in data.draw(paged_columns(most_columns=1)) if len(page[0])]
    assume(pages)
    columns = PageColumns([c.type for c in pages[0]], len(pages))
    largest = 0
    for place, page in enumerate(pages):
        columns.put(place, page)
        sizes = np.diff(cumulative_bytes(pa.record_batch(page, ["c"])))
        largest = max(largest, int(sizes.max()))
    most = 40
    buffer = RowBuffer([c.type for c in pages[0]], most, float(largest))
    for _ in range(4):
        pairs = data.draw(rows_of(pages, most=10))
        places, rows = np.array([*pairs, (0, 0)]).T[:, :-1]
        buffer.add(columns, places.copy(), rows.copy())
    beyond = 16 * len(columns.nodes)  # the last offsets, and a bitmap's last byte
    parts = sum(node.has_offsets for node in columns.nodes.nodes)
    assert buffer.nbytes <= most * largest * (1 if parts <= 1 else 1 + parts) + beyond


def empty(kind: pa.DataType) -> pa.Array:
    """One value that is not null and takes no bytes of content."""
    if pa.types.is_null(kind):
        return pa.nulls(1)
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays(
            [pa.array([1]), pa.array([""])], fields=[kind.field(0), kind.field(1)]
        )
    value = [1, 2, 3] if pa.types.is_fixed_size_list(kind) else [] if pa.types.is_list(kind) else ""
    return pa.array([True if pa.types.is_boolean(kind) else value], kind)


def held(buffer: RowBuffer) -> int:
    """Bytes of the allocated arrays."""
    b = buffer._buffers
    return sum(a.nbytes for a in [*b._values, *b._contents, *b._bitmaps] if a is not None)


def test_clear_discards_gathered_rows() -> None:
    buffer = RowBuffer([pa.int32(), pa.string()], 4, 6.0)
    buffer.add(one_page(["old"]), np.zeros(1, np.int32), np.zeros(1, np.int32))
    buffer.clear()
    assert buffer.count == 0
    buffer.add(one_page(["new"]), np.zeros(1, np.int32), np.zeros(1, np.int32))
    assert [a.to_pylist() for a in buffer.finish()] == [[0], ["new"]]


def test_after_a_text_outside_its_page_the_rows_before_it_are_unchanged() -> None:
    offsets = np.array([0, 1, 3], np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"abc")]
    texts = pa.Array.from_buffers(pa.string(), 2, buffers)
    lists = pa.array([None, [1, None]], pa.list_(pa.int8()))
    columns = PageColumns([pa.int8(), lists.type, pa.string()], 1)
    columns.put(0, [pa.array([1, None], pa.int8()), lists, texts])
    buffer = RowBuffer([pa.int8(), lists.type, pa.string()], 4, 6.0)
    zero, row = np.zeros(1, np.int32), np.ones(1, np.int32)
    buffer.add(columns, zero, row)
    offsets[2] = 99
    with pytest.raises(MasterTableError, match="point outside their page"):
        buffer.add(columns, zero, row)
    assert buffer.count == 1
    offsets[2] = 3
    columns.put(0, [pa.array([7, 8], pa.int8()), pa.array([[5], [6]], lists.type), texts])
    buffer.add(columns, zero, row)
    assert [a.to_pylist() for a in buffer.finish()] == [[None, 8], [[1, None], [6]], ["bc", "bc"]]
