"""``format("semistream")``: joined and written in one crossing, exactly the naive join."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import naive
import semistream as ss
from semistream.spark.versions import SINK
from servers import postgres_server, query
from spark.streams import feed, master, products, sales, stream_of

FILES = 3


@pytest.fixture(scope="module")
def postgres() -> Iterator[Any]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def stream(spark: Any, tmp_path: Path) -> Any:
    for i in range(FILES):
        feed(tmp_path / "in", sales(200, start=200 * i))
    return stream_of(spark, tmp_path / "in").repartition(2)


def run(writer: Any, folder: Path) -> Any:
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    started = writer.trigger(availableNow=True).start()
    started.awaitTermination()
    return started


ALL = sales(200 * FILES)


@pytest.mark.needs_spark(SINK)
@pytest.mark.parametrize("how", ["inner", pytest.param("left_anti", marks=pytest.mark.slow)])
def test_parquet_by_plain_options(how: str, spark: Any, stream: Any, tmp_path: Path) -> None:
    ss.register(spark)
    master(tmp_path / "products")
    writer = stream.writeStream.format("semistream").options(
        master=str(tmp_path / "products"),
        on="product_id",
        how=how,
        select="price, name",
        mapped="resident",
        memory="32MB",
        using="hybridjoin",
        path=str(tmp_path / "out"),
    )
    run(writer, tmp_path)
    table = pq.read_table(tmp_path / "out")
    select = ["price", "name"]
    assert table.column_names == naive.columns(ALL, products(), "product_id", how, select)
    expected = naive.join(ALL, products(), "product_id", how, select)
    naive.same_rows(naive.rows_of([table]), expected)
    assert spark.read.parquet(str(tmp_path / "out")).count() == len(expected)


def test_delta_with_a_star_of_look_ups(spark: Any, stream: Any, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    from semistream.spark.listener import Metrics

    makers = pa.table({"name": [f"product {2 * i}" for i in range(300)], "maker": range(300)})
    master(tmp_path / "products")
    table = ss.MasterTable.open(tmp_path / "products", mapped="resident")
    lookups = [
        ss.Lookup(table, on="product_id", select=["price", "name"]),
        ss.Lookup(master(tmp_path / "makers", makers, key="name"), on="name", how="left"),
    ]
    with Metrics(spark) as metrics:
        run(ss.to_warehouse(stream, lookups, output="delta", path=tmp_path / "out"), tmp_path)
    table = DeltaTable(tmp_path / "out")
    first = naive.join(ALL, products(), "product_id", "inner", ["price", "name"])
    names = naive.columns(ALL, products(), "product_id", "inner", ["price", "name"])
    between = pa.table(dict(zip(names, zip(*first, strict=True), strict=True)))
    expected = naive.join(between, makers, "name", "left")
    naive.same_rows(naive.rows_of([table.to_pyarrow_table()]), expected)
    counted = sum(record["lookups"][0]["counters"]["tuples_in"] for record in metrics.records)
    assert counted == ALL.num_rows  # closing the metrics waits for the records of the last batches


def test_postgres_and_a_master_that_stays_in_its_database(
    stream: Any, tmp_path: Path, postgres: Any
) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute('create table "pro;""ducts" (product_id integer, price real)')
        rows = [(row["product_id"], row["price"]) for row in products().to_pylist()]
        database.executemany('insert into "pro;""ducts" values (?, ?)', rows)
    lookup = ss.Lookup(
        ss.SqlMaster(f"sqlite:///{tmp_path}/shop.db", 'pro;"ducts', key="product_id"),
        on="product_id",
        how="left",
    )
    url = postgres.get_uri()
    writer = ss.to_warehouse(stream, lookup, output="postgresql", url=url, table='fa"cts;')
    run(writer, tmp_path)
    expected = naive.join(ALL, products(), "product_id", "left", ["price"])
    naive.same_rows(query(url, 'select * from "fa""cts;"'), expected)
    assert query(url, "select count(*) from semistream_ledger") == [(FILES,)]


def test_postgres_by_foreach_batch(stream: Any, tmp_path: Path, postgres: Any) -> None:
    enriched = ss.enrich(stream, master(tmp_path / "products"), on="product_id", memory="32MB")
    url = postgres.get_uri()
    run(enriched.writeStream.foreachBatch(ss.PostgresSink(url, "each")), tmp_path)
    expected = naive.join(ALL, products(), "product_id")
    naive.same_rows(query(url, "select * from each"), expected)


@pytest.mark.parametrize("is_named", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_two_sinks_of_one_table_in_one_function(
    is_named: bool, stream: Any, tmp_path: Path, postgres: Any
) -> None:
    """Without distinct routes, the second sink would skip the batch, and its rows be lost."""
    url, table = postgres.get_uri(), f"two_{is_named}"
    even = ss.PostgresSink(url, table)
    odd = ss.PostgresSink(url, table, route="odd" if is_named else None)

    def both(df: Any, batch: int) -> None:
        even(df.where("sale_id % 2 = 0"), batch)
        odd(df.where("sale_id % 2 = 1"), batch)

    writer = stream.writeStream.foreachBatch(both)
    if not is_named:
        with pytest.raises(Exception, match=r"two sinks .* batch 0 .*two_False.* route="):
            run(writer, tmp_path)
        odd = ss.PostgresSink(url, table, route="odd")  # as the error says; the same checkpoint
    run(writer, tmp_path)
    naive.same_rows(query(url, f'select * from "{table}"'), naive.rows_of([ALL]))


def test_routes_of_one_batch_to_one_target(stream: Any, tmp_path: Path) -> None:
    from semistream.sinks import open_sink
    from semistream.spark.foreach import ForeachBatch

    sinks = [open_sink("parquet", path=tmp_path / "out") for _ in range(2)]
    routes = ForeachBatch(
        (sinks[0], lambda df: df.where("sale_id % 2 = 0")),
        (sinks[1], lambda df: df.where("sale_id % 2 = 1")),
    )
    run(stream.writeStream.foreachBatch(routes), tmp_path)
    naive.same_rows(naive.rows_of([pq.read_table(tmp_path / "out")]), naive.rows_of([ALL]))


@pytest.mark.slow
def test_a_checkpoint_that_was_restored_from_a_backup(stream: Any, tmp_path: Path) -> None:
    import shutil

    checkpoint, backup = tmp_path / "checkpoint", tmp_path / "backup"
    run(ss.to_warehouse(stream, path=tmp_path / "out"), tmp_path)
    shutil.copytree(checkpoint, backup)
    for i in range(2):
        feed(tmp_path / "in", sales(100, start=9000 + 100 * i))
    run(ss.to_warehouse(stream, path=tmp_path / "out"), tmp_path)
    before = naive.rows_of([pq.read_table(tmp_path / "out")])
    assert len(before) == 200 * FILES + 200
    shutil.rmtree(checkpoint)
    backup.rename(checkpoint)
    with pytest.raises(
        Exception, match=rf"checkpoint is older .*batch {FILES},.*batch {FILES + 1}"
    ):
        run(ss.to_warehouse(stream, path=tmp_path / "out"), tmp_path)
    naive.same_rows(naive.rows_of([pq.read_table(tmp_path / "out")]), before)


def test_writing_without_a_look_up(stream: Any, tmp_path: Path) -> None:
    run(ss.to_warehouse(stream, path=tmp_path / "out"), tmp_path)
    naive.same_rows(naive.rows_of([pq.read_table(tmp_path / "out")]), naive.rows_of([ALL]))


def test_a_restart_resumes_at_the_checkpoint(spark: Any, stream: Any, tmp_path: Path) -> None:
    table = master(tmp_path / "products")
    lookup = ss.Lookup(str(tmp_path / "products"), on="product_id")
    for _ in range(2):
        run(ss.to_warehouse(stream, lookup, path=tmp_path / "out"), tmp_path)
    more = sales(100, start=9000)
    table.upsert(products(50, price=7.0))
    feed(tmp_path / "in", more)
    run(ss.to_warehouse(stream, lookup, path=tmp_path / "out"), tmp_path)
    newer = pa.concat_tables(
        [products(50, price=7.0), products().filter(pa.compute.field("product_id") >= 100)]
    )
    expected = naive.join(ALL, products(), "product_id") + naive.join(more, newer, "product_id")
    naive.same_rows(naive.rows_of([pq.read_table(tmp_path / "out")]), expected)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"output": "avro"}, "output='avro'"),
        ({"speed": "high"}, "unknown option 'speed'"),
        ({"memroy": "1GB"}, "unknown option 'memroy'; did you mean 'memory'"),
        ({"path": ""}, "path=''"),
        ({"memory": "much"}, "memory='much'"),
        ({"using": "magic"}, "using='magic'"),
        ({"durable": "perhaps"}, "durable='perhaps'"),
        ({"lookups": "["}, "not JSON"),
        ({"lookups": "[1]"}, "JSON list of objects"),
        ({"lookups": '[{"master": "x", "on": "k", "what": 1}]'}, "'what'"),
        ({"lookups": '[{"master": "x", "on": "k", "how": "full"}]'}, "how='full'"),
        ({"master": "x"}, "on is missing"),
        ({"master": "x", "on": "{"}, "not JSON"),
        ({"output": "postgresql", "table": "t", "url": "mysql://a:secret@b/c"}, "postgresql://"),
    ],
)
def test_invalid_options(options: dict[str, str], says: str) -> None:
    from semistream.spark.sink_options import plan_of

    with pytest.raises(ss.SemistreamError, match=says) as caught:
        plan_of({"path": "x", **options} if options.get("output") != "postgresql" else options)
    assert "secret" not in str(caught.value)


def test_errors_before_the_query_starts(stream: Any, tmp_path: Path) -> None:
    lookup = ss.Lookup(master(tmp_path / "products"), on="sale_id")
    with pytest.raises(ss.SchemaError, match="join on exactly the key"):
        ss.to_warehouse(stream, lookup, path=tmp_path / "out")
    lookup = ss.Lookup(tmp_path / "absent", on="product_id")
    with pytest.raises(ss.SemistreamError, match="absent"):
        ss.to_warehouse(stream, lookup, path=tmp_path / "out")
    with pytest.raises(ss.ConfigError, match="is a file"):
        (tmp_path / "file").touch()
        ss.to_warehouse(stream, path=tmp_path / "file")


@pytest.mark.needs_spark(SINK)
def test_an_output_that_replaces_rows_is_refused(stream: Any, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    counted = stream.groupBy("product_id").count()
    writer = ss.to_warehouse(counted, path=tmp_path / "out").outputMode("complete")
    with pytest.raises(PySparkException, match="use 'append'"):
        run(writer, tmp_path)
