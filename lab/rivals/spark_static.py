"""Spark's own stream-static join: one query, one file per micro-batch, one task at a time.

The stream arrives as Parquet files; a batch is served when its micro-batch is done, rows
discarded by the ``noop`` sink. The query's plan is read to make sure that Spark does the join
that the variant names, and that a cached R is read from the cache.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lab.rivals.contract import Rival
from lab.rivals.data import RivalData

STRATEGIES = {  # the side with the hint, the hint, and the operator that it must produce
    "sort-merge": ("batch", "merge", "SortMergeJoin"),
    "shuffled hash": ("batch", "shuffle_hash", "ShuffledHashJoin"),
    "broadcast of the batch": ("batch", "broadcast", "BroadcastHashJoin"),
    "broadcast of R": ("R", "broadcast", "BroadcastHashJoin"),
}
_HEAP = 1 << 30  # besides the budget: a Spark driver does not start with much less


class SparkStatic(Rival):
    name = "Spark"
    packages = ("pyspark",)
    variants = tuple(f"{name}, {form}" for name in STRATEGIES for form in ("Parquet", "cached"))
    limit_refused = "a JVM needs more than the room for a process; its heap is 1 GiB + the budget"
    one_core = False
    patience = 2.0  # it starts a JVM, and re-reads R for every batch

    @classmethod
    def store(cls, variant: str, data: RivalData) -> Path:
        return data.parquet

    @classmethod
    def build(cls, variant: str, data: RivalData, path: Path) -> None:
        data.write_parquet(path)

    def open(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="semistream-rivals-")
        folder = Path(self._folder.name)
        self._incoming, self._staged = folder / "incoming", folder / "staged"
        self._incoming.mkdir()
        self._staged.mkdir()
        self._files = 0
        self._keep = False
        self._kept: list[pa.RecordBatch] = []
        self._count = 0
        self._plan: str | None = None
        self.spark = _session(folder, _HEAP + self.grant.budget)
        static = self.spark.read.parquet(str(self.data.parquet))
        if self.variant.endswith("cached"):
            static = static.cache()
            static.count()
        schema = "sale_id BIGINT, product_id BIGINT, quantity INT"
        stream = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        self._query = (
            self._joined(stream.parquet(str(self._incoming)), static)
            .writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )

    def _joined(self, stream: Any, static: Any) -> Any:
        side, hint, _ = STRATEGIES[self.variant.rsplit(", ", 1)[0]]
        if side == "R":
            return stream.join(static.hint(hint), "product_id")
        return stream.hint(hint).join(static, "product_id")

    def _take(self, rows: Any, batch: int) -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812

        if self._keep:
            self._kept = rows.toArrow().to_batches()
            return
        seen = Observation()
        counted = rows.observe(seen, F.count(F.lit(1)).alias("rows"))
        counted.write.format("noop").mode("overwrite").save()
        self._count = seen.get["rows"]

    def stage(self, batch: pa.RecordBatch) -> Path:
        file = self._staged / f"{self._files:06d}.parquet"
        self._files += 1
        pq.write_table(pa.Table.from_batches([batch]), file)
        return file

    def serve(self, staged: Path) -> int:
        self._count = 0
        staged.rename(self._incoming / staged.name)
        self._query.processAllAvailable()
        return self._count

    def rows(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        self._keep = True
        self.serve(self.stage(batch))
        self._keep = False
        self._check_plan()
        yield from self._kept
        self._kept = []

    def _check_plan(self) -> None:
        if self._plan is None:
            self._plan = str(self._query._jsq.explainInternal(False))
            operator = STRATEGIES[self.variant.rsplit(", ", 1)[0]][2]
            cached = "InMemoryTableScan" in self._plan
            if operator not in self._plan or cached != self.variant.endswith("cached"):
                raise RuntimeError(f"Spark planned a different join: {self._plan}")

    def close(self) -> None:
        self._query.stop()
        self.spark.stop()
        self._folder.cleanup()


def _session(folder: Path, heap: int) -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {
        "spark.driver.memory": f"{heap >> 20}m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.maxResultSize": "0",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    builder = SparkSession.builder.master("local[1]").appName("semistream-rivals")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark
