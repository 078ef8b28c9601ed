"""build_master: the table that MasterTable.build would have made, written in parallel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import naive
import semistream as ss
from semistream.master import verify
from spark.streams import products, sales


@pytest.mark.parametrize("partitions", [1, 3])
def test_the_same_rows_as_a_build_without_spark(
    spark: Any, tmp_path: Path, partitions: int
) -> None:
    data = products(3000)
    df = spark.createDataFrame(data).repartition(4)
    table = ss.build_master(
        df, tmp_path / "t", key="product_id", page_bytes=4096, partitions=partitions
    )
    assert (table.version, table.num_rows, table.key) == (1, len(data), ("product_id",))
    assert len(table.manifest.segments) == partitions
    assert verify(table) == []
    found = table.to_table()
    assert found["product_id"].to_pylist() == sorted(data["product_id"].to_pylist())
    naive.same_rows(naive.rows_of([found]), naive.rows_of([data]))
    assert sorted(p.name for p in (tmp_path / "t").iterdir()) == ["manifests", "segments", "work"]
    assert not list((tmp_path / "t/work").iterdir())


def test_a_key_of_two_columns_and_keys_that_are_null(spark: Any, tmp_path: Path) -> None:
    data = sales(500)
    df = spark.createDataFrame(data)
    table = ss.build_master(df, tmp_path / "t", key=["note", "product_id"], partitions=2)
    nulls = data["product_id"].null_count
    assert nulls > 0
    assert (table.num_rows, table.rows_without_key) == (500 - nulls, nulls)
    assert verify(table) == []


def test_a_stream_joins_the_built_table(spark: Any, tmp_path: Path) -> None:
    data = products()
    table = ss.build_master(spark.createDataFrame(data), tmp_path / "t", key="product_id")
    stream = sales(200)
    enriched = ss.enrich(spark.createDataFrame(stream), table, on="product_id", memory="8MB")
    naive.same_rows(naive.rows_of([enriched.toArrow()]), naive.join(stream, data, "product_id"))


def test_an_empty_dataframe(spark: Any, tmp_path: Path) -> None:
    df = spark.createDataFrame(products(3)).where("product_id < 0")
    table = ss.build_master(df, tmp_path / "t", key="product_id", partitions=3)
    assert (table.num_rows, table.num_pages) == (0, 0)


def test_upsert_replaces_and_adds(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t"
    old = ss.build_master(
        spark.createDataFrame(products(300)), path, key="product_id", partitions=2
    )
    change = pa.table(
        {
            "name": ["new", "changed", "changed too"],
            "product_id": [-5, 0, 598],
            "price": [1.0, 2.0, 3.0],
            "note": [None, "a", "b"],
        }
    )
    new = ss.build_master(spark.createDataFrame(change), path, mode="upsert", partitions=2)
    assert (old.version, new.version) == (1, 2)
    expected = {row["product_id"]: [] for row in products(300).to_pylist()}
    for row in products(300).to_pylist():
        expected[row["product_id"]].append(row)
    expected |= {row["product_id"]: [row] for row in change.select(new.schema.names).to_pylist()}
    flat = [row for rows in expected.values() for row in rows]
    found = new.to_table().to_pylist()
    assert new.num_rows == len(flat) == len(found)
    assert sorted(map(repr, found)) == sorted(map(repr, flat))
    assert verify(new) == []
    assert new.changed_codes(1) is not None


def test_overwrite_publishes_a_new_version(spark: Any, tmp_path: Path) -> None:
    df = spark.createDataFrame(products(30))
    ss.build_master(df, tmp_path / "t", key="product_id")
    with pytest.raises(ss.MasterTableError, match="overwrite=True"):
        ss.build_master(df, tmp_path / "t", key="product_id")
    again = ss.build_master(df.limit(3), tmp_path / "t", key="product_id", overwrite=True)
    assert (again.version, again.num_rows) == (2, 3)


@pytest.mark.slow
def test_failures_raise_clear_errors_and_leave_nothing(spark: Any, tmp_path: Path) -> None:
    df = spark.createDataFrame(products(300))
    with pytest.raises(ss.ConfigError, match="unique=True, but the key product_id="):
        ss.build_master(df, tmp_path / "t", key="product_id", unique=True, partitions=2)
    assert not (tmp_path / "t").exists()
    with pytest.raises(ss.SchemaError, match="'nothing' is not in the data"):
        ss.build_master(df, tmp_path / "t", key="nothing")
    with pytest.raises(ss.ConfigError, match="key="):
        ss.build_master(df, tmp_path / "t")
    with pytest.raises(ss.ConfigError, match="mode='merge'"):
        ss.build_master(df, tmp_path / "t", key="product_id", mode="merge")
    with pytest.raises(ss.MasterTableError, match="no master table"):
        ss.build_master(df, tmp_path / "t", mode="upsert")
    with pytest.raises(ss.ConfigError, match="foreachBatch"):
        ss.build_master(spark.readStream.format("rate").load(), tmp_path / "t", key="value")
    table = ss.build_master(df.limit(3), tmp_path / "t", key="product_id")
    with pytest.raises(ss.SchemaError, match="do not match the table"):
        ss.build_master(df.select("product_id"), tmp_path / "t", mode="upsert")
    assert ss.MasterTable.open(tmp_path / "t").version == table.version
