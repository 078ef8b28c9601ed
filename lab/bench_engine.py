"""The engine benchmark: every join, every budget, and the usual alternative.

    python -m lab.bench_engine --size small      # under a minute
    python -m lab.bench_engine --size full       # R = 20 million rows; targets apply here

R is cached under .data/. Each cell runs in a fresh process pinned to one core. Results go to
lab/results/engine.json (small: engine-small.json) and to the screen. The exit code is 1 when an
answer is wrong or, at full size, when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import semistream as ss
from lab import engine_report, fresh_process, machine
from lab.command import RESULTS, warn_if_busy
from lab.engine_cell import ALTERNATIVES, Cell, measure
from lab.engine_data import EngineData
from lab.engine_targets import FOUR, PUSH, SMALL_PUSH, Rates, verdicts

FULL_ROWS = 20_000_000
SLOW = ("inlj", "cinlj")  # one page per tuple: fewer tuples, and a limit on time


@dataclass(frozen=True)
class Size:
    """The size of each cell; slow joins get a twentieth of the tuples."""

    rows: int
    check_tuples: int
    warm_tuples: int
    warm_seconds: float
    tuples: int
    seconds: float
    file: str
    percents: tuple[float, ...] = (1.0, 5.0, 10.0)
    direct_percents: tuple[float, ...] = (1.0, 5.0, 10.0)


SIZES = {
    "full": Size(FULL_ROWS, 500_000, 4_000_000, 15.0, 12_000_000, 5.0, "engine.json"),
    "small": Size(
        1_000_000, 20_000, 200_000, 0.15, 400_000, 0.15, "engine-small.json", (1.0, 10.0), (10.0,)
    ),
}


def plan(
    size: Size, joins: list[str], percents: list[float], modes: list[str], seed: int
) -> list[Cell]:
    """All cells: the joins in both I/O modes, the alternatives, then the small pushes."""

    def cell(join: str, percent: float, direct: bool, push: int) -> Cell:
        share = 20 if join in SLOW else 1
        return Cell(
            join=join,
            rows=size.rows,
            seed=seed,
            percent=percent,
            direct=direct,
            push=push,
            check_tuples=size.check_tuples // share,
            warm_tuples=size.warm_tuples // share,
            warm_seconds=size.warm_seconds,
            tuples=size.tuples // share,
            seconds=size.seconds,
        )

    cells = [cell(name, percent, False, PUSH) for percent in percents for name in ALTERNATIVES]
    if "warm" in modes:
        cells += [cell(name, percent, False, PUSH) for percent in percents for name in joins]
    if "direct" in modes:
        chosen = [percent for percent in percents if percent in size.direct_percents] or percents
        cells += [cell(name, percent, True, PUSH) for percent in chosen for name in joins]
    pushers = [name for name in joins if size.rows >= FULL_ROWS or name in (*FOUR, "sweepjoin")]
    cells += [cell(name, max(percents), False, SMALL_PUSH) for name in pushers]
    return cells


def run_cell(cell: Cell) -> dict[str, Any]:
    """Measure in a fresh process."""
    return fresh_process.run(measure, cell)


def run(
    size: Size, cells: list[Cell], seed: int, done: Callable[[Cell, dict[str, Any]], None]
) -> dict[str, Any]:
    """Measure all cells; ``done`` is called after each. Returns the report, JSON-serializable."""
    fresh_process.preload()
    began = time.perf_counter()
    about = machine.describe()
    results = []
    for cell in cells:
        result = run_cell(cell)
        results.append(result)
        done(cell, result)
    judged = verdicts(Rates(results)) if size.rows >= FULL_ROWS else []
    return {
        "seed": seed,
        "rows": size.rows,
        "seconds": round(time.perf_counter() - began, 1),
        "machine": {**about, "load_after": machine.load()},
        "targets": [{**vars(verdict), "met": verdict.met} for verdict in judged],
        "cells": results,
    }


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    size, console = SIZES[options.size], Console()
    joins = options.joins.split(",") if options.joins else list(ss.ALGORITHMS)
    percents = list(size.percents)
    if options.percents:
        percents = [float(percent) for percent in options.percents.split(",")]
    cells = plan(size, joins, percents, options.modes.split(","), options.seed)
    data = EngineData(size.rows, options.seed)
    with console.status("preparing the data"):
        data.prepare(console.print)
        data.warm()
    warn_if_busy(console)
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("measuring", total=len(cells))

        def done(cell: Cell, result: dict[str, Any]) -> None:
            bar.update(task, advance=1, description=cell.name)
            trouble = result.get("wrong") or result.get("error") or result.get("refused")
            if trouble:
                bar.console.print(f"[red]{cell.name}: {trouble}[/red]")

        report = run(size, cells, options.seed, done)
    out = Path(options.out) if options.out else RESULTS / size.file
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n")
    engine_report.show(report, console)
    console.print(f"{report['seconds']:.0f} s; results written to {out}")
    wrong = any("wrong" in cell or "error" in cell for cell in report["cells"])
    missed = options.size == "full" and not all(target["met"] for target in report["targets"])
    return 1 if wrong or missed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=sorted(SIZES), default="full")
    parser.add_argument("--joins", help="names, comma-separated; default: all")
    parser.add_argument("--percents", help="budgets in percent of R, such as 1,5,10")
    parser.add_argument("--modes", default="warm,direct", help="warm, direct or both")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="path of the JSON results")
    return parser


if __name__ == "__main__":
    sys.exit(main())
