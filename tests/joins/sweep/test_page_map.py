"""The page map: a page that was parsed once is joined by address from then on."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from engine.kit import MemoryPages
from semistream.joins.sweep.page_map import PageMap


def stored(page: pa.RecordBatch) -> pa.Buffer:
    """The page as stored in a file, at a separate address."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, page.schema) as writer:
        writer.write_batch(page)
    return pa.py_buffer(bytearray(sink.getvalue().to_pybytes()))


def parsed(buffers: list[pa.Buffer]) -> tuple[list[pa.RecordBatch], Any]:
    pages = [pa.ipc.open_stream(buffer).read_next_batch() for buffer in buffers]
    return pages, np.array([buffer.address for buffer in buffers])


def page(first: int, values: list[str | None]) -> pa.RecordBatch:
    keys = range(first, first + len(values))
    return pa.record_batch({"k": keys, "n": pa.array(keys, pa.int32()), "v": values})


def test_known_pages_are_recognized_at_any_address() -> None:
    content = [page(0, ["a", "bc"]), page(10, ["", "def", "g"]), page(20, ["h"])]
    mapped = PageMap(MemoryPages(content), "k", ["n", "v"])
    assert not mapped.knows(0, 1)
    mapped.learn(1, *parsed([stored(p) for p in content[1:]]))
    assert mapped.knows(1, 2)
    assert not mapped.knows(0, 2)
    again = [stored(p) for p in content[1:]]  # other buffers, at other addresses
    scan = mapped.scan(1, np.array([buffer.address for buffer in again]))
    assert (scan.first, scan.sizes.tolist()) == (1, [3, 1])
    taken = scan.columns.take(np.array([1, 0, 0]), np.array([0, 2, 1]))
    assert [column.to_pylist() for column in taken] == [[20, 12, 11], ["h", "g", "def"]]
    keys = [
        list((ctypes.c_int64 * int(rows)).from_address(int(address)))
        for address, rows in zip(scan.keys, scan.sizes, strict=True)
    ]
    assert keys == [[10, 11, 12], [20]]


def test_a_page_with_nulls_stays_unknown() -> None:
    content = [page(0, ["a"]), page(10, [None]), page(20, ["b"])]
    mapped = PageMap(MemoryPages(content), "k", ["v"])
    mapped.learn(0, *parsed([stored(p) for p in content]))
    assert [mapped.knows(number, 1) for number in range(3)] == [True, False, True]


@pytest.mark.parametrize("names", [[], ["v"], ["n", "v"]])
def test_allocated_bytes_match_the_plan(names: list[str]) -> None:
    mapped = PageMap(MemoryPages([page(0, ["a"])] * 7), "k", names)
    arrays = [mapped._known, mapped._rows, mapped._offsets, mapped._sizes]
    assert sum(a.nbytes for a in arrays) == PageMap.bytes_for(7, len(names))
