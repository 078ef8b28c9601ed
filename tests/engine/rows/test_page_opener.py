"""Columns of pages that are found by address, against Arrow."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.rows.arrow_columns import paged_columns, rows_of, taken
from kernels.page_cases import FIXED, LEAVES, batch
from semistream.engine.rows.page_opener import LoadedPages, PageOpener
from semistream.errors import MasterTableError
from semistream.kernels.page_columns import copy_codes

JOB = Path(__file__).parent / "mutated_headers.py"


class Pages:
    """Serialized pages; the codes are in the last column."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        rng = np.random.default_rng(1)
        self.codes = [rng.integers(-(2**63), 2**63 - 1, one.num_rows) for one in batches]
        self.batches = [
            pa.RecordBatch.from_arrays([*one.columns, codes], names=[*one.schema.names, "code"])
            for one, codes in zip(batches, self.codes, strict=True)
        ]
        self.schema = self.batches[0].schema
        self.messages = [one.serialize() for one in self.batches]
        self.addresses = np.array([message.address for message in self.messages])
        self.sizes = np.array([message.size for message in self.messages])

    def open(self, names: list[str]) -> LoadedPages:
        opener = PageOpener(self.schema, names, "code")
        return opener.open(np.arange(len(self.batches)), self.addresses, self.sizes)


def take(loaded: LoadedPages, pairs: list[tuple[int, int]]) -> list[pa.Array]:
    places, rows = np.array([*pairs, (0, 0)]).T[:, :-1]
    return loaded.columns.take(places, rows)


def check(pages: Pages, names: list[str], pairs: list[tuple[int, int]]) -> None:
    """Codes, sizes and rows are those of the record batches."""
    loaded = pages.open(names)
    assert loaded.pages.tolist() == list(range(len(pages.batches)))
    assert loaded.sizes.tolist() == [one.num_rows for one in pages.batches]
    codes = np.empty(int(loaded.sizes.sum()), np.int64)
    copy_codes(loaded.codes, loaded.sizes, codes)
    assert codes.tolist() == np.concatenate(pages.codes).tolist()
    columns = take(loaded, pairs)
    for column in columns:
        column.validate(full=not pa.types.is_date64(column.type))  # ours are no whole days
    expected = taken([[one.column(name) for name in names] for one in pages.batches], pairs)
    assert [column.type for column in columns] == [column.type for column in expected]
    assert [c.to_pylist() for c in columns] == [c.to_pylist() for c in expected]


@settings(max_examples=100)
@given(st.data())
def test_rows_of_pages_of_any_columns(data: Any) -> None:
    columns = data.draw(paged_columns())
    names = [f"c{i}" for i in range(len(columns[0]))]
    pages = Pages([pa.RecordBatch.from_arrays(page, names=names) for page in columns])
    some = data.draw(st.permutations(names).map(lambda some: some[: max(1, len(some) - 1)]))
    check(pages, some, data.draw(rows_of(columns)))


@pytest.mark.parametrize(
    "kind",
    [
        *LEAVES, pa.list_(pa.string()), pa.large_list(pa.int8()), pa.list_(pa.bool_(), 2),
        pa.struct([("a", pa.int16()), ("b", pa.list_(pa.binary()))]),
        pa.map_(pa.string(), pa.decimal128(20, 3)),
    ],
    ids=str,
)  # fmt: skip
def test_every_type(kind: pa.DataType) -> None:
    rng = random.Random(str(kind))
    pages = Pages([batch(rng, [kind, pa.string()], rows) for rows in (70, 1, 8)])
    pairs = [(rng.choice([0, 0, 2]), rng.randrange(8)) for _ in range(40)] + [(1, 0), (0, 69)]
    check(pages, ["c0"], pairs)
    check(pages, ["c1", "c0"], pairs)


def test_pages_without_rows_and_without_nulls() -> None:
    rng = random.Random(1)
    kinds = [pa.int32(), pa.string(), pa.list_(pa.int64())]
    values = [[1, 2], ["a", "bc"], [[1], []]]
    arrays = [pa.array(some, kind) for some, kind in zip(values, kinds, strict=True)]
    empty = batch(rng, kinds, 0)
    some = pa.RecordBatch.from_arrays(arrays, names=empty.schema.names)
    check(Pages([some, empty, some]), ["c0", "c1", "c2"], [(0, 1), (2, 0), (2, 1)])


def test_no_columns() -> None:
    pages = Pages([batch(random.Random(2), [pa.string()], 5)])
    loaded = pages.open([])
    assert loaded.sizes.tolist() == [5]
    assert take(loaded, [(0, 1)]) == []


def test_addresses_that_are_written_later() -> None:
    """As in a buffer pool, whose frames get other pages."""
    pages = Pages([batch(random.Random(n), [pa.string(), pa.int64()], 6) for n in range(3)])
    opener = PageOpener(pages.schema, ["c1", "c0"], "code")
    frames = opener.columns_for(5)
    assert frames.addresses.shape[2] == 5
    opened = opener.open(np.arange(3), pages.addresses, pages.sizes)
    frames.addresses[:, :, [4, 0, 2]] = opened.columns.addresses
    found = frames.take(np.array([0, 4, 2]), np.array([5, 1, 0]))
    expected = [
        [pages.batches[page].column(name)[row].as_py() for page, row in ((1, 5), (0, 1), (2, 0))]
        for name in ("c1", "c0")
    ]
    assert [column.to_pylist() for column in found] == expected


# -- damage ------------------------------------------------------------------------------------


def test_a_page_that_was_overwritten_raises() -> None:
    pages = Pages([batch(random.Random(n), [pa.string()], 5) for n in range(3)])
    held = bytearray(pages.messages[1])
    held[:4] = b"\0\0\0\0"
    overwritten = pa.py_buffer(held)
    pages.addresses[1] = overwritten.address
    opener = PageOpener(pages.schema, ["c0"], "code")
    with pytest.raises(MasterTableError, match="page 17 is damaged, although it was valid"):
        opener.open(np.array([9, 17, 30]), pages.addresses, pages.sizes)


def test_a_page_that_is_too_short_raises() -> None:
    pages = Pages([batch(random.Random(1), [kind], 50) for kind in FIXED[:1]])
    for size in (0, 7, 8, 64, int(pages.sizes[0]) - 64, int(pages.sizes[0]) - 400):
        pages.sizes[0] = size
        with pytest.raises(MasterTableError, match="page 0 is damaged"):
            pages.open(["c0"])


def test_a_page_of_another_schema_raises() -> None:
    pages = Pages([batch(random.Random(1), [pa.int64(), pa.string()], 50)])
    pages.schema = pages.schema.remove(0)
    with pytest.raises(MasterTableError, match="page 0 is damaged"):
        pages.open(["c1"])


def mutate(first: int, count: int) -> tuple[int, int]:
    """(pages that were opened, pages that raised) of as many mutated ones."""
    command = [sys.executable, str(JOB), str(first), str(count)]
    paths = [str(JOB.parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, env=environment)
    assert done.returncode == 0, f"ended with {done.returncode}:\n{done.stderr[-3000:]}"
    opened, raised = map(int, done.stdout.split())
    return opened, raised


def test_nothing_outside_a_page_is_read_whatever_its_header_says() -> None:
    opened, raised = mutate(0, 200)
    assert opened + raised == 200 * 100
    assert min(opened, raised) > 1_000


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_mutated_headers() -> None:
    opened, raised = mutate(1_000, 3_000)
    assert opened + raised == 3_000 * 100
