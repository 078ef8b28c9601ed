"""``lookup`` and ``read``: for every key type, against a plain dictionary."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semistream as ss
from master.cases import KEYS, names, rows_table
from semistream.master import MasterTable


@pytest.mark.parametrize("kind", list(KEYS))
@settings(max_examples=8, deadline=None, derandomize=True)
@given(data=st.data())
def test_rows_come_in_the_order_of_the_keys(kind: str, data: Any) -> None:
    """Repeated keys, absent keys, keys with rows in many pages, and a delta on top."""
    kinds, values = KEYS[kind]
    pool = data.draw(st.lists(values, min_size=1, max_size=12, unique=True))
    rows = [(key, n) for n, key in enumerate(data.draw(st.lists(st.sampled_from(pool))) * 3)]
    newer = [(key, 1000 + n) for n, key in enumerate(data.draw(st.lists(st.sampled_from(pool))))]
    asked = data.draw(st.lists(st.sampled_from(pool) | values, max_size=30))
    model: dict[Any, list[int]] = {}
    for key, number in rows:
        model.setdefault(key, []).append(number)
    for key, _ in newer:
        model[key] = [number for other, number in newer if other == key]
    with tempfile.TemporaryDirectory() as folder:
        table = MasterTable.build(
            rows_table(kinds, rows), folder, key=names(kinds), page_bytes=600
        ).upsert(rows_table(kinds, newer))
        column = table.schema.names[len(kinds)]
        keys = rows_table(kinds, [(key, 0) for key in asked]).select(names(kinds))
        found = table.lookup(keys, [column])
        expected = [number for key in asked for number in model.get(key, [])]
        assert found.schema.names == [column]
        assert found[column].to_pylist() == expected
        assert table.lookup(keys).schema == table.schema
        assert table.read() == table.to_table()


@pytest.fixture
def table(tmp_path: Path) -> MasterTable:
    rows = pa.table({"id": range(2000), "name": [f"n{i}" for i in range(2000)]})
    return MasterTable.build(rows, tmp_path / "t", key="id", unique=True, page_bytes=2000)


def test_plain_values_and_arrays(table: MasterTable) -> None:
    asked = [7, 1999, -4, 7, None, 2000, 0]
    expected = ["n7", "n1999", "n7", "n0"]
    for keys in (asked, pa.array(asked), pa.array(asked, pa.int32()), pa.table({"id": asked})):
        assert table.lookup(keys)["name"].to_pylist() == expected
    assert table.lookup([]).num_rows == 0
    assert table.lookup([5], columns=[]).num_columns == 0
    assert table.lookup(range(2000)) == table.to_table()


def test_each_page_is_read_once(table: MasterTable, monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[int] = []
    reader = table.reader()
    read = reader.read
    monkeypatch.setattr(reader, "read", lambda page: pages.append(page) or read(page))
    monkeypatch.setattr(table, "reader", lambda: reader)
    table.lookup([1900, 3, 4, 1901, 3])
    assert pages == sorted(set(pages))
    assert len(pages) == 2


def test_the_first_rows(table: MasterTable) -> None:
    assert table.read(limit=3).to_pylist() == [{"id": i, "name": f"n{i}"} for i in range(3)]
    assert table.read(["name"], limit=900)["name"].to_pylist() == [f"n{i}" for i in range(900)]
    assert table.read(limit=0).num_rows == 0
    assert table.read(limit=10_000) == table.to_table()


def test_an_empty_table(tmp_path: Path) -> None:
    empty = pa.table({"id": pa.array([], pa.int64())})
    table = MasterTable.build(empty, tmp_path / "t", key="id")
    assert table.lookup([1, 2]).num_rows == table.read().num_rows == 0


def test_what_cannot_be_asked(table: MasterTable) -> None:
    with pytest.raises(ss.SchemaError, match=r"unknown column 'nme'; did you mean 'name'\?"):
        table.lookup([1], ["nme"])
    with pytest.raises(ss.SchemaError, match=r"not of the key's type\(s\) \['int64'\]"):
        table.lookup(["x"])
    with pytest.raises(ss.SchemaError, match="lack the key column 'id'"):
        table.lookup(pa.table({"other": [1]}))
    with pytest.raises(ss.ConfigError, match="give a list of names"):
        table.lookup([1], "name")
    with pytest.raises(ss.ConfigError, match="limit=-1: must be at least 0"):
        table.read(limit=-1)
