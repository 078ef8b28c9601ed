"""Byte-wise comparison of keys, on arrays made by hand."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.kernels import column_forms as forms
from semistream.kernels.keys_equal import same_keys, same_rows

NO_TEXTS = np.zeros((4, 1), np.int32), np.zeros(8, np.int32)


def described(*columns: tuple[int, Any, Any]) -> Any:
    """The addresses of (form, values, content) of one page."""
    found = np.zeros((forms.PAGE_ROWS, len(columns), 1), np.int64)
    for c, (form, values, content) in enumerate(columns):
        found[forms.VALUES, c, 0] = values.ctypes.data * (8 if form == forms.BITS else 1)
        if content is not None:
            found[forms.CONTENT, c, 0] = content.ctypes.data
            found[forms.SIZE, c, 0] = len(content)
    return found


def compare(
    ours: Any, theirs: Any, form: int, other: int, tuples: list[int], rows: list[int]
) -> list[bool]:
    same = np.empty(len(rows), np.bool_)
    places = np.zeros(len(rows), np.int64)
    count = same_rows(
        described((form, *ours)), np.array([form]), np.array(tuples),
        described((other, *theirs)), np.array([other]), places, np.array(rows), same,
    )  # fmt: skip
    assert count == same.sum()
    return same.tolist()


@pytest.mark.parametrize("width", [1, 2, 4, 7, 8, 9, 16, 17, 32])
def test_values_of_every_width(width: int) -> None:
    """All that differ in a single byte are found."""
    base = bytes(range(1, width + 1))
    others = [base[:i] + b"\0" + base[i + 1 :] for i in range(width)]
    one = np.frombuffer(base * len(others), np.uint8)
    two = np.frombuffer(b"".join(others), np.uint8)
    rows = list(range(len(others)))
    assert compare((one, None), (two, None), width, width, rows, rows) == [False] * len(rows)
    assert compare((two, None), (two, None), width, width, rows, rows) == [True] * len(rows)


@pytest.mark.parametrize("ours", [forms.TEXT, forms.LARGE_TEXT])
@pytest.mark.parametrize("theirs", [forms.TEXT, forms.LARGE_TEXT])
def test_texts(ours: int, theirs: int) -> None:
    rng = random.Random(1)
    texts = ["", "a", "ab", "b", "x" * 8, "x" * 7 + "y", "x" * 16, "x" * 17]

    def arrays(form: int) -> tuple[Any, Any, list[str]]:
        order = [rng.choice(texts) for _ in range(30)]
        ends = np.cumsum([0, *map(len, order)])
        content = np.frombuffer("".join(order).encode(), np.uint8)
        return ends.astype(np.int32 if form == forms.TEXT else np.int64), content, order

    *one, first = arrays(ours)
    *two, second = arrays(theirs)
    pairs = [(a, b) for a in range(30) for b in range(30)]
    same = compare(one, two, ours, theirs, *map(list, zip(*pairs, strict=True)))
    assert same == [first[a] == second[b] for a, b in pairs]


@pytest.mark.parametrize("offsets", [[-1, 1], [0, 9], [2, 1], [1, -(2**31)]])
def test_a_text_outside_its_page_equals_nothing(offsets: list[int]) -> None:
    content = np.frombuffer(b"aaa", np.uint8)
    fine = np.array([0, 1], np.int32), content
    broken = np.array(offsets, np.int32), content
    assert compare(fine, broken, forms.TEXT, forms.TEXT, [0], [0]) == [False]
    assert compare(broken, fine, forms.TEXT, forms.TEXT, [0], [0]) == [False]


def test_bits() -> None:
    rng = np.random.default_rng(1)
    one, two = rng.integers(0, 2, 20, np.uint8), rng.integers(0, 2, 20, np.uint8)
    packed = [(np.packbits(bits, bitorder="little"), None) for bits in (one, two)]
    pairs = [(a, b) for a in range(20) for b in range(20)]
    same = compare(*packed, forms.BITS, forms.BITS, *map(list, zip(*pairs, strict=True)))
    assert same == [bool(one[a] == two[b]) for a, b in pairs]


def test_records_of_several_columns() -> None:
    """A record has a number at byte 2 and a bit at byte 0; the numbers of a page are apart."""
    size, numbers = 12, [5, 5, 6, -1]
    records = np.zeros(4 * size, np.uint8)
    for slot, number in enumerate(numbers):
        at = slot * size
        records[at] = slot % 2
        records[at + 2 : at + 10] = np.array([number]).view(np.uint8)
    page_numbers = np.array([5, 6, -1], np.int64)
    page_bits = np.array([0b101], np.uint8)  # 1, 0, 1
    columns = described((8, page_numbers, None), (forms.BITS, page_bits, None))
    kinds = np.array([8, forms.BITS])
    pairs = [(slot, row) for slot in range(4) for row in range(3)]
    slots, rows = (np.array(part) for part in zip(*pairs, strict=True))
    same = np.empty(len(pairs), np.bool_)
    positions, headers = NO_TEXTS
    count = same_keys(
        slots, 0 * rows, rows, columns, kinds, records.ctypes.data, size,
        np.array([2, 0]), np.array([-1, -1]), 0, headers, positions, same,
    )  # fmt: skip
    bits = [1, 0, 1]
    expected = [numbers[s] == page_numbers[r] and s % 2 == bits[r] for s, r in pairs]
    assert same.tolist() == expected
    assert count == sum(expected) == 3


def test_texts_of_a_heap() -> None:
    """A text in the heap follows its header, which has its length; -1: no text."""
    heap = np.zeros(6, np.int64)
    headers = heap.view(np.int32)
    bytes_of = heap.view(np.uint8)
    positions = np.array([[0], [3], [-1]], np.int64)
    for position, text in ((0, b"123456789"), (3, b"12345678")):
        headers[2 * position + 1] = len(text)
        at = 8 * (position + 1)
        bytes_of[at : at + len(text)] = np.frombuffer(text, np.uint8)
    texts = pa.array([b"123456789", b"12345678", b"123456780", b""], pa.binary())
    _, offsets, content = texts.buffers()
    ends, data = np.frombuffer(offsets, np.int32), np.frombuffer(content, np.uint8)
    columns = described((forms.TEXT, ends, data))
    pairs = [(slot, row) for slot in range(3) for row in range(4)]
    slots, rows = (np.array(part) for part in zip(*pairs, strict=True))
    same = np.empty(len(pairs), np.bool_)
    count = same_keys(
        slots, 0 * rows, rows, columns, np.array([forms.TEXT]), 0, 0,
        np.array([-1]), np.array([0]), heap.ctypes.data, headers, positions, same,
    )  # fmt: skip
    assert np.flatnonzero(same).tolist() == [pairs.index((0, 0)), pairs.index((1, 1))]
    assert count == 2
