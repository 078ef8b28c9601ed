"""``semistream tune``: name a memory or a rate, get the join and the sizes of its parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from semistream.errors import ConfigError, SemistreamError
from semistream.memory import format_size

if TYPE_CHECKING:
    from semistream.tuning import TuningPlan

app = typer.Typer(add_completion=False)
_out = Console()
_MOST_ROWS = 200_000  # of a sample


@dataclass(frozen=True)
class Result:
    """What the command found."""

    plan: TuningPlan
    case: Any  # the input of the models, for curves


def read_sample(path: Path, most: int = _MOST_ROWS) -> Any:
    """The first tuples of a Parquet or Arrow IPC file, or of a folder of Parquet files."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    if not path.exists():
        raise ConfigError(f"--sample {path}: there is no such file")
    format_ = "ipc" if path.suffix in (".arrow", ".feather", ".ipc") else "parquet"
    try:
        return ds.dataset(str(path), format=format_).head(most)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"--sample {path}: not a {format_} file ({reason})") from error


def find_plan(
    table: Path,
    sample: Path,
    on: list[str],
    memory: str | None = None,
    rate: float | None = None,
    max_wait: str | None = None,
    how: str = "inner",
    batch: int = 50_000,
    drained: bool = False,
    direct: bool = False,
    progress: Any = None,
) -> Result:
    """Tune for a table and a sample in files."""
    from semistream.cost import Case
    from semistream.joins import open_source
    from semistream.tuning import tune
    from semistream.tuning.sample import observe
    from semistream.tuning.tuner import machine_for

    source, rows, key = open_source(table), read_sample(sample), _key(on)
    machine = machine_for(source, progress)
    plan = tune(
        source, sample=rows, on=key, memory=memory, rate=rate, max_wait=max_wait, how=how,
        direct=direct, push=batch, drained=drained, machine=machine,
    )  # fmt: skip
    seen = observe(
        source, rows, key, how=how, direct=direct, push=batch, drained=drained, lookups=False
    )
    return Result(plan, Case(plan.join, seen.table, seen.stream, seen.traffic, machine))


def _key(on: list[str]) -> Any:
    """``name`` or ``stream=master``, several times for several columns."""
    pairs = [part.split("=", 1) for part in on]
    return {pair[0]: pair[-1] for pair in pairs}


@contextmanager
def progress_bar() -> Iterator[Any]:
    """A bar that appears when something is measured."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("calibrating: {task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=_out, transient=True) as bar:
        tasks: list[Any] = []

        def report(done: int, total: int, what: str) -> None:
            if not tasks:
                tasks.append(bar.add_task(what, total=total))
            bar.update(tasks[0], completed=done, description=what)

        yield report


@app.command()
def tune(
    table: Path = typer.Argument(..., help="Master table."),
    sample: Path | None = typer.Option(None, help="Stream tuples: a Parquet or Arrow file."),
    on: list[str] = typer.Option([], help="Key column, or STREAM=MASTER; repeat for several."),
    memory: str | None = typer.Option(None, help="Budget, such as 200MB: serve the most."),
    rate: float | None = typer.Option(None, help="Tuples per second: use the least memory."),
    max_wait: str | None = typer.Option(None, help="Longest wait of a tuple, such as 2s."),
    how: str = typer.Option("inner", help="inner, left, left_semi or left_anti."),
    batch: int = typer.Option(50_000, help="Tuples per batch."),
    drained: bool = typer.Option(False, help="Each batch is drained, as in a Spark task."),
    direct: bool = typer.Option(False, help="Reads bypass the page cache."),
    calibrate: bool = typer.Option(False, "--calibrate", help="Measure this machine first."),
    plot: Path | None = typer.Option(None, help="Write the curves to this picture."),
) -> None:
    """Choose the join and the sizes of its parts for a table, a stream and a budget."""
    try:
        if calibrate:
            _calibrate(table)
            if sample is None:
                return
        if sample is None or not on:
            raise ConfigError("give --sample FILE and --on COLUMN, or --calibrate")
        with progress_bar() as report:
            result = find_plan(
                table, sample, on, memory, rate, max_wait, how, batch, drained, direct, report
            )
        _print(result)
        if plot is not None:
            from semistream.tuning.curves import curves, draw

            draw(curves(result.case, result.plan), result.plan, plot)
            _out.print(f"plot written to {escape(str(plot))}")
    except SemistreamError as error:
        Console(stderr=True).print(f"error: {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(2) from error


def _calibrate(table: Path) -> None:
    from semistream.joins import open_source
    from semistream.tuning.calibrate import calibrate
    from semistream.tuning.calibration_file import FILE, load

    source = open_source(table)
    before = load(source)
    if before.problem:
        _out.print(f"the old calibration is not used: {escape(before.problem)}")
    with progress_bar() as report:
        calibrate(source, report)
    _out.print(f"calibrated; written to {escape(str(table / FILE))}")


def _print(result: Result) -> None:
    from semistream.tuning.plan import format_rate, format_seconds

    plan = result.plan
    table = Table(box=None, pad_edge=False)
    for name in ("join", "rate", "memory", "in memory", "wait", "longest"):
        table.add_column(name, justify="left" if name == "join" else "right", no_wrap=True)
    for number, (join, found) in enumerate([(plan.join, plan.prediction), *plan.others]):
        table.add_row(
            join.name,
            format_rate(found.rate),
            format_size(join.memory),
            f"{found.front_share:.0%}",
            format_seconds(found.wait.expected),
            format_seconds(found.wait.longest),
            style="bold" if number == 0 else None,
        )
    _out.print(table)
    _out.print()
    _out.print(escape(str(plan)), soft_wrap=True)
    _out.print()
    _out.print("In a pipeline file:", escape(plan.yaml()), sep="\n")
