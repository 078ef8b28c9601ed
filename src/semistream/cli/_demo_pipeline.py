"""``semistream demo``: generated sales, a YAML pipeline, a warehouse, and a query on it."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from semistream.errors import ConfigError, InternalError

BATCHES = 8
PIPELINE = """\
name: demo
source:
  format: parquet
  path: {folder}/sales
  schema: {{sale_id: long, product_id: long, quantity: int}}
  options: {{maxFilesPerTrigger: 1}}
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
"""


@dataclass(frozen=True)
class PipelineResult:
    """Row count and times of the demo, and the result of the warehouse query."""

    rows: int
    prepare_seconds: float
    run_seconds: float
    answer: pa.Table


def prepare(
    folder: Path, rows: int, tuples: int, memory: str, join: str, exponent: float, output: str
) -> Path:
    """Write products as a master table, sales as files, and the pipeline that joins them."""
    import pyarrow.parquet as pq

    import semistream as ss
    from semistream.workload.relations import products
    from semistream.workload.stream import sales

    if output not in ("delta", "parquet"):
        raise ConfigError(f"output={output!r}: choose delta or parquet")
    ss.join(join, memory=memory)  # first, so that a bad option fails before the build
    ss.MasterTable.build(
        products(rows), folder / "products", key="product_id", unique=True, overwrite=True
    )
    (folder / "sales").mkdir(parents=True, exist_ok=True)
    size = -(-tuples // BATCHES)
    stream = sales(tuples, rows, exponent=exponent, scattered=True, batch_rows=size)
    for number, batch in enumerate(stream):
        table = pa.Table.from_batches([batch])
        pq.write_table(table, folder / "sales" / f"{number:03d}.parquet")
    file = folder / "pipeline.yaml"
    file.write_text(PIPELINE.format(folder=folder, output=output, memory=memory, join=join))
    return file


def query_warehouse(folder: Path, output: str) -> tuple[int, pa.Table]:
    """Return the number of rows in the warehouse and the suppliers with the highest revenue."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    if output == "delta":
        from deltalake import DeltaTable

        facts = DeltaTable(str(folder / "warehouse")).to_pyarrow_table()
    else:
        facts = ds.dataset(folder / "warehouse", format="parquet").to_table()
    revenue = pc.multiply(facts["price"], pc.cast(facts["quantity"], pa.float64()))
    totals = facts.append_column("revenue", revenue).group_by("supplier_id")
    totals = totals.aggregate([("revenue", "sum"), ("sale_id", "count")])
    best = totals.sort_by([("revenue_sum", "descending")]).slice(0, 5)
    return facts.num_rows, best.select(["supplier_id", "sale_id_count", "revenue_sum"])


def run_pipeline_demo(
    folder: Path,
    rows: int,
    tuples: int,
    memory: str,
    join: str,
    exponent: float,
    output: str,
    on_message: Callable[[str], None] = lambda text: None,
) -> PipelineResult:
    """Run the whole demo; ``on_message`` is called with each progress message."""
    from semistream.cli.run import plan_of, run_pipeline
    from semistream.warmup.background import warm_up_in_background

    warm_up_in_background()
    start = time.perf_counter()
    on_message(f"generating {rows:,} products and {tuples:,} sales")
    file = prepare(folder, rows, tuples, memory, join, exponent, output)
    prepared = time.perf_counter()
    on_message(file.read_text())
    on_message(plan_of(file)[3])
    run_pipeline(file, once=True, show=lambda figures: on_message(str(figures)))
    done = time.perf_counter()
    count, answer = query_warehouse(folder, output)
    if count != tuples:
        raise InternalError(f"the warehouse has {count} rows, the stream had {tuples}")
    return PipelineResult(count, prepared - start, done - prepared, answer)


def show_pipeline(
    rows: int,
    tuples: int,
    memory: str,
    join: str,
    exponent: float,
    output: str,
    folder: Path | None,
) -> None:
    """Run the demo and print the result."""
    from importlib.util import find_spec

    for module, extra in (("pyspark", "spark"), ("yaml", "pipeline"), ("pydantic", "pipeline")):
        if find_spec(module) is None:
            raise ConfigError(
                f"the demo needs {module}: pip install 'semistream[{extra}]', or run only the join "
                "with semistream demo --engine"
            )
    if output == "delta" and find_spec("deltalake") is None:
        print("deltalake is not installed: the warehouse will be a folder of Parquet files")
        output = "parquet"
    with _folder(folder) as place:
        result = run_pipeline_demo(
            place, rows, tuples, memory, join, exponent, output, lambda t: print(t, flush=True)
        )
        print(
            f"\n{result.rows:,} sales in the {output} warehouse, each exactly once; generated in "
            f"{result.prepare_seconds:.0f} s, enriched in {result.run_seconds:.0f} s "
            "(including Spark startup)\n"
        )
        _print_table(result.answer)
        if folder is not None:
            print(
                f"\nall files are in {place}; to run it again: semistream run {place}/pipeline.yaml"
            )


@contextlib.contextmanager
def _folder(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="semistream-demo-") as made:
        yield Path(made)


def _print_table(answer: pa.Table) -> None:
    from rich.console import Console
    from rich.table import Table

    table: Any = Table("supplier", "sales", "revenue", title="top suppliers", title_justify="left")
    for row in answer.to_pylist():
        supplier, count, revenue = row.values()
        table.add_row(str(supplier), f"{count:,}", f"{revenue:,.2f}")
    Console(file=sys.stdout).print(table)
