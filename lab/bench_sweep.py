"""The SweepJoin benchmark: SweepJoin against the published joins, its peers and the hardware limit.

    python -m lab.bench_sweep                       # everything, about an hour
    python -m lab.bench_sweep --parts cells,limit   # some of it; results of other parts are kept

Parts: ``cells`` (budgets x exponents x order of ranks, with the published joins), ``peers`` (an
LRU in front of LMDB, DuckDB, Polars), ``limit`` (the processor's and the disk's floor), ``size``
(R from 2 to 50 million rows), ``wait`` (how long a tuple waits), ``cores`` (two processes, and
one on two cores). Default: direct I/O, one core. Every answer is checked. Results
go to lab/results/sweep.json. The exit code is 1 when an answer is wrong or a target is missed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import semistream as ss
from lab import machine, sweep_targets
from lab.bench_engine import RESULTS, SLOW, run_cell
from lab.engine_cell import PUSH, Cell
from lab.engine_data import EngineData
from lab.sweep_parts import cores, limit, peers, wait

PARTS = ("cells", "peers", "limit", "size", "wait", "cores")
PERCENTS, EXPONENTS = (1.0, 2.0, 5.0, 10.0), (0.0, 0.5, 1.0)
PUBLISHED = [name for name in ss.ALGORITHMS if name != "sweepjoin"]
MILLIONS = (2, 5, 10, 20, 50)
FULL_ROWS = 20_000_000


def cell(join: str, rows: int, percent: float, seed: int, exponent: float, scattered: bool) -> Cell:
    ours, slow = join == "sweepjoin", join in SLOW
    return Cell(
        join=join,
        rows=rows,
        seed=seed,
        percent=percent,
        direct=True,
        push=PUSH,
        check_tuples=3_000 if slow else 300_000,
        warm_tuples=40_000_000 if ours else 12_000_000,
        warm_seconds=12.0 if ours else 4.0 if slow else 7.0,
        tuples=8_000_000,
        seconds=2.5,
        exponent=exponent,
        scattered=scattered,
    )


def planned(part: str, rows: int, seed: int, joins: list[str]) -> list[Cell]:
    """The engine cells of a part."""
    if part == "cells":
        return [
            cell(join, rows, percent, seed, exponent, scattered)
            for percent in PERCENTS
            for exponent in EXPONENTS
            for scattered in (True, False)
            for join in ["sweepjoin", *joins]
        ]
    if part == "size":
        return [cell("sweepjoin", n * 1_000_000, 5.0, seed, 1.0, True) for n in MILLIONS]
    return []


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    console, out = Console(), Path(options.out)
    parts = options.parts.split(",")
    joins = options.joins.split(",") if options.joins else PUBLISHED
    data = EngineData(options.rows, options.seed)
    data.prepare(console.print, lmdb="peers" in parts)
    report: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    multiprocessing.get_context("forkserver").set_forkserver_preload(["lab.engine_preload"])
    for part in parts:
        if options.percents and part == "cells":
            keep = {float(percent) for percent in options.percents.split(",")}
            cells = [
                c for c in planned(part, options.rows, options.seed, joins) if c.percent in keep
            ]
        else:
            cells = planned(part, options.rows, options.seed, joins)
        if part == "size":
            for one in cells:
                EngineData(one.rows, one.seed).prepare(console.print, lmdb=False)
        about = machine.describe()
        result: Any = _measured(part, cells, console) if cells else _other(part, data)
        if part == "cells" and options.percents and part in report:
            old = [c for c in report[part]["result"] if c["percent"] not in keep]
            result = old + result
        report[part] = {"machine": {**about, "load_after": machine.load()}, "result": result}
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(report, indent=1) + "\n")
    judged = sweep_targets.verdicts(report)
    console.print(_table(judged))
    wrong = [
        c for p in ("cells", "size") for c in report.get(p, {}).get("result", ()) if "wrong" in c
    ]
    return 1 if wrong or not all(verdict.met for verdict in judged) else 0


def _measured(part: str, cells: list[Cell], console: Console) -> list[dict[str, Any]]:
    results = []
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task(part, total=len(cells))
        for one in cells:
            result = run_cell(one)
            results.append({k: v for k, v in result.items() if k != "memory"})
            trouble = result.get("wrong") or result.get("error") or result.get("refused")
            bar.console.print(f"{one.name}: {trouble or format(result['rate'] / 1e6, '.3f')}")
            bar.update(task, advance=1)
    return results


def _other(part: str, data: EngineData) -> Any:
    base = cell("sweepjoin", data.rows, 10.0, data.seed, 1.0, True)
    if part == "peers":
        return peers(data, replace(base, direct=False))
    if part == "limit":
        # Long enough for memory to move between window and front stage: a second or two.
        return limit(data, replace(base, warm_tuples=150_000_000, warm_seconds=30.0), PERCENTS)
    return {"wait": wait, "cores": cores}[part](data, base)


def _table(judged: list[Any]) -> Table:
    table = Table(title="SweepJoin's targets", box=box.SIMPLE_HEAD)
    for column in ("target", "wanted", "measured", ""):
        table.add_column(column)
    for verdict in judged:
        table.add_row(
            verdict.target,
            verdict.wanted,
            "-" if verdict.value is None else f"{verdict.value:.3g}",
            "met" if verdict.met else "[red]missed[/red]",
        )
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--joins", help="published joins to compare with; default: all nine")
    parser.add_argument("--percents", help="only these budgets, in percent of R")
    parser.add_argument("--rows", type=int, default=FULL_ROWS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default=str(RESULTS / "sweep.json"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
