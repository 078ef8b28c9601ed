"""Rows of pages that are accessed by address, compared with Arrow's values."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.kernels import pages as kernel

many = pytest.mark.parametrize("seed", range(15))
PAGES = 3


def texts(rng: random.Random, kind: pa.DataType) -> list[pa.Array]:
    """A text column in pages; they are slices, so that no page begins at its buffer's start."""
    columns = []
    for _ in range(PAGES):
        values = ["x" * rng.randint(0, 12) + str(rng.random()) for _ in range(rng.randint(1, 8))]
        columns.append(pa.array(["skipped", *values], kind).slice(1))
    return columns


def addresses(columns: list[pa.Array], width: int) -> Any:
    """Of each page's values, or offsets."""
    places = [c.buffers()[1].address + c.offset * width for c in columns]
    return np.array(places, np.int64)


def choice(rng: random.Random, columns: list[pa.Array]) -> tuple[Any, Any, list[Any]]:
    """(pages, rows, their values)."""
    pages = [rng.randrange(PAGES) for _ in range(rng.randint(0, 20))]
    rows = [rng.randrange(len(columns[page])) for page in pages]
    values = [columns[page][row].as_py() for page, row in zip(pages, rows, strict=True)]
    return np.array(pages, np.int64), np.array(rows, np.int64), values


@many
@pytest.mark.parametrize("width", [1, 4, 8, 16])
def test_values_of_a_fixed_width(seed: int, width: int) -> None:
    rng = random.Random(seed)
    kind = pa.binary(width)
    columns = [
        pa.array([rng.randbytes(width) for _ in range(rng.randint(2, 9))], kind).slice(1)
        for _ in range(PAGES)
    ]
    pages, rows, values = choice(rng, columns)
    out = np.empty(len(rows) * width, np.uint8)
    kernel.gather_fixed(addresses(columns, width), pages, rows, width, out)
    assert out.tobytes() == b"".join(values)


@many
@pytest.mark.parametrize("large", [False, True])
def test_texts(seed: int, large: bool) -> None:
    rng = random.Random(seed)
    columns = texts(rng, pa.large_string() if large else pa.string())
    starts = addresses(columns, 8 if large else 4)
    contents = np.array([c.buffers()[2].address for c in columns], np.int64)
    sizes = np.array([c.buffers()[2].size for c in columns], np.int64)
    pages, rows, values = choice(rng, columns)
    begin = rng.randint(0, 9)
    offsets = np.empty(len(rows) + 1, np.int64 if large else np.int32)
    end = kernel.measure_text(starts, sizes, pages, rows, large, offsets, begin)
    assert offsets.tolist() == (begin + np.cumsum([0, *map(len, values)])).tolist()
    assert end == offsets[-1]
    out = np.zeros(end, np.uint8)
    kernel.gather_text(starts, contents, pages, rows, large, offsets, out)
    assert out[begin:].tobytes().decode() == "".join(values)


@many
def test_rows_of_several_columns_are_appended(seed: int) -> None:
    rng = random.Random(seed)
    counts = [rng.randint(1, 8) for _ in range(PAGES)]
    kinds = [pa.int64(), pa.int32(), pa.binary(3), pa.string(), pa.large_string()]
    table = [
        [[rng.randrange(99) for _ in range(n)] for n in counts],
        [[rng.randrange(99) for _ in range(n)] for n in counts],
        [[rng.randbytes(3) for _ in range(n)] for n in counts],
        [["t" * rng.randint(0, 9) for _ in range(n)] for n in counts],
        [["ü" * rng.randint(0, 9) for _ in range(n)] for n in counts],
    ]
    columns = [[pa.array(v, kind) for v in parts] for kind, parts in zip(kinds, table, strict=True)]
    values = np.array([[a.buffers()[1].address for a in parts] for parts in columns])
    contents = [[a.buffers()[2] if len(a.buffers()) > 2 else None for a in p] for p in columns]
    text = np.array([[b.address if b else 0 for b in parts] for parts in contents])
    sizes = np.array([[b.size if b else 0 for b in parts] for parts in contents])
    widths, most = np.array([8, 4, 3, -4, -8]), 30
    out = [np.zeros((most + 1) * abs(int(width)), np.uint8) for width in widths]
    full = [np.empty(0 if width > 0 else 1000, np.uint8) for width in widths]
    used, room = np.zeros(5, np.int64), np.array([len(a) for a in full])
    expected: list[list[Any]] = [[] for _ in kinds]
    count = 0
    for _ in range(3):
        pages = [rng.randrange(PAGES) for _ in range(rng.randint(0, 9))]
        rows = [rng.randrange(counts[page]) for page in pages]
        done = kernel.append(
            values, text, sizes, widths, np.array(pages, np.int32), np.array(rows, np.int32),
            count, np.array([a.ctypes.data for a in out]), np.array([a.ctypes.data for a in full]),
            used, room,
        )  # fmt: skip
        assert done == -1
        count += len(rows)
        for column, parts in zip(expected, table, strict=True):
            column += [parts[page][row] for page, row in zip(pages, rows, strict=True)]
    for i, kind in enumerate(kinds):
        buffers = [None, pa.py_buffer(out[i])] + ([pa.py_buffer(full[i])] if widths[i] < 0 else [])
        assert pa.Array.from_buffers(kind, count, buffers).to_pylist() == expected[i]


def append_texts(offsets: list[int], room: int) -> tuple[int, int]:
    """Append the texts of one page of ten bytes; (what is returned, bytes used)."""
    starts, content = np.array(offsets, np.int32), np.zeros(10, np.uint8)
    out, full = np.zeros(len(offsets), np.int32), np.empty(room, np.uint8)
    used, rows = np.zeros(1, np.int64), np.arange(len(offsets) - 1, dtype=np.int32)
    done = kernel.append(
        np.array([[starts.ctypes.data]]), np.array([[content.ctypes.data]]), np.array([[10]]),
        np.array([-4]), np.zeros(len(rows), np.int32), rows, 0, np.array([out.ctypes.data]),
        np.array([full.ctypes.data]), used, np.array([room]),
    )  # fmt: skip
    return int(done), int(used[0])


def test_a_column_without_room_is_named_and_nothing_counts_as_appended() -> None:
    assert append_texts([0, 4, 10], 9) == (0, 0)
    assert append_texts([0, 4, 10], 10) == (-1, 10)


@pytest.mark.parametrize("offsets", [[-1, 2], [5, 4], [0, 11]])
def test_a_text_outside_its_page_is_detected(offsets: list[int]) -> None:
    assert append_texts(offsets, 100) == (-2, 0)
    starts = np.array(offsets, np.int32)
    measured = kernel.measure_text(
        np.array([starts.ctypes.data]), np.array([10]), np.zeros(1, np.int64),
        np.zeros(1, np.int64), False, np.empty(2, np.int32), 0,
    )  # fmt: skip
    assert measured == -1


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
