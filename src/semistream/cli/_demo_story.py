"""What ``semistream demo`` prints, step by step."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from semistream.cli import _demo_pipeline as steps
from semistream.errors import ConfigError
from semistream.memory import format_size
from semistream.warmup.background import warm_up_in_background

_QUERY = "SELECT supplier_id, count(*), sum(quantity * price) GROUP BY 1 ORDER BY 3 DESC LIMIT 5"


def show_pipeline(
    rows: int,
    tuples: int,
    memory: str,
    join: str,
    exponent: float,
    output: str,
    folder: Path | None,
) -> None:
    """Run the demo and print what happens."""
    began = time.perf_counter()
    place = (folder or steps.default_folder()).absolute()
    demo = steps.Demo(place, rows, tuples, memory, join, exponent, _output(output))
    steps.check(demo)
    warm_up_in_background()  # while the table is built
    print(f"1. Products: a master table of {rows:,} rows, and {tuples:,} sales", flush=True)
    _prepare(demo)
    size = format_size(steps.table_bytes(demo))
    print(
        f"\n2. Sales through the pipeline into {demo.output}: "
        f"{memory} of memory for a join with {size} of products",
        flush=True,
    )
    line = _Line()
    line.wait("starting Spark; the first batch also starts its Python workers ...")
    ours = steps.enrich(demo, line.write)
    line.end()
    print("\n3. The same batches through Spark's own join, for a few seconds", flush=True)
    line.wait("starting Spark again ...")
    own = steps.own_join(demo, lambda n, s: line.write(f"{n:,} rows | batch time {s:.2f} s"))
    line.end()
    answer = steps.query_warehouse(demo)
    print(f"\n4. The warehouse: {tuples:,} sales, each exactly once")
    print(f"   {_QUERY}")
    _print_answer(answer)
    print("\n5. Rows per second, median of the batches after the first")
    _print_rates(demo, steps.rate(ours), steps.rate(own))
    print(f"\nreport    {demo.report}\npipeline  {demo.pipeline}")
    print(f"again     semistream demo --folder {place}")
    print(f"done in {time.perf_counter() - began:.0f} s; rm -r {place} frees the space")


def _output(output: str) -> str:
    """The warehouse format that is possible here; raises if the demo itself is not."""
    from importlib.util import find_spec

    for module, extra in (("pyspark", "spark"), ("yaml", "pipeline"), ("pydantic", "pipeline")):
        if find_spec(module) is None:
            raise ConfigError(
                f"the demo needs {module}: pip install 'semistream[{extra}]', or run only the join "
                "with semistream demo --engine"
            )
    if output == "delta" and find_spec("deltalake") is None:
        print("deltalake is not installed: the warehouse will be a folder of Parquet files")
        return "parquet"
    return output


def _prepare(demo: steps.Demo) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = [TextColumn("   {task.description:<20}"), BarColumn(), MofNCompleteColumn()]
    console = Console(file=sys.stdout)
    with Progress(*columns, TimeElapsedColumn(), console=console) as bars:
        tasks: dict[str, Any] = {}

        def show(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bars.add_task(step, total=total)
            bars.update(tasks[step], completed=done)

        steps.prepare(demo, show)


class _Line:
    """A line that is updated on a terminal; elsewhere one line per batch."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty()

    def write(self, text: Any) -> None:
        sys.stdout.write(f"\r\x1b[2K   {text}" if self._live else f"   {text}\n")
        sys.stdout.flush()

    def wait(self, text: str) -> None:
        """Shown on a terminal until there are figures."""
        if self._live:
            self.write(text)

    def end(self) -> None:
        if self._live:
            print()


def _print_answer(answer: pa.Table) -> None:
    for row in answer.to_pylist():
        supplier, count, revenue = row.values()
        print(f"   supplier {supplier:>6}  {count:>10,} sales  {revenue:>18,.2f}")


def _print_rates(demo: steps.Demo, ours: float | None, own: float | None) -> None:
    name = "the default join" if demo.join == "auto" else demo.join
    for rate, label in (
        (ours, f"semistream, {name} in {demo.memory}, rows written to {demo.output}"),
        (own, f"Spark's stream.join(table), heap of {steps.HEAP}, rows written to Parquet files"),
    ):
        text = "no batch" if rate is None else f"{rate:,.0f}"
        print(f"   {text:>12}  {label}")
    if ours and own:
        print(f"   {ours / own:>11.1f}x")
