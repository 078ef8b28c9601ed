"""The Spark benchmark: enrich against Spark's own stream-static join, and against the ceiling.

    python -m lab.bench_spark --size small      # a few minutes
    python -m lab.bench_spark --size full       # R = 20 million rows; targets apply here

Everything runs in one session on two cores, one pipeline after the other, on micro-batches of the
same rows. The ceiling is a ``mapInArrow`` that only appends constant columns of the same types:
no join in Python can be faster. A rate is rows per second of the median
micro-batch after warm-up, the better of two rounds. Every answer is checked. Then micro-batches of
1 thousand to 1 million rows are measured beside their ceilings (lab/spark_batches.py). Results go
to lab/results/spark.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from rich.console import Console
from rich.table import Table

import semistream as ss
from lab import machine, spark_batches
from lab.spark_data import FILES_PER_BATCH, SparkData, constants
from semistream.spark import Metrics

RESULTS = Path(__file__).resolve().parent / "results"
PARQUET, ONE_CROSSING = "enrich + Parquet sink", "one-crossing sink"
ROUNDS = 3
MISTAKES = ("wrong", "error")
STRATEGIES = {  # the side with the hint, and the hint
    "sort-merge": ("batch", "merge"),
    "shuffled hash of the batch": ("batch", "shuffle_hash"),
    "broadcast of the batch": ("batch", "broadcast"),
    "broadcast of R": ("R", "broadcast"),
}


@dataclass(frozen=True)
class Size:
    """Rows of the large R and of the R that fits in memory, rows per batch, number of batches."""

    large: int
    fits: int
    batch_rows: int
    warm: int
    measured: int
    spark_measured: int
    memory: str
    file: str
    small_batches: int  # measured micro-batches of each size, beside the ceilings


# The budget per executor is a tenth of the large R, and as much as all of the small one.
SIZES = {
    "full": Size(20_000_000, 2_000_000, 1_000_000, 8, 8, 2, "226MB", "spark.json", 16),
    "small": Size(500_000, 100_000, 100_000, 2, 3, 2, "32MB", "spark-small.json", 4),
}


class Bench:
    """One session and the pipelines that run in it."""

    def __init__(self, spark: SparkSession, data: SparkData, size: Size, folder: Path) -> None:
        self.spark = spark
        self.data = data
        self.size = size
        self.folder = folder
        self.static = spark.read.parquet(str(data.parquet))

    def stream(self, batches: int) -> DataFrame:
        """The first batches as a stream, one per trigger, one partition per core."""
        names = ",".join(f"batch-{number:03d}-*" for number in range(batches))
        schema = self.spark.read.parquet(str(self.data.sales)).schema
        reader = self.spark.readStream.schema(schema).option("pathGlobFilter", "{" + names + "}")
        return reader.option("maxFilesPerTrigger", FILES_PER_BATCH).parquet(str(self.data.sales))

    def enriched(self, stream: DataFrame) -> DataFrame:
        return ss.enrich(stream, str(self.data.master), on="product_id", memory=self.size.memory)

    def joined(self, stream: DataFrame, strategy: str) -> DataFrame:
        side, hint = STRATEGIES[strategy]
        if side == "R":
            return stream.join(self.static.hint(hint), "product_id")
        return stream.hint(hint).join(self.static, "product_id")

    def ceiling(self, stream: DataFrame) -> DataFrame:
        return stream.mapInArrow(Constants(constants()), self.enriched(stream).schema)

    def discard(self, df: DataFrame, warm: int) -> dict[str, Any]:
        return self.run(lambda rows: df.writeStream.format("noop"), warm)

    def to_parquet(self, df: DataFrame, warm: int) -> dict[str, Any]:
        return self.run(lambda rows: df.writeStream.format("parquet").option("path", rows), warm)

    def one_crossing(self, stream: DataFrame, warm: int) -> dict[str, Any]:
        from semistream.spark.sink import to_warehouse

        lookup = ss.Lookup(str(self.data.master), on="product_id")
        memory = self.size.memory
        return self.run(lambda rows: to_warehouse(stream, lookup, path=rows, memory=memory), warm)

    def run(self, writer_to: Callable[[str], Any], warm: int) -> dict[str, Any]:
        """Run a pipeline to its end; seconds of its batches after warm-up."""
        out = self.folder / f"run-{time.monotonic_ns()}"
        writer = writer_to(str(out / "rows")).option("checkpointLocation", str(out / "checkpoint"))
        with Metrics(self.spark) as metrics:
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            progress = [p for p in query.recentProgress if p["numInputRows"]]
            time.sleep(0.5)  # the listener lags a little
        seconds = [p["durationMs"]["triggerExecution"] / 1000 for p in progress][warm:]
        median = statistics.median(seconds)
        result: dict[str, Any] = {
            "seconds": seconds,
            "rate": self.size.batch_rows / median,
            "load": machine.load(),
        }
        if metrics.records:
            for lookup in (one for record in metrics.records for one in record["lookups"]):
                lookup["master"] = "/".join(
                    Path(lookup["master"]).parts[-2:]
                )  # without the machine's own path
            result["batches"] = metrics.records
            result["hit_rate"] = metrics.records[-1]["lookups"][0]["hit_rate"]
            rows = sum(r["lookups"][0]["counters"]["rows_out"] for r in metrics.records)
            if rows != len(progress) * self.size.batch_rows:
                result["wrong"] = f"{len(progress)} batches returned {rows} rows"
        if (out / "rows").exists():
            result["wrong"] = self.data.check_parquet(out / "rows", len(progress))
        shutil.rmtree(out, ignore_errors=True)
        return {name: value for name, value in result.items() if value is not None}

    def checksum(self, join: Callable[[DataFrame], DataFrame]) -> tuple[int, str]:
        """Rows and the sum of their hashes, of the first batch."""
        first = self.spark.read.parquet(str(self.data.sales / "batch-000-*"))
        columns = ["sale_id", "product_id", "price", "supplier_id", "category", "description"]
        hashed = F.xxhash64(*columns).cast("decimal(38,0)")
        row = join(first).agg(F.count("*"), F.sum(hashed)).collect()[0]
        return int(row[0]), str(row[1])


class Constants:
    """Appends the same columns to every batch."""

    def __init__(self, row: pa.RecordBatch) -> None:
        self.row = row

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: dict[int, list[pa.Array]] = {}
        for batch in batches:
            rows = batch.num_rows
            if rows not in held:
                held = {rows: [pa.repeat(column[0], rows) for column in self.row.columns]}
            names = [*batch.schema.names, *self.row.schema.names]
            yield pa.RecordBatch.from_arrays([*batch.columns, *held[rows]], names=names)


def pipelines(bench: Bench, large: bool) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    size = bench.size
    stream, short = bench.stream(size.warm + size.measured), bench.stream(1 + size.spark_measured)
    for _ in range(ROUNDS):  # the JVM warms up: the first pipeline must not be at a disadvantage
        if large:
            yield "read and discard", lambda: bench.discard(stream, size.warm)
        yield "ceiling", lambda: bench.discard(bench.ceiling(stream), size.warm)
        yield "enrich", lambda: bench.discard(bench.enriched(stream), size.warm)
        if large:
            yield PARQUET, lambda: bench.to_parquet(bench.enriched(stream), size.warm)
            yield ONE_CROSSING, lambda: bench.one_crossing(stream, size.warm)
    for name in STRATEGIES:
        if name == "broadcast of R" and bench.data.rows > 5_000_000:
            continue  # broadcasting 2.3 GB of rows: Spark runs out of memory
        yield (
            f"Spark, {name}",
            lambda name=name: bench.discard(bench.joined(short, name), 1),  # type: ignore[misc]
        )


def measure(bench: Bench, large: bool, log: Callable[[str], None]) -> dict[str, Any]:
    """All pipelines; the fastest of several rounds counts, and so does a wrong answer in any."""
    results: dict[str, Any] = {}
    for name, pipeline in pipelines(bench, large):
        try:
            result = pipeline()
            log(f"R = {bench.data.rows:,}, {name}: {result['rate'] / 1e6:.3f} M rows/s")
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
            log(f"R = {bench.data.rows:,}, {name}: {result['error']}")
        before = results.get(name, {})
        faster = max(before, result, key=lambda one: float(one.get("rate", 0.0)))
        mistakes = {k: v for one in (before, result) for k, v in one.items() if k in MISTAKES}
        results[name] = {**faster, **mistakes}
    found = bench.checksum(bench.enriched)
    expected = bench.checksum(lambda df: bench.joined(df, "broadcast of the batch"))
    if found != expected:
        results["enrich"]["wrong"] = f"count and checksum {found} instead of {expected}"
    return {"rows": bench.data.rows, "checksum": found, "pipelines": results}


def targets(large: dict[str, Any], fits: dict[str, Any]) -> list[dict[str, Any]]:
    def rate(part: dict[str, Any], name: str) -> float:
        return float(part["pipelines"].get(name, {}).get("rate", 0.0))

    def best(part: dict[str, Any]) -> float:
        return max(rate(part, f"Spark, {name}") for name in STRATEGIES)

    cases = [
        ("enrich / Spark's best, large R", rate(large, "enrich"), best(large), 10.0),
        ("enrich / ceiling, large R", rate(large, "enrich"), rate(large, "ceiling"), 0.8),
        (
            "one-crossing sink / enrich + Parquet sink",
            rate(large, ONE_CROSSING),
            rate(large, PARQUET),
            1.4,
        ),
        ("enrich / Spark's best, R that fits", rate(fits, "enrich"), best(fits), 1.0),
        ("enrich / ceiling, R that fits", rate(fits, "enrich"), rate(fits, "ceiling"), 0.6),
    ]
    return [
        {"name": name, "ratio": a / b if b else None, "target": target, "met": a >= target * b > 0}
        for name, a, b, target in cases
    ]


def session(folder: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.driver.memory": "5g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    builder = SparkSession.builder.master("local[2]").appName("semistream-bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def show(report: dict[str, Any], console: Console) -> None:
    table = Table("R", "pipeline", "M rows/s", "s a batch", "hit rate", "answer")
    for part in report["relations"]:
        for name, result in part["pipelines"].items():
            seconds = statistics.median(result["seconds"]) if "seconds" in result else 0.0
            hits = f"{result['hit_rate']:.2f}" if result.get("hit_rate") is not None else ""
            answer = result.get("wrong") or result.get("error") or "right"
            rate = f"{result.get('rate', 0) / 1e6:.3f}"
            table.add_row(f"{part['rows']:,}", name, rate, f"{seconds:.2f}", hits, answer)
    console.print(table)
    for target in report["targets"]:
        ratio = "none" if target["ratio"] is None else f"{target['ratio']:.2f}"
        verdict = "met" if target["met"] else "missed"
        console.print(f"{target['name']}: {ratio} (target {target['target']:g}): {verdict}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=sorted(SIZES), default="full")
    parser.add_argument("--out", help="path of the JSON results")
    options = parser.parse_args(arguments)
    size, console = SIZES[options.size], Console()
    batches = size.warm + size.measured
    relations = [
        SparkData(rows, batch_rows=size.batch_rows, batches=batches)
        for rows in (size.large, size.fits)
    ]
    for data in relations:
        data.prepare(console.print)
    report: dict[str, Any] = {"size": options.size, "memory": size.memory}
    report.update(machine=machine.describe(), relations=[])
    report["machine"]["packages"]["pyspark"] = pyspark.__version__
    with tempfile.TemporaryDirectory(prefix="semistream-bench-") as folder:
        spark = session(Path(folder))
        try:
            for data in relations:
                data.warm()
                bench = Bench(spark, data, size, Path(folder))
                large = data.rows == size.large
                report["relations"].append(measure(bench, large, console.print))
            datas = spark_batches.prepared(size.large, console.print, size.small_batches)
            report["micro_batches"] = spark_batches.measure(
                spark, datas, size.memory, Path(folder), console.print
            )
        finally:
            spark.stop()
    report["targets"] = targets(*report["relations"])
    report["targets"] += spark_batches.targets(report["micro_batches"])
    out = Path(options.out) if options.out else RESULTS / size.file
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n")
    show(report, console)
    parts = [*report["relations"], *report["micro_batches"]]
    wrong = any("wrong" in result for part in parts for result in part["pipelines"].values())
    missed = options.size == "full" and not all(target["met"] for target in report["targets"])
    return 1 if wrong or missed else 0


if __name__ == "__main__":
    sys.exit(main())
