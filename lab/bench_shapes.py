"""The shapes benchmark: master tables of many key types, columns and layouts.

    python -m lab.bench_shapes --size small      # R = 200,000 rows, a few minutes
    python -m lab.bench_shapes --size full       # R = 2 and 20 million rows, hours
    python -m lab.bench_shapes --rows 2000000 --joins sweepjoin,cmeshjoin --shapes int64,text,uuid
    python -m lab.bench_shapes --rows 2000000 --prepare     # only build the tables
    python -m lab.bench_shapes --shapes wide --add           # beside the results that are there

Each cell runs in a fresh process pinned to one core. Every shape is compared with a second
measurement of int64 that is taken beside it. Tables are built one at a time under .data/ and
deleted when their cells are done, unless ``--keep`` is given. Results are saved after every table
in lab/results/shapes.json (small: shapes-small.json); `python -m lab.bench_tables` writes them into
the docs. The exit code is 1 if an answer is wrong, a cell fails or a target is missed; at the small
size targets are shown but do not count, unless ``--strict`` is given.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

import semistream as ss
from lab import command, fresh_process, machine
from lab.build_once import DATA
from lab.command import RESULTS
from lab.names import chosen
from lab.shapes import report as reports
from lab.shapes.catalogue import REFERENCE, SHAPES
from lab.shapes.cell import RIVAL, SLOW, Cell, measure
from lab.shapes.data import ShapeData
from lab.shapes.targets import OURS, verdicts
from lab.tables import save


@dataclass(frozen=True)
class Size:
    """Sizes and time limits of the cells."""

    rows: tuple[int, ...]
    push: int
    chunk: int
    check_tuples: int
    warm_seconds: float
    seconds: float
    file: str
    counts: bool  # whether a missed target is an error
    joins: tuple[str, ...]


SIZES = {
    "full": Size(
        rows=(2_000_000, 20_000_000),
        push=50_000,
        chunk=1_000_000,
        check_tuples=200_000,
        warm_seconds=20.0,
        seconds=5.0,
        file="shapes.json",
        counts=True,
        joins=tuple(ss.ALGORITHMS),
    ),
    "small": Size(
        rows=(200_000,),
        push=10_000,
        chunk=50_000,
        check_tuples=20_000,
        warm_seconds=0.5,
        seconds=0.3,
        file="shapes-small.json",
        counts=False,
        joins=("sweepjoin", "cmeshjoin", "chybridjoin", "hybridjoin"),
    ),
}
TIME_LIMIT = 300.0  # seconds for a cell: a scan of 20 million rows by a slow path takes minutes
PLACE = ("shape", "join", "rows", "percent", "seed", "beside")  # what is measured
SLOW_SHARE = 50  # joins that read a page for every tuple get smaller pushes and chunks


@dataclass(frozen=True)
class Group:
    """The cells of one shape at one size; its table is needed only while they are measured."""

    data: ShapeData
    cells: list[Cell]

    @property
    def with_lmdb(self) -> bool:
        return any(cell.join == RIVAL for cell in self.cells)


def plan(
    size: Size,
    rows: list[int],
    percents: list[float],
    shapes: list[str],
    joins: list[str],
    seed: int,
    root: Path = DATA,
) -> list[Group]:
    """All cells, by table. Int64 is measured once more beside every other shape."""
    groups = []
    for count in rows:
        for name in dict.fromkeys([REFERENCE, *shapes]):
            cells = []
            for percent in percents:
                base = Cell(
                    name,
                    OURS,
                    count,
                    percent,
                    seed,
                    size.push,
                    size.chunk,
                    size.check_tuples,
                    size.warm_seconds,
                    size.seconds,
                    root=str(root),
                )
                if name != REFERENCE and OURS in joins:
                    cells.append(replace(base, shape=REFERENCE, is_reference=True, beside=name))
                cells += [_sized(replace(base, join=join)) for join in joins]
            groups.append(Group(ShapeData.named(name, count, seed, root), cells))
    return groups


def _sized(cell: Cell) -> Cell:
    if cell.join not in SLOW:
        return cell
    push, chunk = max(1, cell.push // SLOW_SHARE), max(1, cell.chunk // SLOW_SHARE)
    checked = max(1, cell.check_tuples // SLOW_SHARE)
    return replace(cell, push=push, chunk=chunk, check_tuples=checked)


def run(
    groups: list[Group],
    keep: bool,
    out: Path,
    log: Callable[[str], None],
    done: Callable[[Any], None],
    earlier: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Measure all cells, building and deleting tables on the way; results are saved per table.

    The cells of an ``earlier`` report stay, but for those that are measured again.
    """
    fresh_process.preload()
    began, about = time.perf_counter(), machine.describe()
    report = earlier or {"seconds": 0.0, "cells": []}
    spent_before, results = report["seconds"], _without(report["cells"], groups)
    held: list[ShapeData] = []
    try:
        for group in groups:
            data = group.data
            held = _discard(held, data, keep)
            held.append(data)
            data.prepare(log, group.with_lmdb)
            data.warm()
            for cell in group.cells:
                load = machine.load()
                found = fresh_process.run(measure, cell, TIME_LIMIT)
                found.pop("root", None)  # of this machine
                results.append({"load": load, **found})
                done(results[-1])
            report = {
                "seconds": round(spent_before + time.perf_counter() - began, 1),
                "machine": {**about, "load_after": machine.load()},
                "targets": [{**vars(verdict), "met": verdict.met} for verdict in verdicts(results)],
                "cells": results,
            }
            save(report, out)
    finally:
        _discard(held, None, keep)
    return report


def prepare(groups: list[Group], log: Callable[[str], None]) -> None:
    """Build all tables that are missing."""
    for group in groups:
        group.data.prepare(log, group.with_lmdb)


def _without(cells: list[dict[str, Any]], groups: list[Group]) -> list[dict[str, Any]]:
    """The cells that these groups do not measure again."""
    again = {tuple(vars(cell)[name] for name in PLACE) for group in groups for cell in group.cells}
    return [cell for cell in cells if tuple(cell[name] for name in PLACE) not in again]


def _discard(held: list[ShapeData], coming: ShapeData | None, keep: bool) -> list[ShapeData]:
    """Delete tables that are not needed any more.

    Int64's table is needed beside every other shape of its size.
    """
    kept = []
    for data in held:
        is_reference = data.shape.name == REFERENCE
        if keep or (coming is not None and is_reference and data.rows == coming.rows):
            kept.append(data)
        else:
            data.delete()
    return kept


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    size, console = SIZES[options.size], Console()
    out = Path(options.out) if options.out else RESULTS / size.file
    joins = chosen(options.joins, list(ss.ALGORITHMS), "join", size.joins)
    joins += [] if options.no_rival else [RIVAL]
    shapes = chosen(options.shapes, list(SHAPES), "shape", tuple(SHAPES))
    rows = [int(count) for count in options.rows.split(",")] if options.rows else list(size.rows)
    percents = [float(percent) for percent in options.percents.split(",")]
    if options.seconds:
        size = replace(size, seconds=options.seconds, warm_seconds=4 * options.seconds)
    groups = plan(size, rows, percents, shapes, joins, options.seed, Path(options.data))
    if options.prepare:
        prepare(groups, console.print)
        return 0
    earlier = json.loads(out.read_text()) if options.add and out.exists() else None
    command.warn_if_busy(console)
    total = sum(len(group.cells) for group in groups)
    with command.measuring(console, total, lambda c: f"{c['shape']}, {c['join']}") as bar:
        report = run(groups, options.keep, out, bar.log, bar.done, earlier)
    reports.all_joins(report["cells"]).show(console, "million tuples/s, one core")
    reports.summary(report["cells"]).show(console, f"{OURS}: million tuples/s and ratios")
    return command.verdict(console, report, out, size.counts or options.strict)


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(__doc__, SIZES)
    parser.add_argument("--percents", default="10", help="budgets in percent of R")
    parser.add_argument("--shapes", help=f"names, comma-separated; default: {','.join(SHAPES)}")
    parser.add_argument("--joins", help="names, comma-separated, or all; the full size's default")
    parser.add_argument("--no-rival", action="store_true", help="leave the alternative out")
    parser.add_argument("--prepare", action="store_true", help="only build the tables")
    parser.add_argument("--add", action="store_true", help="keep the other cells of the results")
    parser.add_argument(
        "--seconds", type=float, help="measured time of a cell; the warm-up may take four times it"
    )
    return parser


if __name__ == "__main__":
    fresh_process.exit_when_terminated()
    sys.exit(main())
