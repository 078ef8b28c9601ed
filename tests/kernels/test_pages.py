"""Rows of pages that are accessed by address, compared with Python's values."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.kernels import column_forms as forms
from semistream.kernels import page_ranges
from semistream.kernels import pages as kernel

many = pytest.mark.parametrize("seed", range(15))
nullable = pytest.mark.parametrize("with_nulls", [False, True])
PAGES = 3
MOST = 60  # rows or items in the output
FORMS = [8, 4, 1, 3, 16, forms.BITS, forms.TEXT, forms.LARGE_TEXT, forms.EMPTY]
LISTS = [forms.LIST, forms.LARGE_LIST]
KINDS = {
    8: pa.int64(), 4: pa.int32(), 1: pa.int8(), 3: pa.binary(3), 16: pa.binary(16),
    forms.BITS: pa.bool_(), forms.TEXT: pa.string(), forms.LARGE_TEXT: pa.large_string(),
    forms.EMPTY: pa.struct([]), forms.LIST: pa.list_(pa.int8()),
    forms.LARGE_LIST: pa.large_list(pa.int8()),
}  # fmt: skip


def offset_bytes(form: int) -> int:
    return 8 if form in (forms.LARGE_TEXT, forms.LARGE_LIST) else 4


def value(rng: random.Random, form: int) -> Any:
    if form in (3, 16):
        return rng.randbytes(form)
    if form == forms.BITS:
        return rng.random() < 0.5
    if form in (forms.TEXT, forms.LARGE_TEXT):
        return "ü" * rng.randint(0, 9)
    if form in LISTS:
        return [rng.randrange(99) for _ in range(rng.randint(0, 4))]
    return {} if form == forms.EMPTY else rng.randrange(99)


class World:
    """Columns of some forms in pages that are slices, and output buffers for them."""

    def __init__(self, rng: random.Random, node_forms: list[int], with_nulls: bool) -> None:
        self.rng = rng
        self.forms = np.array(node_forms)
        self.counts = [rng.randint(1, 9) for _ in range(PAGES)]
        self.columns = [
            [self.column(form, n, with_nulls) for n in self.counts] for form in node_forms
        ]
        self.pages = np.zeros((forms.PAGE_ROWS, len(node_forms), PAGES), np.int64)
        for n, parts in enumerate(self.columns):
            for place, part in enumerate(parts):
                self.pages[:, n, place] = addresses(node_forms[n], part)
        self.out = np.zeros((forms.OUT_ROWS, len(node_forms)), np.int64)
        self.bitmaps = [np.full(MOST // 8 + 1, 255, np.uint8) for _ in node_forms]
        self.values = [np.zeros((MOST + 1) * 16, np.uint8) for _ in node_forms]
        self.contents = [np.zeros(5000, np.uint8) for _ in node_forms]
        for row, held in enumerate((self.bitmaps, self.values, self.contents)):
            self.out[row] = [array.ctypes.data for array in held]
        self.out[forms.OUT_ROOM] = 5000

    def column(self, form: int, rows: int, with_nulls: bool) -> pa.Array:
        rng, skipped = self.rng, self.rng.randint(0, 9)
        column = [value(rng, form) for _ in range(skipped + rows)]
        if with_nulls and rng.random() < 0.7:  # else a page without nulls
            column = [None if rng.random() < 0.3 else v for v in column]
        return pa.array(column, KINDS[form]).slice(skipped)

    def value(self, n: int, place: int, row: int) -> Any:
        return self.columns[n][place][row].as_py()

    def output(self, n: int, count: int) -> list[Any]:
        """The first values of the output buffers."""
        form = int(self.forms[n])
        buffers = [pa.py_buffer(self.bitmaps[n])]
        if form != forms.EMPTY:
            buffers.append(pa.py_buffer(self.values[n]))
        if form in (forms.TEXT, forms.LARGE_TEXT):
            buffers.append(pa.py_buffer(self.contents[n]))
        return pa.Array.from_buffers(KINDS[form], count, buffers).to_pylist()

    def offsets(self, n: int) -> Any:
        """The offsets in the output buffers."""
        kind = np.int64 if offset_bytes(int(self.forms[n])) == 8 else np.int32
        return self.values[n].view(kind)


def addresses(form: int, column: pa.Array) -> list[int]:
    buffers = column.buffers()
    validity = buffers[0].address * 8 + column.offset if column.null_count else 0
    if form == forms.EMPTY:
        return [validity, 0, 0, 0]
    if form in LISTS:
        content, size = 0, len(column.values)
    else:
        content, size = (buffers[2].address, buffers[2].size) if len(buffers) > 2 else (0, 0)
    width = form if form > 0 else offset_bytes(form)
    if form == forms.BITS:
        return [validity, buffers[1].address * 8 + column.offset, content, size]
    return [validity, buffers[1].address + column.offset * width, content, size]


@many
@nullable
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_rows_of_several_columns_are_appended(seed: int, with_nulls: bool, index: Any) -> None:
    rng = random.Random(seed)
    world = World(rng, FORMS, with_nulls)
    expected: list[list[Any]] = [[] for _ in FORMS]
    count = 0
    for _ in range(3):
        places = [rng.randrange(PAGES) for _ in range(rng.choice([0, 1, 2, 9, 19]))]
        rows = [rng.randrange(world.counts[place]) for place in places]
        done = kernel.append(
            world.pages, world.forms, 0, len(FORMS), np.array(places, index),
            np.array(rows, index), count, world.out,
        )  # fmt: skip
        assert done == forms.DONE
        count += len(rows)
        for n, column in enumerate(expected):
            column += [world.value(n, place, row) for place, row in zip(places, rows, strict=True)]
    for n, column in enumerate(expected):
        assert world.output(n, count) == column
        assert bool(world.out[forms.OUT_NULLS, n]) is (None in column)


@many
@nullable
def test_ranges_of_several_columns_are_appended(seed: int, with_nulls: bool) -> None:
    rng = random.Random(seed)
    world = World(rng, FORMS, with_nulls)
    expected: list[list[Any]] = [[] for _ in FORMS]
    count = 0
    for _ in range(2):
        places = np.array([rng.randrange(PAGES) for _ in range(rng.choice([0, 1, 3]))], np.int64)
        starts = np.array([rng.randrange(world.counts[place]) for place in places], np.int64)
        lengths = [rng.randint(0, world.counts[p] - s) for p, s in zip(places, starts, strict=True)]
        done = page_ranges.append(
            world.pages, world.forms, 0, len(FORMS), places, starts, np.array(lengths, np.int64),
            count, world.out,
        )  # fmt: skip
        assert done == forms.DONE
        count += sum(lengths)
        for place, start, length in zip(places, starts, lengths, strict=True):
            for n, column in enumerate(expected):
                column += [world.value(n, place, row) for row in range(start, start + length)]
    for n, column in enumerate(expected):
        assert world.output(n, count) == column
        assert bool(world.out[forms.OUT_NULLS, n]) is (None in column)


@many
@nullable
@pytest.mark.parametrize("form", LISTS)
def test_items_of_appended_lists(seed: int, with_nulls: bool, form: int) -> None:
    """First of single rows, then of ranges of rows."""
    rng = random.Random(seed)
    world = World(rng, [form], with_nulls)
    count = 0
    for lengths_of in (lambda room: 1, lambda room: rng.randint(0, room)):
        places = np.array([rng.randrange(PAGES) for _ in range(rng.randint(0, 5))], np.int64)
        starts = np.array([rng.randrange(world.counts[place]) for place in places], np.int64)
        lengths = np.array(
            [lengths_of(world.counts[p] - s) for p, s in zip(places, starts, strict=True)], np.int64
        )
        if count == 0:
            done = kernel.append(world.pages, world.forms, 0, 1, places, starts, 0, world.out)
        else:
            done = page_ranges.append(
                world.pages, world.forms, 0, 1, places, starts, lengths, count, world.out
            )
        assert done == forms.DONE
        first, counts = np.empty_like(places), np.empty_like(places)
        done = page_ranges.items(
            world.pages, world.forms, 0, places, starts, lengths, count, world.out, first, counts
        )
        assert done == forms.DONE
        ends = world.offsets(0)[count:].tolist()
        for place, start, length, begin, items in zip(
            places, starts, lengths, first.tolist(), counts.tolist(), strict=True
        ):
            column = world.columns[0][place].slice(start, length)
            rows = [row or [] for row in column.to_pylist()]
            whole = column.values.slice(begin, items).to_pylist()
            assert whole == [item for row in rows for item in row]
            assert np.diff(ends[: length + 1]).tolist() == [len(row) for row in rows]
            ends = ends[length:]
        count += int(lengths.sum())
        if not count:
            return
    assert world.out[forms.OUT_END, 0] == world.offsets(0)[count]


class Texts:
    """The texts (or lists) of one page of ten bytes (or items), as rows or as one range."""

    def __init__(self, form: int, offsets: list[int], room: int, as_range: bool = False) -> None:
        self.starts, self.content = np.array(offsets, np.int32), np.zeros(10, np.uint8)
        self.pages = np.zeros((forms.PAGE_ROWS, 1, 1), np.int64)
        self.pages[forms.VALUES] = self.starts.ctypes.data
        self.pages[forms.CONTENT], self.pages[forms.SIZE] = self.content.ctypes.data, 10
        self.values, self.full = np.zeros(len(offsets), np.int32), np.empty(room, np.uint8)
        self.out = np.zeros((forms.OUT_ROWS, 1), np.int64)
        self.out[forms.OUT_VALUES] = self.values.ctypes.data
        self.out[forms.OUT_CONTENT], self.out[forms.OUT_ROOM] = self.full.ctypes.data, room
        self.forms, self.as_range, self.rows = np.array([form]), as_range, len(offsets) - 1

    def append(self) -> tuple[int, int]:
        """What is returned, and the end of the last text."""
        zero = np.zeros(1, np.int64)
        if self.as_range:
            done = page_ranges.append(
                self.pages, self.forms, 0, 1, zero, zero, zero + self.rows, 0, self.out
            )
        else:
            places, rows = np.zeros(self.rows, np.int32), np.arange(self.rows, dtype=np.int32)
            done = kernel.append(self.pages, self.forms, 0, 1, places, rows, 0, self.out)
        return int(done), int(self.out[forms.OUT_END, 0])


either_way = pytest.mark.parametrize("as_range", [False, True])
either_form = pytest.mark.parametrize("form", [forms.TEXT, forms.LIST])


@either_way
@either_form
def test_a_column_without_room_is_named_with_the_room_it_needs(form: int, as_range: bool) -> None:
    assert Texts(form, [0, 4, 10], 9, as_range).append() == (0, 10)
    assert Texts(form, [0, 4, 10], 10, as_range).append() == (forms.DONE, 10)


@either_way
def test_a_null_without_a_bitmap_is_reported(as_range: bool) -> None:
    texts, bits = Texts(forms.TEXT, [0, 4, 10], 10, as_range), np.array([2], np.uint8)
    texts.pages[forms.VALIDITY] = bits.ctypes.data * 8
    assert texts.append() == (0, forms.NO_BITMAP)
    bitmap = np.array([255], np.uint8)
    texts.out[forms.OUT_BITMAP] = bitmap.ctypes.data
    assert texts.append() == (forms.DONE, 10)
    assert (bitmap[0], texts.out[forms.OUT_NULLS, 0]) == (254, 1)


@either_way
@either_form
@pytest.mark.parametrize("offsets", [[-1, 2], [5, 4], [0, 11]])
def test_a_text_outside_its_page_is_detected(form: int, offsets: list[int], as_range: bool) -> None:
    assert Texts(form, offsets, 100, as_range).append()[0] == forms.CORRUPT


def test_items_outside_their_page_are_detected() -> None:
    """The page may change after the offsets were appended."""
    texts = Texts(forms.LIST, [0, 4, 10], 10)
    assert texts.append() == (forms.DONE, 10)
    zero, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    for begin, done in ((4, forms.DONE), (5, forms.CORRUPT), (-1, forms.CORRUPT)):
        texts.starts[1] = begin
        found = page_ranges.items(
            texts.pages, texts.forms, 0, zero, one, one, 1, texts.out, zero.copy(), zero.copy()
        )
        assert found == done


@many
def test_rows_of_a_code_are_found_in_sorted_pages(seed: int) -> None:
    rng = random.Random(seed)
    pages = [sorted(rng.randrange(10) for _ in range(rng.randint(0, 12))) for _ in range(PAGES)]
    arrays = [np.array(page, np.int64) for page in pages]
    asked = [rng.randrange(PAGES) for _ in range(20)]
    codes = [rng.randrange(-1, 12) for _ in asked]
    low, high = np.empty(20, np.int64), np.empty(20, np.int64)
    kernel.find(
        np.array([array.ctypes.data for array in arrays]), np.array([len(p) for p in pages]),
        np.array(asked, np.int32), np.array(codes), low, high,
    )  # fmt: skip
    for page, code, begin, end in zip(asked, codes, low.tolist(), high.tolist(), strict=True):
        rows = [row for row, other in enumerate(pages[page]) if other == code]
        assert list(range(begin, end)) == rows
        assert begin == sum(other < code for other in pages[page])


@many
def test_tuples_are_paired_with_all_rows_of_their_code_or_none(seed: int) -> None:
    rng = random.Random(seed)
    pages = [sorted(rng.randrange(10) for _ in range(rng.randint(0, 12))) for _ in range(PAGES)]
    arrays = [np.array(page, np.int64) for page in pages]
    codes = [rng.randrange(-1, 12) for _ in range(30)]
    tuples = sorted(rng.sample(range(30), 20))
    asked = [rng.randrange(PAGES) for _ in tuples]
    room = rng.choice([0, 3, 10, 500])
    owners, rows = np.empty(room, np.int64), np.empty(room, np.int64)
    places = np.empty(room, np.int32)
    served, found = kernel.pair(
        np.array([array.ctypes.data for array in arrays]), np.array([len(p) for p in pages]),
        np.array(asked, np.int32), np.array(codes), np.array(tuples), owners, places, rows,
    )  # fmt: skip
    expected: list[tuple[int, int, int]] = []
    for i, (row, page) in enumerate(zip(tuples, asked, strict=True)):
        own = [(i, page, at) for at, code in enumerate(pages[page]) if code == codes[row]]
        if len(expected) + len(own) > room:
            break
        expected += own
    else:
        i = len(tuples)
    pairs = zip(
        owners[:found].tolist(), places[:found].tolist(), rows[:found].tolist(), strict=True
    )
    assert (served, list(pairs)) == (i, expected)
