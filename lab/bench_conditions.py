"""The conditions benchmark: as-of joins, range conditions and ordered output.

    python -m lab.bench_conditions --size small          # R = 200,000 rows, less than a minute
    python -m lab.bench_conditions --size full --spark   # R = 5 million rows

Pin it to one core for figures: ``taskset -c 0``. Every result is compared with that of DuckDB,
which has R loaded in memory. Rates are tuples per second of a warm run. ``--spark`` adds Spark's
own range join of the same tuples, with one core. The exit code is 1 if an answer is wrong.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import semistream as ss

ROWS_PER_KEY = 4
SPAN = 1_000_000  # of event times
MEMORY = "64MB"


@dataclass(frozen=True)
class Size:
    rows: int
    tuples: int
    push: int


SIZES = {
    "small": Size(200_000, 200_000, 20_000),
    "full": Size(5_000_000, 4_000_000, 50_000),
}


def history(rows: int) -> pa.Table:
    """Every key has four rows, valid one after the other, and about 100 bytes of payload."""
    random = np.random.default_rng(1)
    keys = np.arange(rows) // ROWS_PER_KEY
    begins = random.integers(0, SPAN // ROWS_PER_KEY - 1, rows)
    begins += (np.arange(rows) % ROWS_PER_KEY) * (SPAN // ROWS_PER_KEY)
    columns = {f"v{i}": pa.array(random.integers(0, 1 << 40, rows)) for i in range(10)}
    return pa.table({"product_id": keys, "since": begins, **columns})


def sales(size: Size) -> pa.Table:
    """Skewed keys and times of any row."""
    random = np.random.default_rng(2)
    keys = size.rows // ROWS_PER_KEY
    hot = (random.zipf(1.2, size.tuples) * 7919) % keys
    cold = random.integers(0, keys, size.tuples)
    chosen = np.where(random.random(size.tuples) < 0.5, hot, cold)
    times = random.integers(0, SPAN, size.tuples)
    return pa.table({"n": np.arange(size.tuples), "product_id": chosen, "t": times})


def batches(table: pa.Table, rows: int) -> Iterator[pa.RecordBatch]:
    yield from table.combine_chunks().to_batches(max_chunksize=rows)


def rate(master: Any, stream: pa.Table, push: int, **options: Any) -> tuple[float, int, int]:
    """(tuples per second of the second half, output rows, sum of v0)."""
    half = len(stream) // 2 // push * push
    rows = total = 0
    with ss.join("sweepjoin", memory=MEMORY).open(master, **options) as run:

        def serve(part: pa.Table, is_last: bool) -> None:
            nonlocal rows, total
            calls = [(run.push, (batch,)) for batch in batches(part, push)]
            for call, given in [*calls, *([(run.flush, ())] if is_last else [])]:
                for out in call(*given):
                    rows += out.num_rows
                    total += int(np.sum(out.column("v0").to_numpy()))

        serve(stream.slice(0, half), is_last=False)
        start = time.perf_counter()
        serve(stream.slice(half), is_last=True)
        seconds = time.perf_counter() - start
    return (len(stream) - half) / seconds, rows, total


def duck(sql: str, master: pa.Table, stream: pa.Table) -> tuple[float, int, int]:
    """The same by DuckDB with one thread, with both tables loaded before the clock starts."""
    import duckdb

    database = duckdb.connect(config={"threads": 1})
    for name, table in (("r", master), ("s", stream)):
        database.register("given", table)
        database.execute(f"create table {name} as select * from given")
        database.unregister("given")
    start = time.perf_counter()
    rows, total = database.execute(sql).fetchall()[0]
    return len(stream) / (time.perf_counter() - start), int(rows), int(total or 0)


AS_OF = """select count(*), sum(v0) from s asof join r
           on s.product_id = r.product_id and s.t >= r.since"""
EQUAL = "select count(*), sum(v0) from s join r on s.product_id = r.product_id"


def spark_rate(master: pa.Table, stream: pa.Table, folder: Path) -> float:
    """Spark's join on the key with a range of time; the end of validity is computed before."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f
    from pyspark.sql.window import Window

    pq.write_table(master, folder / "r.parquet")
    pq.write_table(stream, folder / "s.parquet")
    spark = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    by_key = Window.partitionBy("product_id").orderBy("since")
    rows = spark.read.parquet(str(folder / "r.parquet"))
    rows.withColumn("until", f.lead("since").over(by_key)).write.parquet(str(folder / "ends"))
    rows, tuples = (spark.read.parquet(str(folder / name)) for name in ("ends", "s.parquet"))
    valid = (f.col("t") >= f.col("since")) & (
        f.col("until").isNull() | (f.col("t") < f.col("until"))
    )
    joined = tuples.join(rows, "product_id").where(valid)
    start = time.perf_counter()
    joined.agg(f.count("*"), f.sum("v0")).collect()
    seconds = time.perf_counter() - start
    spark.stop()
    return len(stream) / seconds


def band_cell(folder: Path, size: Size) -> list[str]:
    """A band join without an equality, by MESHJOIN; about two rows for each tuple."""
    random = np.random.default_rng(3)
    wide = 4 * size.rows
    begins = np.sort(random.choice(wide, size.rows, replace=False))
    values = random.integers(0, 1 << 40, size.rows)
    table = pa.table({"low": begins, "high": begins + 8, "v0": values})
    stream = pa.table({"n": np.arange(size.tuples), "x": random.integers(0, wide, size.tuples)})
    master = ss.MasterTable.build(table, folder / "band", key="low")
    rows = total = 0
    start = time.perf_counter()
    join = ss.join("meshjoin", memory=MEMORY)
    with join.open(master, where=ss.Between("x", "low", "high"), select=["v0"]) as run:
        for out in (out for batch in batches(stream, size.push) for out in run.push(batch)):
            rows, total = rows + out.num_rows, total + int(np.sum(out.column("v0").to_numpy()))
        for out in run.flush():
            rows, total = rows + out.num_rows, total + int(np.sum(out.column("v0").to_numpy()))
    ours = size.tuples / (time.perf_counter() - start)
    theirs = duck("select count(*), sum(v0) from s join r on x between low and high", table, stream)
    print(f"{'band join':18} {ours:12,.0f} tuples/s   DuckDB {theirs[0]:12,.0f}   rows {rows:,}")
    return [] if (rows, total) == theirs[1:] else ["band join"]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--spark", action="store_true", help="also Spark's own range join")
    arguments = parser.parse_args()
    size = SIZES[arguments.size]
    folder = Path(tempfile.mkdtemp(prefix="semistream-conditions-"))
    wrong = []
    try:
        table, stream = history(size.rows), sales(size)
        master = ss.MasterTable.build(table, folder / "r", key="product_id", history="since")
        cells = {
            "equality": ({"on": "product_id"}, EQUAL),
            "as of": ({"on": "product_id", "as_of": "t"}, AS_OF),
            "as of, in order": ({"on": "product_id", "as_of": "t", "order": "stream"}, AS_OF),
        }
        found = {}
        for name, (options, sql) in cells.items():
            ours, theirs = rate(master, stream, size.push, **options), duck(sql, table, stream)
            found[name] = ours[0]
            if ours[1:] != theirs[1:]:
                wrong.append(name)
            rates = f"{ours[0]:12,.0f} tuples/s   DuckDB {theirs[0]:12,.0f}"
            print(f"{name:18} {rates}   rows {ours[1]:,}")
        wrong += band_cell(folder, size)
        print(f"as of / equality         {found['as of'] / found['equality']:.2f}")
        print(f"in order / not           {found['as of, in order'] / found['as of']:.2f}")
        if arguments.spark:
            spark = spark_rate(table, stream, folder)
            times = found["as of"] / spark
            print(f"Spark's range join {spark:12,.0f} tuples/s; as of is {times:.1f}x")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"wrong answers: {', '.join(wrong)}" if wrong else "all answers equal DuckDB's")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
