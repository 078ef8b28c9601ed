"""Small tables and streams for the Spark tests, and how their results are read."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import naive
import semistream as ss


def products(rows: int = 400, stride: int = 2, price: float = 1.0) -> pa.Table:
    """Every second key exists, every tenth product has two rows."""
    keys = [stride * i for i in range(rows)]
    keys += keys[::10]
    return pa.table(
        {
            "product_id": pa.array(keys, pa.int64()),
            "price": pa.array([price * key for key in keys], pa.float64()),
            "name": pa.array([f"product {key}" for key in keys]),
            "note": pa.array([None if key % 3 else f"n{key}" for key in keys]),
        }
    )


def sales(rows: int = 600, start: int = 0, keys: int = 900) -> pa.Table:
    """Keys below, between and above the products', some null, some frequent."""
    ids = list(range(start, start + rows))
    of = [None if i % 53 == 0 else (i * i) % keys - 20 if i % 3 else (i % 7) * 2 for i in ids]
    return pa.table(
        {
            "sale_id": pa.array(ids, pa.int64()),
            "product_id": pa.array(of, pa.int64()),
            "note": pa.array([f"sale {i}" for i in ids]),
        }
    )


def wide(table: pa.Table, nbytes: int = 400) -> pa.Table:
    """The same with longer notes: too large for the buffers of pipes and sockets."""
    notes = [f"{note} ".ljust(nbytes, ".") for note in table["note"].to_pylist()]
    return table.set_column(2, "note", pa.array(notes))


def master(path: Path, table: pa.Table | None = None, **options: Any) -> Any:
    table = products() if table is None else table
    options = {"page_bytes": 2048, "unique": False, **options}
    key = options.pop("key", "product_id")
    return ss.MasterTable.build(table, path, key=key, **options)


def rows_of(df: Any) -> naive.Rows:
    return naive.rows_of([df.toArrow()])


def feed(folder: Path, table: pa.Table) -> None:
    """Add a file to a folder that a stream reads; it appears atomically, and after the others:
    Spark orders files by their time, which in memory may be the same for several."""
    folder.mkdir(parents=True, exist_ok=True)
    before = [file.stat().st_mtime_ns for file in folder.glob("*.parquet")]
    number = len(before)
    hidden = folder / f".{number}"
    pq.write_table(table, hidden)
    time = max([hidden.stat().st_mtime_ns, *(other + 10_000_000 for other in before)])
    os.utime(hidden, ns=(time, time))
    hidden.rename(folder / f"{number:05d}.parquet")


def stream_of(spark: Any, folder: Path, schema: pa.Schema | None = None, files: int = 1) -> Any:
    """``files`` files per micro-batch, in the order of arrival."""
    from pyspark.sql.pandas.types import from_arrow_schema

    folder.mkdir(parents=True, exist_ok=True)
    schema = sales(1).schema if schema is None else schema
    reader = spark.readStream.schema(from_arrow_schema(schema)).option("maxFilesPerTrigger", files)
    return reader.parquet(str(folder))


class Sink:
    """A query into Parquet files, which Spark writes exactly once, and its checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.rows = folder / "rows"
        self.checkpoint = folder / "checkpoint"

    def run(self, df: Any) -> None:
        """Process the available input, then stop."""
        self.start(df).awaitTermination()

    def start(self, df: Any, once: bool = True) -> Any:
        writer = df.writeStream.format("parquet").option("path", str(self.rows))
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        writer = (
            writer.trigger(availableNow=True)
            if once
            else writer.trigger(processingTime="0 seconds")
        )
        return writer.start()

    def read(self, spark: Any) -> naive.Rows:
        return rows_of(spark.read.parquet(str(self.rows)))


def check_every_join(session: Any, folder: Path, partitions: int) -> None:
    """All joins in one batch query, each with a ``how`` in turn."""
    from pyspark.sql import functions as F  # noqa: N812

    table, stream = master(folder / "products"), sales()
    df = session.createDataFrame(stream).repartition(partitions)
    for number, how in enumerate(naive.HOWS):
        names = list(ss.ALGORITHMS)[(number + partitions) % len(naive.HOWS) :: len(naive.HOWS)]
        found = rows_of(_side_by_side(df, table, how, names, F))
        expected = naive.join(stream, products(), "product_id", how)
        for name in names:
            naive.same_rows([row[:-1] for row in found if row[-1] == name], expected)


def check_every_join_on_a_stream(session: Any, folder: Path, partitions: int) -> None:
    """All joins in one query, side by side: starting a query costs more than running it."""
    from pyspark.sql import functions as F  # noqa: N812

    how = {1: "left", 2: "inner", 4: "left"}[partitions]
    table = master(folder / "products")
    parts = [sales(200), sales(70, 200)]
    for part in parts:
        feed(folder / "in", part)
    stream = stream_of(session, folder / "in").repartition(partitions)
    sink = Sink(folder / "out")
    sink.run(_side_by_side(stream, table, how, list(ss.ALGORITHMS), F))
    expected = naive.join(joined(parts), products(), "product_id", how)
    found = sink.read(session)
    for name in ss.ALGORITHMS:
        naive.same_rows([row[:-1] for row in found if row[-1] == name], expected)


def _side_by_side(df: Any, table: Any, how: str, names: list[str], functions: Any) -> Any:
    """One DataFrame with the rows of all these joins, and the join of each row."""
    enriched = [
        ss.enrich(df, table, on="product_id", how=how, memory="8MB", using=name).withColumn(
            "join", functions.lit(name)
        )
        for name in names
    ]
    return reduce(lambda a, b: a.union(b), enriched)


def wait_until(true: Callable[[], bool], seconds: float = 200.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)


@contextlib.contextmanager
def stopping(query: Any) -> Iterator[Any]:
    try:
        yield query
    finally:
        query.stop()


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables)
