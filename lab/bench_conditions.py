"""The conditions benchmark: as-of joins, range conditions and ordered output.

    python -m lab.bench_conditions                              # R = 200,000 rows, a minute
    python -m lab.bench_conditions --size full --cells as-of    # R = 5 million rows
    python -m lab.bench_conditions --size full --cells order --turns 3
    python -m lab.bench_conditions --size full --cells spark
    python -m lab.bench_conditions --size full --cells band
    python -m lab.bench_conditions --size pairs                 # 10 million pairs, exactness only

as-of   an as-of join beside the same table's equality join: at least 0.5 of its rate
order   the as-of join with order="stream" beside that without: at least 0.6
spark   the as-of join beside Spark's own range join, one core, at least 10x: of all tuples in one
        batch, and of the first micro-batch, for which Spark reads all of R, too
band    a band join without an equality beside DuckDB with R loaded: at least its rate

Pin it to one core for figures: ``taskset -c 0``. Results of the full size go to
lab/results/conditions.json, from which ``python -m lab.bench_tables`` writes the table of
docs/conditions.md: name all cells that it should have. Rates are tuples per second of CPU time of a
warm run; joins that are compared run in turns, and the best of ``--turns`` counts, as a machine has
other work. Every answer is compared with that of DuckDB, which has R loaded in memory: number of
rows and sums of a column and of a hash of each pair. The exit code is 1 if an answer is wrong, and
at the full size also if a target is missed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import semistream as ss
from lab.machine import describe
from lab.tables import Grid, save

RESULTS = Path(__file__).resolve().parent / "results" / "conditions.json"
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
    "pairs": Size(2_000_000, 10_000_000, 100_000),
}
TARGETS = {"as of / equality": 0.5, "in order / not": 0.6, "as of / Spark": 10.0,
           "as of / micro-batch": 10.0, "band / DuckDB": 1.0}  # fmt: skip


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


def markdown(results: dict[str, Any]) -> str:
    """For the docs."""
    rates = [[name, f"{found:,.0f}"] for name, found in results["rates"].items()]
    ratios = [
        [name, f"{found:.2f}{'' if found >= TARGETS[name] else ' (missed)'}", f"{TARGETS[name]:g}"]
        for name, found in results["ratios"].items()
    ]
    machine, wrong = results["machine"], ", ".join(results["wrong"])
    answers = f"Wrong answers: {wrong}." if wrong else "All answers equal DuckDB's."
    return (
        f"\n{Grid(['join', 'tuples/s'], rates).markdown()}\n\n"
        f"{Grid(['ratio', 'measured', 'target'], ratios).markdown()}\n\n{answers} "
        f"R = {results['rows'] / 1e6:g} million rows, {results['tuples'] / 1e6:g} million tuples; "
        f"{machine['time']}, {machine['processor']}, load average {machine['load'][0]:.1f} when it "
        "began.\n\n"
    )


Answer = tuple[int, int, int]
"""Rows, and sums modulo a prime: of a column of the master, and of the product of both sides."""

PRIME = 1_000_003


def answer(out: pa.RecordBatch) -> Any:
    n, value = out.column("n").to_numpy(), out.column("v0").to_numpy()
    pairs = (n % PRIME) * (value % PRIME) % PRIME
    return np.array([out.num_rows, np.sum(value % PRIME), np.sum(pairs)], np.int64)


def rate(join: Any, master: Any, stream: pa.Table, push: int, **options: Any) -> Any:
    """(tuples per second of the second half, answer)."""
    half = len(stream) // 2 // push * push
    found = np.zeros(3, np.int64)
    with join.open(master, **options) as run:
        for batch in batches(stream.slice(0, half), push):
            found += sum((answer(out) for out in run.push(batch)), np.zeros(3, np.int64))
        start, checking = time.process_time(), 0.0
        for batch in [*batches(stream.slice(half), push), None]:
            for out in run.flush() if batch is None else run.push(batch):
                began = time.process_time()
                found += answer(out)
                checking += time.process_time() - began
        seconds = time.process_time() - start - checking
    return (len(stream) - half) / seconds, tuple(found.tolist())


def duck(sql: str, master: pa.Table, stream: pa.Table) -> tuple[float, Answer]:
    """The same by DuckDB with one thread, with both tables loaded before the clock starts."""
    import duckdb

    database = duckdb.connect(config={"threads": 1})
    for name, table in (("r", master), ("s", stream)):
        database.register("given", table)
        database.execute(f"create table {name} as select * from given")
        database.unregister("given")
    start = time.process_time()
    found = database.execute(f"select {COUNTED} from {sql}").fetchall()[0]
    seconds = time.process_time() - start
    return len(stream) / seconds, tuple(int(value or 0) for value in found)


COUNTED = f"count(*), sum(v0 % {PRIME}), sum((n % {PRIME}) * (v0 % {PRIME}) % {PRIME})"
AS_OF = "s asof join r on s.product_id = r.product_id and s.t >= r.since"
EQUAL = "s join r on s.product_id = r.product_id"
BAND = "s join r on x between low and high"


def spark_rates(
    master: pa.Table, stream: pa.Table, folder: Path, micro_batch: int
) -> tuple[float, float]:
    """Spark's join on the key with a range of time, of all tuples and of one micro-batch; the ends
    of validity are computed before."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f
    from pyspark.sql.window import Window

    pq.write_table(master, folder / "r.parquet")
    pq.write_table(stream, folder / "s.parquet")
    pq.write_table(stream.slice(0, micro_batch), folder / "batch.parquet")
    spark = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    by_key = Window.partitionBy("product_id").orderBy("since")
    rows = spark.read.parquet(str(folder / "r.parquet"))
    rows.withColumn("until", f.lead("since").over(by_key)).write.parquet(str(folder / "ends"))
    rows = spark.read.parquet(str(folder / "ends"))
    valid = (f.col("t") >= f.col("since")) & (
        f.col("until").isNull() | (f.col("t") < f.col("until"))
    )
    rates = []
    for name, count in (("s.parquet", len(stream)), ("batch.parquet", micro_batch)):
        joined = spark.read.parquet(str(folder / name)).join(rows, "product_id").where(valid)
        joined.limit(1).collect()  # starts what Spark starts at its first query
        start = time.perf_counter()
        joined.agg(f.count("*"), f.sum("v0")).collect()
        rates.append(count / (time.perf_counter() - start))
    spark.stop()
    return rates[0], rates[1]


class Report:
    """Ratios, and what was wrong."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.wrong: list[str] = []
        self.missed: list[str] = []
        self.rates: dict[str, float] = {}
        self.ratios: dict[str, float] = {}

    def in_turns(self, cells: dict[str, Any]) -> dict[str, float]:
        """The best rate of each; a cell returns (rate, answer), and its name ends its answer."""
        best: dict[str, float] = {}
        for _ in range(self.turns):
            for name, (cell, expected) in cells.items():
                found, given = cell()
                best[name] = max(best.get(name, 0.0), found)
                if expected is not None and given != expected and name not in self.wrong:
                    self.wrong.append(name)
        for name, found in best.items():
            self.rate(name, found)
        return best

    def rate(self, name: str, found: float, rows: int | None = None) -> None:
        self.rates[name] = found
        print(f"{name:22} {found:12,.0f} tuples/s{'' if rows is None else f', {rows:,} rows'}")

    def ratio(self, name: str, found: float) -> None:
        least, self.ratios[name] = TARGETS[name], found
        print(f"{name:22} {found:12.2f}   target {least}")
        if found < least:
            self.missed.append(name)


def history_cells(names: list[str], folder: Path, size: Size, report: Report) -> None:
    table, stream = history(size.rows), sales(size)
    master = ss.MasterTable.build(table, folder / "r", key="product_id", history="since")
    join = ss.join("sweepjoin", memory=MEMORY)
    as_of = partial(rate, join, master, stream, size.push, on="product_id", as_of="t")
    theirs, expected = duck(AS_OF, table, stream)
    report.rate("DuckDB, as of", theirs, expected[0])
    cells: dict[str, Any] = {"as of": (as_of, expected)}
    if "as-of" in names:
        equality = partial(rate, join, master, stream, size.push, on="product_id")
        cells["equality"] = equality, duck(EQUAL, table, stream)[1]
    if "order" in names:
        cells["as of, in order"] = partial(as_of, order="stream"), expected
    found = report.in_turns(cells)
    if "as-of" in names:
        report.ratio("as of / equality", found["as of"] / found["equality"])
    if "order" in names:
        report.ratio("in order / not", found["as of, in order"] / found["as of"])
    if "spark" in names:
        whole, batch = spark_rates(table, stream, folder, size.push)
        report.rate("Spark, range join", whole)
        report.rate("Spark, micro-batch", batch)
        report.ratio("as of / Spark", found["as of"] / whole)
        report.ratio("as of / micro-batch", found["as of"] / batch)


def band_cell(folder: Path, size: Size, report: Report) -> None:
    """A band join without an equality, by MESHJOIN; about two rows for each tuple."""
    random = np.random.default_rng(3)
    wide = 4 * size.rows
    begins = np.sort(random.choice(wide, size.rows, replace=False))
    values = random.integers(0, 1 << 40, size.rows)
    table = pa.table({"low": begins, "high": begins + 8, "v0": values})
    stream = pa.table({"n": np.arange(size.tuples), "x": random.integers(0, wide, size.tuples)})
    master = ss.MasterTable.build(table, folder / "band", key="low")
    join, where = ss.join("meshjoin", memory=MEMORY), ss.Between("x", "low", "high")
    ours = partial(rate, join, master, stream, size.push, where=where, select=["v0"])
    theirs, expected = duck(BAND, table, stream)
    found = report.in_turns({"band": (ours, expected)})
    report.rate("DuckDB, band", theirs, expected[0])
    report.ratio("band / DuckDB", found["band"] / theirs)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--cells", default="as-of,order,band")
    parser.add_argument("--turns", type=int, default=2)
    arguments = parser.parse_args()
    size, names = SIZES[arguments.size], arguments.cells.split(",")
    report, begun = Report(1 if arguments.size == "pairs" else arguments.turns), describe()
    pa.set_cpu_count(1)
    folder = Path(tempfile.mkdtemp(prefix="semistream-conditions-"))
    try:
        if {"as-of", "order", "spark"} & set(names):
            history_cells(names, folder, size, report)
        if "band" in names:
            band_cell(folder, size, report)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if arguments.size == "full":
        found = {"rates": report.rates, "ratios": report.ratios, "wrong": report.wrong}
        save({"machine": begun, "rows": size.rows, "tuples": size.tuples, **found}, RESULTS)
    wrong = ", ".join(report.wrong)
    print(f"wrong answers: {wrong}" if wrong else "all answers equal DuckDB's")
    return 1 if report.wrong or (report.missed and arguments.size == "full") else 0


if __name__ == "__main__":
    sys.exit(main())
