"""The drain benchmark: batches that are pushed and flushed one by one, as a Spark task does.

    python -m lab.bench_drain --size small      # R = 200,000 rows, two minutes
    python -m lab.bench_drain                   # R = 20 million rows
    python -m lab.bench_drain --rows 2000000 --joins sweepjoin,inlj,cinlj --modes mapped

Beside each join, an LRU of equal memory in front of LMDB is given the same batches in turns; beside
inlj and cinlj, LMDB alone, asked for every tuple. Joins that read with direct I/O are measured a
second time beside LMDB whose rows are dropped from the page cache before every batch. R is
the engine benchmark's; if this run had to build it, it is deleted afterwards unless ``--keep`` is
given. Results go to lab/results/drain.json (small: drain-small.json); `python -m lab.bench_tables`
writes them into the docs. The exit code is 1 if an answer is wrong, a cell fails or a target is
missed; at the small size targets are shown but do not count, unless ``--strict`` is given.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

import semistream as ss
from lab import command, fresh_process, machine, page_cache
from lab.build_once import DATA
from lab.command import RESULTS
from lab.drain import report as reports
from lab.drain.cell import MODES, Cell, measure
from lab.engine_data import EngineData
from lab.names import chosen
from lab.tables import save

BATCHES = (1, 100, 1_000, 10_000, 100_000, 1_000_000)
ONE_BY_ONE_BATCHES = (1, 1_000)
TIME_LIMIT = 900.0  # seconds for a cell
SLOW_SHARE = 50  # joins that read a page for every tuple are warmed up with smaller pushes


@dataclass(frozen=True)
class Size:
    """Sizes and time limits of the cells."""

    rows: tuple[int, ...]
    percents: tuple[float, ...]
    largest_batch: int
    push: int
    chunk: int
    warm_seconds: float
    seconds: float
    file: str
    counts: bool  # whether a missed target is an error


SIZES = {
    "full": Size(
        rows=(20_000_000,),
        percents=(1.0, 10.0),
        largest_batch=1_000_000,
        push=50_000,
        chunk=1_000_000,
        warm_seconds=30.0,
        seconds=10.0,
        file="drain.json",
        counts=True,
    ),
    "small": Size(
        rows=(200_000,),
        percents=(10.0,),
        largest_batch=100_000,
        push=10_000,
        chunk=50_000,
        warm_seconds=1.0,
        seconds=1.0,
        file="drain-small.json",
        counts=False,
    ),
}


def plan(
    size: Size, joins: list[str], modes: list[str], batches: list[int], seed: int, root: Path = DATA
) -> list[Cell]:
    """All cells: every join with every budget and mode."""
    cells = []
    for rows in size.rows:
        for percent in size.percents:
            for mode in modes:
                for join in joins:
                    is_slow = join in reports.ONE_BY_ONE
                    share = SLOW_SHARE if is_slow else 1
                    asked = ONE_BY_ONE_BATCHES if is_slow else batches
                    cells.append(
                        Cell(
                            join=join,
                            rows=rows,
                            percent=percent,
                            mode=mode,
                            batches=tuple(n for n in asked if n <= size.largest_batch),
                            seed=seed,
                            push=max(1, size.push // share),
                            chunk=max(1, size.chunk // share),
                            warm_seconds=size.warm_seconds,
                            seconds=size.seconds,
                            most_batches=2_000,
                            root=str(root),
                        )
                    )
    return cells


def run(
    cells: list[Cell],
    keep: bool,
    out: Path,
    log: Callable[[str], None],
    done: Callable[[Any], None],
) -> dict[str, Any]:
    """Measure all cells, saving after each; R of one number of rows is on disk at a time."""
    fresh_process.preload()
    began, about = time.perf_counter(), machine.describe()
    results: list[dict[str, Any]] = []
    report: dict[str, Any] = {}
    held: EngineData | None = None  # a table that this run has built
    read: EngineData | None = None  # the table in the page cache
    try:
        for cell in cells:
            if held is not None and held != cell.data:
                held = _delete(held, keep)
            if not cell.data.is_prepared:
                held = cell.data
            cell.data.prepare(log)
            if cell.data != read:
                # Read anew, the page cache holds the files in large folios, whatever ran before:
                # mapping small ones takes several times as long.
                page_cache.drop(cell.data.folder)
                read = cell.data
            cell.data.warm()
            load = machine.load()
            found = fresh_process.run(measure, cell, TIME_LIMIT)
            found.pop("root", None)  # of this machine
            results.append({"load": load, **found})
            done(results[-1])
            report = {
                "seconds": round(time.perf_counter() - began, 1),
                "machine": {**about, "load_after": machine.load()},
                "targets": [{**vars(one), "met": one.met} for one in reports.verdicts(results)],
                "cells": results,
            }
            save(report, out)
    finally:
        _delete(held, keep)
    return report


def _delete(data: EngineData | None, keep: bool) -> None:
    if data is not None and not keep:
        shutil.rmtree(data.folder, ignore_errors=True)


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    size, console = SIZES[options.size], Console()
    out = Path(options.out) if options.out else RESULTS / size.file
    joins = chosen(options.joins, list(ss.ALGORITHMS), "join", ["sweepjoin"])
    modes = chosen(options.modes, list(MODES), "mode", MODES)
    if options.rows:
        size = replace(size, rows=tuple(int(count) for count in options.rows.split(",")))
    if options.percents:
        size = replace(size, percents=tuple(float(part) for part in options.percents.split(",")))
    if options.seconds:
        size = replace(size, seconds=options.seconds, warm_seconds=3 * options.seconds)
    batches = [int(count) for count in options.batches.split(",")] if options.batches else BATCHES
    cells = plan(size, joins, modes, list(batches), options.seed, Path(options.data))
    command.warn_if_busy(console, "times are too long")
    with command.measuring(console, len(cells), reports.where) as bar:
        report = run(cells, options.keep, out, bar.log, bar.done)
    reports.grid(report["cells"]).show(console, "batches drained one by one, one core")
    return command.verdict(console, report, out, size.counts or options.strict)


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(__doc__, SIZES)
    parser.add_argument("--percents", help="budgets in percent of R, such as 1,10")
    parser.add_argument("--joins", help="names, comma-separated, or all; default: sweepjoin")
    parser.add_argument("--modes", help=f"comma-separated; default: {','.join(MODES)}")
    parser.add_argument("--batches", help="tuples in a batch, comma-separated")
    parser.add_argument(
        "--seconds", type=float, help="time for a batch size; the warm-up may take three times it"
    )
    return parser


if __name__ == "__main__":
    fresh_process.exit_when_terminated()
    sys.exit(main())
