"""Rows taken from several pages at once are those that Arrow would take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.engine.rows.page_columns import PageColumns
from semistream.errors import MasterTableError

TYPES = [pa.int64(), pa.int16(), pa.bool_(), pa.string(), pa.large_string(), pa.list_(pa.int8())]


def page(first: int, rows: int, with_nulls: bool = False) -> list[pa.Array]:
    numbers: list[Any] = list(range(first, first + rows))
    if with_nulls:
        numbers[0] = None
    texts = [None if n is None else "t" * (n % 5) + str(n) for n in numbers]
    values = [
        numbers,
        numbers,
        [None if n is None else n % 2 == 0 for n in numbers],
        texts,
        texts,
        [None if n is None else [n % 7] for n in numbers],
    ]
    return [pa.array(v, kind) for v, kind in zip(values, TYPES, strict=True)]


@pytest.mark.parametrize("with_nulls", [False, True])
def test_rows_of_pages(with_nulls: bool) -> None:
    pages = [page(0, 5), [c.slice(2) for c in page(10, 6, with_nulls)], page(20, 3, with_nulls)]
    columns = PageColumns(TYPES, 3)
    for place, content in enumerate(pages):
        columns.put(place, content)
    places, rows = np.array([2, 0, 1, 0, 2]), np.array([0, 4, 3, 0, 2])
    taken = columns.take(places, rows)
    assert [c.type for c in taken] == TYPES
    assert [c.to_pylist() for c in taken] == [
        [pages[p][i][int(r)].as_py() for p, r in zip(places, rows, strict=True)]
        for i in range(len(TYPES))
    ]
    assert columns.plain(2) is columns.plain(5) is False
    assert columns.plain(0) is columns.plain(3) is (not with_nulls)


def test_a_page_is_replaced_by_another() -> None:
    columns = PageColumns([pa.string()], 1)
    columns.put(0, [pa.array([None, "old"])])
    assert not columns.all_plain[0]
    columns.drop(0)
    columns.put(0, [pa.array(["new"])])
    assert columns.all_plain[0]
    assert columns.take(np.array([0]), np.array([0]))[0].to_pylist() == ["new"]


def test_no_rows() -> None:
    columns = PageColumns([pa.int64(), pa.string()], 1)
    columns.put(0, [pa.array([1]), pa.array(["a"])])
    none = np.zeros(0, np.int64)
    assert [c.to_pylist() for c in columns.take(none, none)] == [[], []]


def test_pages_that_were_moved() -> None:
    """Offsets from the page's beginning are kept; later readings add the address."""
    kinds = [pa.int64(), pa.string()]
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([pa.array([1, 2]), pa.array(["a", "bc"])], ["n", "t"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    first, second = sink.getvalue(), pa.py_buffer(bytearray(sink.getvalue().to_pybytes()))
    columns = PageColumns(kinds, 1)
    columns.put(0, pa.ipc.open_stream(first).read_next_batch().columns)
    values, texts, sizes = columns.offsets_from(np.array([first.address]))
    at = np.array([second.address])
    moved = columns.at_addresses(values + at, texts + at, sizes)
    columns.drop(0)
    taken = moved.take(np.array([0, 0]), np.array([1, 0]))
    assert [c.to_pylist() for c in taken] == [[2, 1], ["bc", "a"]]


def test_a_text_outside_its_page_raises() -> None:
    offsets = pa.py_buffer(np.array([0, 99, 3], np.int32))
    columns = PageColumns([pa.string()], 1)
    columns.put(0, [pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"abc")])])
    with pytest.raises(MasterTableError, match="point outside their page"):
        columns.take(np.array([0]), np.array([0]))
