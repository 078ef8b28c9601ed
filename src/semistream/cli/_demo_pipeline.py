"""``semistream demo``: a table, a YAML pipeline, Spark's own join beside it, and a warehouse.

The functions compute; :mod:`semistream.cli._demo_story` prints.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from semistream.errors import ConfigError, InternalError

BATCHES = 8
FILES = min(8, os.cpu_count() or 1)  # of a batch: Spark reads each in a task of its own
OWN_JOIN_SECONDS = 8.0
PIPELINE = """\
name: demo
source:
  format: parquet
  path: {folder}/sales
  schema: {{sale_id: long, product_id: long, quantity: int}}
  options: {{maxFilesPerTrigger: {files}}}
lookups:
  - master: {folder}/products
    on: product_id
    select: [price, supplier_id]
sink:
  output: {output}
  path: {folder}/warehouse
checkpoint: {folder}/checkpoint
memory: {memory}
using: {join}
spark:
  spark.driver.memory: {heap}
"""
HEAP = "1g"
_MARK = ".semistream-demo"  # a folder with this file was made by a demo
_MADE = (
    "products",
    "products.parquet",
    "sales",
    "warehouse",
    "checkpoint",
    "own-join",
    "metrics.jsonl",
    "report.html",
)


@dataclass(frozen=True)
class Demo:
    """The options of a demo."""

    folder: Path
    rows: int
    tuples: int
    memory: str
    join: str
    exponent: float
    output: str

    @property
    def pipeline(self) -> Path:
        return self.folder / "pipeline.yaml"

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.jsonl"

    @property
    def report(self) -> Path:
        return self.folder / "report.html"


def default_folder() -> Path:
    """One folder for all demos, so that they do not fill the disk."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "semistream" / "demo"


def clear(folder: Path) -> None:
    """Remove what an earlier demo made; refuse a folder with other files."""
    is_ours = (folder / _MARK).exists() or folder == default_folder()
    if folder.is_dir() and any(folder.iterdir()) and not is_ours:
        raise ConfigError(f"folder={str(folder)!r} has other files; give an empty or a new folder")
    try:
        for name in _MADE:
            path = folder / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _MARK).touch()
    except OSError as error:
        raise ConfigError(f"folder={str(folder)!r} cannot be used: {error.strerror}") from error


def check(demo: Demo) -> None:
    """Raise for a bad option before anything is built, and make the folder."""
    import semistream as ss

    if demo.output not in ("delta", "parquet"):
        raise ConfigError(f"output={demo.output!r}: choose delta or parquet")
    ss.join(demo.join, memory=demo.memory)
    clear(demo.folder)


def prepare(demo: Demo, progress: Callable[[str, int, int], None]) -> None:
    """Write products as a master table and for Spark, sales as files, and the pipeline.

    ``progress`` is called with the step, the rows done and the total number of rows.
    """
    import pyarrow.parquet as pq

    import semistream as ss
    from semistream.workload.relations import products
    from semistream.workload.stream import sales

    done = 0
    rows = products(demo.rows)
    source = demo.folder / "products.parquet"
    with pq.ParquetWriter(source, rows.schema) as writer:
        for batch in rows:
            writer.write_batch(batch)
            done += batch.num_rows
            progress("generating products", done, demo.rows)
    names = {"sort": "sorting them by key", "write": "writing pages"}
    ss.MasterTable.build(
        source,
        demo.folder / "products",
        key="product_id",
        unique=True,
        progress=lambda stage, done, total: progress(
            names.get(stage, stage), done, total or demo.rows
        ),
    )
    (demo.folder / "sales").mkdir()
    done, size = 0, -(-demo.tuples // (BATCHES * FILES))
    stream = sales(demo.tuples, demo.rows, exponent=demo.exponent, scattered=True, batch_rows=size)
    for number, batch in enumerate(stream):
        table = pa.Table.from_batches([batch])
        pq.write_table(table, demo.folder / "sales" / f"{number:03d}.parquet")
        done += batch.num_rows
        progress("generating sales", done, demo.tuples)
    text = PIPELINE.format(
        folder=demo.folder,
        output=demo.output,
        memory=demo.memory,
        join=demo.join,
        heap=HEAP,
        files=FILES,
    )
    demo.pipeline.write_text(text)


def table_bytes(demo: Demo) -> int:
    import semistream as ss

    return ss.MasterTable.open(demo.folder / "products").nbytes


def enrich(demo: Demo, show: Callable[[Any], None]) -> list[tuple[int, float]]:
    """Run the pipeline; rows and seconds of its micro-batches."""
    from semistream.cli.report import write_report
    from semistream.cli.run import run_pipeline

    run_pipeline(demo.pipeline, once=True, metrics_file=demo.metrics, show=show)
    write_report(demo.metrics, demo.report)
    records = [json.loads(line) for line in demo.metrics.read_text().splitlines()]
    return [(record["rows_in"], record["seconds"]) for record in records]


def own_join(demo: Demo, show: Callable[[int, float], None]) -> list[tuple[int, float]]:
    """The same batches through Spark's own join, for a few seconds."""
    from semistream.pipeline import load
    from semistream.spark.own_join import own_join_batches

    pipeline, _ = load(demo.pipeline)
    return own_join_batches(
        pipeline,
        demo.folder / "products.parquet",
        "product_id",
        ["price", "supplier_id"],
        demo.folder / "own-join",
        OWN_JOIN_SECONDS,
        show,
    )


def rate(batches: Sequence[tuple[int, float]]) -> float | None:
    """The median rate without the first batch, which also starts the query and its workers.

    >>> rate([(100, 10.0), (100, 1.0), (100, 2.0), (100, 1.0)])
    100.0
    >>> rate([(100, 10.0)])
    10.0
    """
    measured = batches[1:] or batches
    rates = [rows / seconds for rows, seconds in measured if seconds]
    return statistics.median(rates) if rates else None


def query_warehouse(demo: Demo) -> pa.Table:
    """The suppliers with the highest revenue; raises if sales are missing or duplicated."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    place = demo.folder / "warehouse"
    if demo.output == "delta":
        from deltalake import DeltaTable

        facts = DeltaTable(str(place)).to_pyarrow_table()
    else:
        facts = ds.dataset(place, format="parquet").to_table()
    distinct = pc.count_distinct(facts["sale_id"]).as_py()
    if not facts.num_rows == distinct == demo.tuples:
        raise InternalError(
            f"the warehouse has {facts.num_rows} rows of {distinct} sales, the stream had "
            f"{demo.tuples}"
        )
    revenue = pc.multiply(facts["price"], pc.cast(facts["quantity"], pa.float64()))
    totals = facts.append_column("revenue", revenue).group_by("supplier_id")
    totals = totals.aggregate([("sale_id", "count"), ("revenue", "sum")])
    best = totals.sort_by([("revenue_sum", "descending")]).slice(0, 5)
    return best.select(["supplier_id", "sale_id_count", "revenue_sum"])
