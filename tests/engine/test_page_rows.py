"""The rows of several pages as one run: by address the same as from record batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from engine.kit import binding, pages_of
from semistream.engine.page_rows import AddressedRows, BatchRows, Openers

KINDS: dict[str, Any] = {
    "int64": lambda n: n * 3 - 100,
    "string": lambda n: f"key {n}",
    "int32": lambda n: n * 5,
    "decimal128(38, 0)": lambda n: n * 10**25,
}


def table_of(path: Path, kind: str) -> ss.MasterTable:
    numbers = range(800)
    types = {"int64": pa.int64(), "string": pa.string(), "int32": pa.int32()}
    keys = pa.array([KINDS[kind](n) for n in numbers], types.get(kind, pa.decimal128(38, 0)))
    data = pa.table(
        {
            "k": keys,
            "v": [None if n % 7 == 0 else f"value {n}" for n in numbers],
            "l": [[n, None][: n % 3] for n in numbers],
            "b": [n % 2 == 0 for n in numbers],
        }
    )
    return ss.MasterTable.build(data, path / "t", key="k", page_bytes=1500)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_table(kind: str, tmp_path: Path) -> None:
    table = table_of(tmp_path, kind)
    assert table.num_pages > 10
    bound = binding(table, pa.schema([("k", table.schema.field("k").type)]))
    openers = Openers(table)
    reader: Any = table.reader(8)
    for numbers in (np.arange(3, 9), np.array([0]), np.array([1, 4, 9])):
        read = reader.plan(numbers)
        rows = AddressedRows(openers, numbers, reader.load(read), read.sizes)
        batches = [table.reader().read(int(page))[0] for page in numbers]
        others = BatchRows(batches, bound)
        assert rows.pages == others.pages == len(numbers)
        assert rows.codes.tolist() == others.codes.tolist()
        assert rows.valid is None
        assert others.valid is None
        some = np.random.default_rng(1).integers(0, len(rows.codes), 50)
        for one, other in zip(rows.places(some), others.places(some), strict=True):
            assert one.tolist() == other.tolist()
        for names in (["v", "k"], ["l"], ["b", "l", "v"], []):
            taken = [part.columns(names).take(*part.places(some)) for part in (rows, others)]
            whole = pa.Table.from_batches(batches).take(pa.array(some))
            for found in taken:
                assert [c.to_pylist() for c in found] == [whole[n].to_pylist() for n in names]
            assert rows.columns(names) is rows.columns(names)


def test_an_opener_is_made_once_for_its_columns() -> None:
    source = pages_of([[1, 2], [3]], can_address=True)
    openers = Openers(source)
    assert openers(["k", "v"]) is openers(("k", "v"))
    assert openers(["v"]) is not openers(["k"])


def test_batches_of_which_one_has_null_keys() -> None:
    source = pages_of([[1, 2], [3]])
    with_null = pa.record_batch({"k": pa.array([None, 9], pa.int64()), "v": ["a", "b"]})
    rows = BatchRows([source.pages[0], with_null, source.pages[1]], binding(source))
    assert rows.valid is not None
    assert rows.valid.tolist() == [True, True, False, True, True]
    assert rows.codes[[0, 1, 3, 4]].tolist() == [1, 2, 9, 3]


def test_places_at_the_edges_of_pages() -> None:
    source = pages_of([[1, 2], [3], [4, 5, 6]])
    pages, rows = BatchRows(source.pages, binding(source)).places(np.arange(6))
    assert pages.tolist() == [0, 0, 1, 2, 2, 2]
    assert rows.tolist() == [0, 1, 0, 0, 1, 2]
