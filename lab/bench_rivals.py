"""The rivals benchmark: semistream's joins beside the alternatives that users choose.

    python -m lab.bench_rivals --size small                    # a few minutes
    python -m lab.bench_rivals --size full                     # hours; can be stopped and resumed
    python -m lab.bench_rivals --size full --slices memory --rivals lmdb,rocksdb

Each cell runs in a separate process, on one core, under the same memory limit. Every column of
every answer is checked. Results are saved per cell: a cell that is already in the file is measured
again only with ``--again``, so a long run can be split. JSON goes to
lab/results/rivals.json; ``--publish`` puts the table into docs/rivals.md and draws
docs/rivals.png. The exit code is 1 if any answer is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lab import machine, rivals
from lab.command import RESULTS, warn_if_busy
from lab.rivals import grid, launch, plot, report
from lab.rivals.cell import Cell
from lab.rivals.data import RivalData

DOCS = Path(__file__).resolve().parent.parent / "docs"
PACKAGES = (
    *machine.PACKAGES,
    "adbc-driver-postgresql",
    "duckdb",
    "pgserver",
    "polars",
    "pyspark",
    "rocksdict",
)


class Results:
    """The JSON file: cells by their key, and every run that added to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cells: dict[str, dict[str, Any]] = {}
        self.runs: list[dict[str, Any]] = []
        self.left_out: dict[str, str] = {}
        if path.exists():
            held = json.loads(path.read_text())
            self.cells = {cell["key"]: cell for cell in held["cells"]}
            self.runs, self.left_out = held["runs"], held["left_out"]

    def save(self) -> None:
        """Save atomically: a run that is stopped loses at most one cell."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_suffix(".unfinished")
        held = {"runs": self.runs, "left_out": self.left_out, "cells": list(self.cells.values())}
        unfinished.write_text(json.dumps(held, indent=1) + "\n")
        os.replace(unfinished, self.path)


def installed(names: list[str], results: Results, console: Console) -> list[str]:
    """The rivals that are installed; the others are reported on screen and in the table."""
    found = []
    for name in names:
        absent = rivals.missing(rivals.rival(name))
        if absent:
            results.left_out[name] = f"not installed: {', '.join(absent)}"
            console.print(f"[yellow]{name} is skipped: {results.left_out[name]}[/yellow]")
        else:
            results.left_out.pop(name, None)
            found.append(name)
    return found


def measure(cells: list[Cell], results: Results, limit: str, console: Console) -> None:
    """Measure all cells, saving after each."""
    run = {**machine.describe(PACKAGES), "measured": 0}
    results.runs.append(run)
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("measuring", total=len(cells))
        for cell in cells:
            bar.update(task, description=cell.name)
            kind = rivals.rival(cell.rival)
            data = RivalData(cell.rows, cell.seed)
            store = launch.prepare(kind, cell.variant, data, bar.console.print)
            result = launch.run(cell, limit, store)
            results.cells[cell.key] = {**result, "run": len(results.runs) - 1}
            run |= {"measured": run["measured"] + 1, "load_after": machine.load()}
            results.save()
            bar.advance(task)
            bar.console.print(f"{cell.key}: {report.said(result)}", highlight=False)


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    signal.signal(
        signal.SIGTERM, lambda number, frame: sys.exit(143)
    )  # also terminates the running cell
    size, console = grid.SIZES[options.size], Console()
    results = Results(Path(options.out) if options.out else RESULTS / size.file)
    names = installed(_names(options.rivals, list(rivals.ADAPTERS), "rival"), results, console)
    slices = size.slices()
    chosen = _names(options.slices, list(slices), "slice")
    points = size.everything() if options.all else [p for name in chosen for p in slices[name]]
    cells = list(grid.cells(size, points, names, options.seed))
    if options.variants:
        known = sorted({cell.variant for cell in cells})
        variants = _names(options.variants, known, "variant", mark=";")
        cells = [cell for cell in cells if cell.variant in variants]
    if not options.again:
        cells = [cell for cell in cells if cell.key not in results.cells]
    warn_if_busy(console)
    began = time.perf_counter()
    if cells:
        measure(cells, results, options.limit, console)
    results.save()
    report.show(results, size, console)
    if options.publish:
        report.publish(results, size, DOCS / "rivals.md")
        plot.ratios(results, size, DOCS / "rivals.png")
        console.print(f"written to rivals.md and rivals.png in {DOCS}")
    seconds = time.perf_counter() - began
    console.print(f"{len(cells)} cells in {seconds:.0f} s; {results.path}")
    return 1 if any(report.is_wrong(cell) for cell in results.cells.values()) else 0


def _names(text: str | None, known: list[str], what: str, mark: str = ",") -> list[str]:
    names = text.split(mark) if text else known
    for name in names:
        if name not in known:
            sys.exit(f"unknown {what} {name!r}; choose from {', '.join(known)}")
    return names


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=sorted(grid.SIZES), default="full")
    parser.add_argument("--rivals", help="names, comma-separated; default: all")
    parser.add_argument("--variants", help="only these variants, separated by semicolons")
    parser.add_argument("--slices", help="centre, memory, rows, batch, exponent, cold")
    parser.add_argument("--all", action="store_true", help="the full grid instead of slices")
    parser.add_argument("--again", action="store_true", help="also repeat cells that have results")
    parser.add_argument(
        "--limit", default="auto", choices=["auto", "cgroup v1", "cgroup v2", "rlimit", "none"]
    )
    parser.add_argument("--publish", action="store_true", help="update docs/rivals.md and its plot")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="path of the JSON results")
    return parser


if __name__ == "__main__":
    sys.exit(main())
