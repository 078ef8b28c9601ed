"""Micro-batches of every size: the time of ``addBatch`` beside that of a ceiling.

    python -m lab.spark_batches --rows 2000000      # this part of `make bench-spark` alone

Pipelines with and without the join: ``enrich`` beside a ``mapInArrow`` that only appends constant
columns, and the one-crossing sink beside the same sink with constant columns; both with a table
whose pages are mapped for a visit (the default), and with one whose pages stay mapped
(``mapped="resident"``).
Every query first reads a few large batches, so that the front stage is warm, and then batches of
the size that is measured. The pipelines take turns; the fastest round of each counts, by the
median of its batches. Every answer is checked.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import DataFrame, SparkSession

import semistream as ss
from lab import machine
from lab.command import RESULTS
from lab.spark_data import FILES_PER_BATCH, SparkData, constants
from lab.tables import save
from semistream.spark import Metrics
from semistream.spark.coalesce import coalesce, coalesce_bytes
from semistream.spark.sink import WarehouseSource, WarehouseWriter, to_warehouse
from semistream.spark.worker_socket import acknowledge_at_once

SIZES = (1_000, 10_000, 100_000, 1_000_000)
TARGET = 1.25  # times the ceiling
ROUNDS = 3
WARM, WARM_ROWS = 4, 1_000_000
PAIRS = {
    "enrich": "ceiling",
    "enrich, resident": "ceiling",
    "one-crossing sink": "sink with constants",
    "one-crossing sink, resident": "sink with constants",
}
NAMES = tuple(dict.fromkeys([*PAIRS, *PAIRS.values()]))
CEILING_FORMAT = "semistream-constants"


@dataclass(frozen=True)
class BatchData(SparkData):
    """``warm`` batches of ``warm_rows`` rows, then ``batches`` batches of ``batch_rows``."""

    warm_batches: int = WARM
    warm_rows: int = WARM_ROWS

    @property
    def sales(self) -> Path:
        warm = f"{self.warm_batches}x{self.warm_rows}"
        return self.folder / f"batches-{warm}-{self.batches}x{self.batch_rows}"

    @property
    def tuples(self) -> int:
        return self.warm_batches * self.warm_rows + self.batches * self.batch_rows

    def prepare(self, log: Callable[[str], None], lmdb: bool = False) -> None:
        super(SparkData, self).prepare(log, lmdb=lmdb)
        self._make(self.sales, self._write_sales, log, "writing the stream over")

    def sent(self, batches: int) -> list[pa.RecordBatch]:
        return self.stream(self.tuples, WARM_ROWS)

    def _write_sales(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        sizes = [self.warm_rows] * self.warm_batches + [self.batch_rows] * self.batches
        position = 0
        for number, size in enumerate(sizes):
            for part in range(FILES_PER_BATCH):
                rows = size // FILES_PER_BATCH
                (batch,) = self.stream(rows, rows, offset=position)
                position += rows
                name = f"batch-{number:03d}-{part}.parquet"
                pq.write_table(pa.Table.from_batches([batch]), folder / name)


class AppendConstants:
    """Appends the columns of a look-up, the same row for all tuples."""

    def __init__(self) -> None:
        self.row = constants()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: dict[int, list[pa.Array]] = {}
        for batch in batches:
            rows = batch.num_rows
            if rows not in held:
                held = {rows: [pa.repeat(column[0], rows) for column in self.row.columns]}
            names = [*batch.schema.names, *self.row.schema.names]
            yield pa.RecordBatch.from_arrays([*batch.columns, *held[rows]], names=names)


class ConstantWriter(WarehouseWriter):
    """The sink's writer with constants instead of a join; batches are coalesced as for a join."""

    def join(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        acknowledge_at_once()
        return AppendConstants()(coalesce(iterator, coalesce_bytes(1 << 30)))


class ConstantSource(WarehouseSource):
    @classmethod
    def name(cls) -> str:
        return CEILING_FORMAT

    def streamWriter(self, schema: Any, overwrite: bool) -> ConstantWriter:  # noqa: N802
        return ConstantWriter(dict(self.options), None, None)


class Pipelines:
    """The pipelines over the batches of one size."""

    def __init__(self, spark: SparkSession, data: BatchData, memory: str, folder: Path) -> None:
        self.spark, self.data, self.memory, self.folder = spark, data, memory, folder

    def run(self, name: str) -> dict[str, Any]:
        """The milliseconds of ``addBatch`` of every measured batch."""
        out = self.folder / f"run-{time.monotonic_ns()}"
        writer = self._writer(name, str(out / "rows"))
        writer = writer.option("checkpointLocation", str(out / "checkpoint"))
        with Metrics(self.spark) as metrics:
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            progress = [p for p in query.recentProgress if p["numInputRows"]]
        measured = [p for p in progress if p["numInputRows"] == self.data.batch_rows]
        times = [p["durationMs"]["addBatch"] for p in measured[-self.data.batches :]]
        result = {"milliseconds": times, "median": statistics.median(times)}
        wrong = self._mistake(name, out / "rows", progress, metrics.records)
        shutil.rmtree(out, ignore_errors=True)
        return {**result, **({"wrong": wrong} if wrong else {})}

    def _writer(self, name: str, rows: str) -> Any:
        stream = self._stream()
        if name == "ceiling":
            schema = self._enriched(stream, self._master(name)).schema
            return stream.mapInArrow(AppendConstants(), schema).writeStream.format("noop")
        if name.startswith("enrich"):
            return self._enriched(stream, self._master(name)).writeStream.format("noop")
        if name in PAIRS:
            lookup = ss.Lookup(self._master(name), on="product_id")
            return to_warehouse(stream, lookup, path=rows, memory=self.memory)
        self.spark.dataSource.register(ConstantSource)
        return stream.writeStream.format(CEILING_FORMAT).option("path", rows)

    def _stream(self) -> DataFrame:
        folder = str(self.data.sales)
        reader = self.spark.readStream.schema(self.spark.read.parquet(folder).schema)
        return reader.option("maxFilesPerTrigger", FILES_PER_BATCH).parquet(folder)

    def _master(self, name: str) -> ss.MasterTable:
        mapped = "resident" if name.endswith("resident") else False
        return ss.MasterTable.open(self.data.master, mapped=mapped)

    def _enriched(self, stream: DataFrame, master: ss.MasterTable) -> DataFrame:
        return ss.enrich(stream, master, on="product_id", memory=self.memory)

    def _mistake(
        self, name: str, rows: Path, progress: list[Any], records: list[dict[str, Any]]
    ) -> str | None:
        read = sum(p["numInputRows"] for p in progress)
        if read != self.data.tuples:
            return f"{read} of {self.data.tuples} rows were read"
        if name in PAIRS:
            joined = sum(r["lookups"][0]["counters"]["matched"] for r in records)
            if joined != self.data.tuples:
                return f"{joined} of {self.data.tuples} rows were joined"
        if name.startswith("one-crossing sink"):
            return self.data.check_parquet(rows, 0)
        return None


def measure(
    spark: SparkSession,
    datas: list[BatchData],
    memory: str,
    folder: Path,
    log: Callable[[str], None],
    rounds: int = ROUNDS,
) -> list[dict[str, Any]]:
    """All sizes; the fastest round of each pipeline, and the ratios to the ceilings."""
    results = []
    for data in datas:
        data.warm()
        pipelines = Pipelines(spark, data, memory, folder)
        best: dict[str, Any] = {}
        for _ in range(rounds):
            for name in NAMES:
                found = pipelines.run(name)
                log(f"{data.batch_rows:>9,} rows a batch, {name}: {found['median']:.0f} ms")
                before = best.get(name, found)
                wrong = {k: v for one in (before, found) for k, v in one.items() if k == "wrong"}
                best[name] = {**min(before, found, key=lambda one: one["median"]), **wrong}
        ratios = {
            name: best[name]["median"] / best[other]["median"] for name, other in PAIRS.items()
        }
        results.append({"batch_rows": data.batch_rows, "pipelines": best, "ratios": ratios})
    return results


def targets(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "name": f"addBatch of {name} / {PAIRS[name]}, {one['batch_rows']:,} rows a batch",
            "ratio": ratio,
            "target": TARGET,
            "met": ratio <= TARGET,
        }
        for one in results
        for name, ratio in one["ratios"].items()
    ]


def prepared(
    rows: int, log: Callable[[str], None], batches: int = 16, sizes: Sequence[int] = SIZES
) -> list[BatchData]:
    datas = [BatchData(rows, batch_rows=size, batches=batches) for size in sizes]
    for data in datas:
        data.prepare(log)
    return datas


def main(arguments: list[str] | None = None) -> int:
    from lab.bench_spark import session

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--batches", type=int, default=16, help="measured batches of each size")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="rows of a batch")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, default=RESULTS / "spark-batches.json")
    options = parser.parse_args(arguments)
    about = machine.describe()
    about["packages"]["pyspark"] = pyspark.__version__
    datas = prepared(options.rows, print, options.batches, options.sizes)
    memory = str(datas[0].nbytes // 10)
    with tempfile.TemporaryDirectory(prefix="semistream-bench-") as folder:
        spark = session(Path(folder))
        try:
            found = measure(spark, datas, memory, Path(folder), print, options.rounds)
        finally:
            spark.stop()
    for target in targets(found):
        verdict = "met" if target["met"] else "missed"
        print(f"{target['name']}: {target['ratio']:.2f} (target {TARGET}): {verdict}")
    about["load_after"] = machine.load()
    report = {"rows": options.rows, "rounds": options.rounds, "machine": about}
    save({**report, "micro_batches": found}, options.out)
    return int(any("wrong" in p for one in found for p in one["pipelines"].values()))


if __name__ == "__main__":
    # Workers import these classes by name, and this module is __main__ here.
    from lab import spark_batches

    raise SystemExit(spark_batches.main())
