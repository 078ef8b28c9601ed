"""``semistream demo --engine``: join a skewed stream of sales with products in 50 MB."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from rich.console import Console

SAMPLE_ROWS = 5


@dataclass(frozen=True)
class DemoResult:
    """The measurements of the demo."""

    master_rows: int
    master_pages: int
    master_bytes: int
    build_seconds: float
    join_seconds: float
    stats: dict[str, int]
    memory: dict[str, int]
    budget: int
    sample: pa.Table

    @property
    def tuples_per_second(self) -> float:
        return self.stats["tuples_in"] / self.join_seconds

    @property
    def hit_rate(self) -> float:
        return self.stats["front_stage_hits"] / max(self.stats["tuples_in"], 1)


def run_demo(
    rows: int,
    tuples: int,
    memory: str,
    join: str,
    exponent: float,
    folder: Path,
    progress: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> DemoResult:
    """Build the products in ``folder``, join the sales with them, and measure.

    ``progress`` is called with the step, the rows done and the total number of rows.
    """
    import semistream as ss
    from semistream.workload.relations import products
    from semistream.workload.stream import sales

    description = ss.join(join, memory=memory)  # first, so that a bad option fails before the build

    def building(stage: str, done: int, total: int | None) -> None:
        names = {"sort": "sorting products", "write": "writing pages"}
        progress(names.get(stage, stage), done, total or rows)

    start = time.perf_counter()
    master = ss.MasterTable.build(
        products(rows),
        folder / "products",
        key="product_id",
        unique=True,
        progress=building,
    )
    build_seconds = time.perf_counter() - start

    sample: list[pa.RecordBatch] = []
    fullest: dict[str, int] = {}
    join_seconds, done = 0.0, 0  # the join's time only, without generating the sales

    with description.open(master, on="product_id", select=["price", "supplier_id"]) as run:

        def take(work: Callable[..., Iterator[pa.RecordBatch]], *arguments: pa.RecordBatch) -> None:
            nonlocal join_seconds, fullest
            start = time.perf_counter()
            for batch in work(*arguments):
                if sum(piece.num_rows for piece in sample) < SAMPLE_ROWS:
                    sample.append(batch.slice(0, SAMPLE_ROWS))
            join_seconds += time.perf_counter() - start
            if run.memory.total >= sum(fullest.values()):
                fullest = dict(run.memory)

        for sold in sales(tuples, rows, exponent=exponent, scattered=True):
            take(run.push, sold)
            done += sold.num_rows
            progress("joining sales", done, tuples)
        take(run.flush)
        return DemoResult(
            master_rows=master.num_rows,
            master_pages=master.num_pages,
            master_bytes=master.nbytes,
            build_seconds=build_seconds,
            join_seconds=join_seconds,
            stats=run.stats.as_dict(),
            memory=fullest,
            budget=run.memory.budget,
            sample=pa.Table.from_batches(sample).slice(0, SAMPLE_ROWS),
        )


def show_engine(rows: int, tuples: int, memory: str, join: str, exponent: float) -> None:
    """Run the demo with progress bars and print the result."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console()
    with (
        tempfile.TemporaryDirectory(prefix="semistream-demo-") as folder,
        Progress(
            TextColumn("{task.description:<26}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        ) as bars,
    ):
        tasks = {}

        def show(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bars.add_task(step, total=total)
            bars.update(tasks[step], completed=done)

        result = run_demo(rows, tuples, memory, join, exponent, Path(folder), show)
    _print(result, join, console)


def _print(result: DemoResult, join: str, console: Console) -> None:
    from rich.table import Table

    from semistream.memory import format_size

    stats = result.stats
    console.print(
        f"\nmaster table  {result.master_rows:,} rows, {format_size(result.master_bytes)}, "
        f"{result.master_pages:,} pages, built in {result.build_seconds:.1f} s"
    )
    console.print(
        f"{join:<13} {stats['tuples_in']:,} tuples in {result.join_seconds:.2f} s = "
        f"[bold]{result.tuples_per_second:,.0f} tuples/s[/bold]"
    )
    console.print(
        f"front stage   {result.hit_rate:.1%} hit rate\n"
        f"disk          {stats['pages_read']:,} pages, {format_size(stats['bytes_read'])}\n"
        f"output        {stats['rows_out']:,} rows; {stats['matched']:,} matched, "
        f"{stats['unmatched']:,} unmatched, {stats['waiting']:,} waiting"
    )

    used = sum(result.memory.values())
    table = Table("peak memory", "bytes", "of the budget", title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for component, nbytes in result.memory.items():
        table.add_row(component, format_size(nbytes), f"{nbytes / result.budget:.1%}")
    table.add_section()
    table.add_row(
        "total", format_size(used), f"{used / result.budget:.1%} of {format_size(result.budget)}"
    )
    console.print(table)

    rows = Table(*result.sample.column_names, title="sample of the output", title_justify="left")
    for row in result.sample.to_pylist():
        rows.add_row(*map(str, row.values()))
    console.print(rows)
