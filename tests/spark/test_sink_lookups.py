"""What the warehouse sink opens, and when: look-ups in tasks, at the version of the batch."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import naive
import semistream as ss
from semistream.errors import ConfigError
from semistream.sinks import Batch
from spark.streams import master, products, sales

pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StringType, StructField, StructType

from semistream.spark.batch_version import MicroBatch, pinned_version
from semistream.spark.enrich import bound_lookup
from semistream.spark.sink import Message, WarehouseSource, WarehouseWriter, bind
from semistream.spark.sink_options import options_of, plan_of
from semistream.spark.versions import COLLATIONS, SINK


def sql_lookup(folder: Path) -> tuple[ss.Lookup, Callable[[], None]]:
    with sqlite3.connect(folder / "shop.db") as database:
        database.execute("create table product (product_id integer, price real)")
        database.execute("insert into product values (1, 1.5)")
    table = ss.SqlMaster(f"sqlite:///{folder}/shop.db", "product", key="product_id")
    return ss.Lookup(table, on="product_id"), (folder / "shop.db").unlink


def old_version(folder: Path) -> tuple[ss.Lookup, Callable[[], None]]:
    master(folder / "products")
    table = ss.MasterTable.open(folder / "products", 1)
    return ss.Lookup(table, on="product_id"), lambda: shutil.rmtree(folder / "products")


@pytest.mark.parametrize("version", [None, 1])
def test_workers_leave_a_resident_table_mapped(version: int | None, tmp_path: Path) -> None:
    master(tmp_path / "products")
    table = ss.MasterTable.open(tmp_path / "products", version, mapped="resident")
    lookup = ss.Lookup(table, on="product_id")
    plan = plan_of(options_of([lookup], output="parquet", path=tmp_path / "out"))
    (in_sink,), _, _ = bind(plan, sales(1).schema)
    in_enrich = bound_lookup(lookup, table, ss.SweepJoin(memory="8MB"))
    copied = bound_lookup(
        ss.Lookup(str(tmp_path), "product_id"), master(tmp_path / "other"), in_enrich.join
    )
    for bound, mapped in ((in_sink, "resident"), (in_enrich, "resident"), (copied, True)):
        with bound.open(8_000_000, 1) as run:
            assert run.source.mapped == mapped
            rows = [*run.push(sales(100).to_batches()[0]), *run.flush()]
            naive.same_rows(naive.rows_of(rows), naive.join(sales(100), products(), "product_id"))
    assert in_enrich.identity != replace(in_enrich, resident=False).identity
    options = {"master": str(tmp_path / "products"), "on": "product_id", "mapped": "sometimes"}
    with pytest.raises(ConfigError, match="mapped='sometimes'; the only value is 'resident'"):
        plan_of({**options, "path": str(tmp_path / "out")})


@pytest.mark.parametrize("lookup", [sql_lookup, old_version])
def test_commit_and_abort_open_no_look_up(
    lookup: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that is down fails the tasks that need it, never the commit."""
    chosen, take_away = lookup(tmp_path)
    options = options_of([chosen], output="parquet", path=tmp_path / "out")
    sink = plan_of(options).sink
    rows = [pa.record_batch({"a": [1, 2]})]
    staged = [Message(sink.stage(rows, None, Batch("q", n), 0)) for n in range(2)]
    take_away()
    monkeypatch.setattr("semistream.spark.sink_options._sql_masters", {})  # the driver's process
    writer = WarehouseWriter(options, None, None)
    writer.commit([staged[0]], 0)
    writer.abort([staged[1]], 1)
    assert pq.read_table(tmp_path / "out").to_pydict() == {"a": [1, 2]}
    assert not list(tmp_path.glob(f"**/{staged[1].staged.name}"))


@pytest.mark.needs_spark(SINK)
@pytest.mark.parametrize("on", ["k", ["k"], {"k": "name"}])
def test_plain_options_refuse_a_collated_key(on: Any) -> None:
    """Before the query starts, whatever the tables are."""
    text = StructField("k", StringType("UTF8_LCASE"))
    collated = StructType([StructField("n", LongType()), text])
    options = options_of([ss.Lookup("absent", on=on)], path="out")
    with pytest.raises(ss.SchemaError, match="compared by their bytes"):
        WarehouseSource(options).streamWriter(collated, False)
    other = options_of([ss.Lookup("absent", on="n")], path="out")
    assert WarehouseSource(other).streamWriter(collated, False) is not None


@pytest.mark.needs_spark(COLLATIONS)
def test_to_warehouse_refuses_a_collated_key(spark: Any, tmp_path: Path) -> None:
    table = ss.MasterTable.build(pa.table({"k": ["a"]}), tmp_path / "text", key="k")
    stream = spark.readStream.format("rate").load().selectExpr("collate('A', 'UTF8_LCASE') as k")
    with pytest.raises(ss.SchemaError, match="compared by their bytes"):
        ss.to_warehouse(stream, ss.Lookup(table, on="k"), path=tmp_path / "out")


@pytest.fixture
def batch(monkeypatch: pytest.MonkeyPatch) -> MicroBatch:
    """This process is a worker, in the first task of this batch."""
    one = MicroBatch("query", 7)
    for module in ("sink", "worker"):
        monkeypatch.setattr(f"semistream.spark.{module}.micro_batch", lambda: one)
    return one


def written(folder: Path, stream: pa.Table) -> pa.Table:
    """The rows that a task of the sink would stage."""
    lookup = ss.Lookup(folder / "products", on="product_id", select=None)
    options = options_of([lookup], path=folder / "out", memory="24MB")
    writer = WarehouseWriter(options, None, 1)
    return pa.Table.from_batches(writer.join(iter(stream.to_batches())))


@pytest.mark.parametrize(
    "rebuilt",
    [
        products().set_column(1, "price", products()["name"]),
        products().select(["product_id", "note", "name", "price"]),
        products().drop_columns(["note"]),
        products().append_column("more", products()["price"]),
    ],
    ids=["other type", "other order", "fewer columns", "more columns"],
)
def test_the_schema_is_that_of_the_pinned_version(
    rebuilt: pa.Table, batch: MicroBatch, tmp_path: Path
) -> None:
    """The table is rebuilt after the batch started: all tasks write the same columns."""
    table = master(tmp_path / "products")
    assert pinned_version(tmp_path / "products", batch) == table.version
    first = written(tmp_path, sales(100))
    master(tmp_path / "products", rebuilt, overwrite=True)
    later = written(tmp_path, sales(100, start=100))
    assert later.schema == first.schema
    names = naive.columns(sales(1), products(), "product_id")
    assert later.column_names == names
    rows = naive.rows_of([first, later])
    naive.same_rows(rows, naive.join(sales(200), products(), "product_id"))


BIG = pa.array([2**60 + 1] * products().num_rows)  # no double holds it


@pytest.mark.parametrize(
    ("rebuilt", "says"),
    [
        (products().set_column(1, "price", products()["name"]), "'price' is now string"),
        (products().set_column(1, "price", BIG), "'price' is now int64"),
        (products().drop_columns(["note"]), "no longer has column 'note_master'"),
        (products().select(["product_id", "note", "name", "price"]), None),
        (products().append_column("more", products()["price"]), None),
        (products().set_column(1, "price", products()["product_id"]), None),
    ],
    ids=["text", "large", "fewer columns", "other order", "more columns", "the same numbers"],
)
def test_a_rebuilt_table_returns_the_columns_of_the_query(
    rebuilt: pa.Table, says: str | None, batch: MicroBatch, tmp_path: Path
) -> None:
    """``enrich`` fixes the columns; the next batch reads the rebuilt table."""
    from semistream.engine.binding import Binding
    from semistream.spark.enrich import Lookup, bound_lookup
    from semistream.spark.worker import Enrichment
    from semistream.tuning.auto import choose, join

    table = master(tmp_path / "products")
    binding = Binding(table, "product_id", None, "inner")
    binding.bind(sales(1).schema)
    chosen = choose(join("auto"), table, "inner")
    bound = bound_lookup(Lookup(table, "product_id"), table, chosen)
    task = Enrichment("name", (bound,), 24_000_000, 1, binding.schema)
    master(tmp_path / "products", rebuilt, overwrite=True)
    if says is not None:
        with pytest.raises(ss.SchemaError, match=says):
            list(task(sales(100).to_batches()))
        return
    rows = pa.Table.from_batches(task(sales(100).to_batches()))
    assert rows.schema.equals(binding.schema)
    expected = naive.join(sales(100), products(), "product_id")
    naive.same_rows(naive.rows_of([rows]), expected)
