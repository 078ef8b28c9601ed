"""What the commands of the benchmarks share: options, a progress bar, the verdict at the end."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import semistream as ss
from lab import machine
from lab.build_once import DATA
from lab.tables import TROUBLES

RESULTS = Path(__file__).resolve().parent / "results"


def parser(description: str | None, sizes: Iterable[str]) -> argparse.ArgumentParser:
    """With the options that every benchmark of cells has."""
    made = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    made.add_argument("--size", choices=sorted(sizes), default="full")
    made.add_argument("--rows", help="sizes of R, comma-separated, instead of the size's own")
    made.add_argument("--strict", action="store_true", help="a missed target always counts")
    made.add_argument("--keep", action="store_true", help="keep the tables")
    made.add_argument("--data", default=str(DATA), help="folder of generated tables")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--out", help="path of the JSON results")
    return made


def warn_if_busy(console: Console, effect: str = "rates are too low") -> None:
    load = machine.load()[0]
    if load > 1.0:
        console.print(f"[yellow]the machine is busy (load {load}): {effect}[/yellow]")


class Bar:
    """A progress bar over cells."""

    def __init__(self, progress: Progress, total: int, name: Callable[[Any], str]) -> None:
        self._progress, self._name = progress, name
        self._task = progress.add_task("measuring", total=total)

    def log(self, line: str) -> None:
        self._progress.update(self._task, description=line)

    def done(self, cell: dict[str, Any]) -> None:
        self._progress.update(self._task, advance=1, description=self._name(cell))
        trouble = next((cell[name] for name in TROUBLES if name in cell), None)
        if trouble:
            self._progress.console.print(f"[red]{self._name(cell)}: {trouble}[/red]")


@contextmanager
def measuring(console: Console, total: int, name: Callable[[Any], str]) -> Iterator[Bar]:
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        yield Bar(progress, total, name)


def verdict(console: Console, report: dict[str, Any], out: Path, targets_count: bool) -> int:
    """Print how it went. Returns the exit code: 1 for a wrong answer, a failed cell, or a missed
    target if targets count."""
    missed = [target for target in report["targets"] if not target["met"]]
    console.print(f"{len(report['targets'])} targets, {len(missed)} missed")
    console.print(f"{report['seconds']:.0f} s; results written to {out}")
    failed = any("wrong" in cell or "error" in cell for cell in report["cells"])
    return 1 if failed or (missed and targets_count) else 0


class CellLike(Protocol):
    __dataclass_fields__: Any


def measured(cell: CellLike, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result of a cell on one core, with what it is. Never raises: a failure is part of it."""
    core = machine.pin_to_one_core()
    pa.set_cpu_count(1)
    about = {name: value for name, value in asdict(cell).items() if name != "root"}
    result: dict[str, Any] = {**about, "core": core, "load": machine.load()}
    began = time.perf_counter()
    try:
        result |= measure()
    except ss.BudgetError as error:
        result["refused"] = str(error)
    except Exception as error:
        result["error"] = f"{type(error).__name__}: {error}"
    result["wall_seconds"] = round(time.perf_counter() - began, 2)
    result["cell_processor_seconds"] = round(time.process_time(), 2)
    return result
