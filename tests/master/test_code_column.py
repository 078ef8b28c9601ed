"""Pages store the codes of their keys; users do not see them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.errors import SchemaError
from semistream.master import MasterTable

DAY = dt.date(2024, 1, 1)
KEYS: dict[str, dict[str, Any]] = {
    "int64": {"k": range(100)},
    "timestamp": {"k": pa.array(range(100), pa.timestamp("us"))},
    "int32": {"k": pa.array(range(100), pa.int32())},
    "text": {"k": [f"key {i}" for i in range(100)]},
    "short composite": {
        "k": pa.array([i % 7 for i in range(100)], pa.int16()),
        "day": [DAY + dt.timedelta(i) for i in range(100)],
    },
    "long composite": {"k": [str(i) for i in range(100)], "n": range(100)},
}


def built(kind: str, path: Path) -> tuple[MasterTable, pa.Table]:
    data = pa.table({**KEYS[kind], "v": [f"value {i}" for i in range(100)]})
    return MasterTable.build(data, path / "t", key=list(KEYS[kind]), page_bytes=600), data


@pytest.mark.parametrize("kind", list(KEYS))
def test_pages_have_the_codes_and_results_do_not(kind: str, tmp_path: Path) -> None:
    table, data = built(kind, tmp_path)
    native = kind in ("int64", "timestamp")
    assert table.code_column == ("k" if native else "__code")
    reader, before = table.reader(), None
    for number in range(table.num_pages):
        (page,) = reader.read(number)
        stored = page.column(table.code_column).view(pa.int64()).to_numpy()
        computed, _ = table.codec.codes([page.column(name) for name in table.key])
        assert np.array_equal(stored, computed)
        assert bool(np.all(stored[1:] >= stored[:-1]))
        assert before is None or before <= stored[0]
        assert table.index.firsts[number] == stored[0]
        before = stored[-1]
    assert table.index.firsts.dtype == np.int64
    table = table.upsert(data.slice(0, 1)).delete(data.select(list(table.key)).slice(1, 1))
    for shown in (table, table.compact()):
        assert shown.schema.names == data.schema.names
        assert shown.to_table().schema.names == data.schema.names
        assert all(batch.schema.names == data.schema.names for batch in shown.batches())
        assert shown.read(limit=3).schema.names == data.schema.names
        found = shown.lookup(data.select(list(table.key)))
        assert found.schema.names == data.schema.names
        assert found.num_rows == 99


def test_the_name_of_the_code_column_is_reserved(tmp_path: Path) -> None:
    data = pa.table({"k": ["a"], "__code": [1]})
    with pytest.raises(SchemaError, match="'__code': the name is reserved"):
        MasterTable.build(data, tmp_path / "t", key="k")
    with pytest.raises(SchemaError, match="'__code': the name is reserved"):
        MasterTable.build(data, tmp_path / "t", key="__code")
    assert not (tmp_path / "t").exists()


def test_distinct_is_measured_and_unique_is_declared(tmp_path: Path) -> None:
    data = pa.table({"k": range(1000), "v": ["x" * 20] * 1000})
    table = MasterTable.build(data, tmp_path / "once", key="k", page_bytes=600)
    assert (table.unique, table.distinct) == (False, True)
    assert MasterTable.open(table.path).distinct
    assert table.upsert(data.slice(5, 3)).distinct
    twice = MasterTable.open(table.path).upsert(pa.concat_tables([data.slice(5, 2)] * 2))
    assert not twice.distinct
    assert not twice.compact().distinct
    repeated = MasterTable.build(
        pa.concat_tables([data, data.slice(999)]), tmp_path / "twice", key="k", page_bytes=600
    )
    assert not repeated.distinct
    assert MasterTable.build(data, tmp_path / "unique", key="k", unique=True).distinct


def test_distinct_is_measured_across_blocks_of_the_sort(tmp_path: Path) -> None:
    """The two rows of a key arrive in different blocks of a sort with little memory."""
    count = 40_000
    keys = [*range(count), *range(count)]
    data = pa.table({"k": keys, "v": ["x" * 20] * len(keys)})
    table = MasterTable.build(data, tmp_path / "t", key="k", memory=1)
    assert not table.distinct
    once = MasterTable.build(data.slice(0, count), tmp_path / "u", key="k", memory=1)
    assert once.distinct
