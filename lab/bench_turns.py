"""Compares the speed of two checkouts: in turns, or by executed instructions.

    git worktree add ../before v0.1.0
    python -m lab.bench_turns --before ../before
    python -m lab.bench_turns --before ../before --measure instructions   # needs Valgrind

A cell is measured by two processes, one per checkout, pinned to one core. Both warm up; then they
take turns of a fraction of a second (lab/turns_cell.py). The ratio (now / before) is that of the
rows which each has returned in all its turns.
A host that is shared is not steady: the same code beside itself has turns that differ by a tenth.
So turns go on, from ``--turns`` up to ``--most-turns``, while --least is within two standard errors
of the ratio, above as well as below. ``--rounds`` repeats a cell with new processes, as memory that
moves may settle in different places. ``--every-cell`` measures what `make bench` and
`make bench-sweep --parts cells` have at one budget. Each checkout has an R of its own under
.data/, in its own format, which is dropped from the page cache and read again before anything is
measured: how fast it is depends on the pieces in which it was written or read. The exit code is 1
if the ratio is below --least for any cell.

With ``--measure instructions`` the ratio is instructions before / instructions now, on a smaller R
(lab/turns_report.py); results go to lab/results/turns.json.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rich.console import Console
from rich.table import Table

import semistream as ss
from lab import machine, turns_report
from lab.bench_engine import RESULTS, SLOW, SMALL_PUSH
from lab.engine_cell import PUSH
from lab.turns_cell import HERE, Slice, Turn, environment

ROWS = 2_000_000
PREPARE = (
    "import sys; from lab import page_cache; from lab.engine_data import EngineData; "
    "data = EngineData(int(sys.argv[1]), 1); data.prepare(print, lmdb=False); "
    "page_cache.drop(data.master); data.warm()"
)


def prepare(checkout: Path, rows: int) -> str:
    """Build the R of one checkout, if it has none."""
    command = [sys.executable, "-c", PREPARE, str(rows)]
    done = subprocess.run(
        command, env=environment(checkout), cwd=HERE, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"preparing R with {checkout}: {done.stderr}")
    return done.stdout


def rate(slices: list[Slice]) -> float:
    return sum(each.rows for each in slices) / sum(each.seconds for each in slices)


def compare(
    before: Path, cell: dict[str, Any], options: argparse.Namespace
) -> tuple[float, float, float]:
    """The rates of both checkouts, before and now, and the standard error of their ratio."""
    slices: dict[Path, list[Slice]] = {before: [], HERE: []}
    for number in range(options.rounds):
        order = (before, HERE) if number % 2 == 0 else (HERE, before)
        processes = {checkout: Turn(checkout, cell) for checkout in order}
        for turn in range(max(options.turns, options.most_turns) + 1):
            if turn > options.turns and is_decided(_ratios(slices, before), options.least):
                break
            for checkout in order if turn % 2 == 0 else reversed(order):
                found = processes[checkout].measure(options.seconds)
                if turn:  # the first one is still part of the warm-up
                    slices[checkout].append(found)
        for process in processes.values():
            process.close()
    error = standard_error(_ratios(slices, before))
    return rate(slices[before]), rate(slices[HERE]), error


def _ratios(slices: dict[Path, list[Slice]], before: Path) -> list[float]:
    pairs = zip(slices[before], slices[HERE], strict=True)
    return [rate([now]) / rate([was]) for was, now in pairs if was.rows and now.rows]


def standard_error(ratios: list[float]) -> float:
    """Of the mean ratio of paired turns, relative to it."""
    if len(ratios) < 2:
        return math.inf
    return stdev(map(math.log, ratios)) / math.sqrt(len(ratios))


def is_decided(ratios: list[float], least: float) -> bool:
    """Whether the mean ratio is on one side of ``least`` by more than two standard errors."""
    if len(ratios) < 2:
        return False
    return abs(fmean(map(math.log, ratios)) - math.log(least)) > 2 * standard_error(ratios)


def every_cell(joins: list[str], percents: list[float]) -> list[tuple[Any, ...]]:
    """The cells of `make bench` and `make bench-sweep --parts cells`, without budgets."""
    streams = [("warm", 1.0, "scattered", PUSH), ("warm", 1.0, "scattered", SMALL_PUSH)]
    streams += [("direct", exponent, "scattered", PUSH) for exponent in (0.0, 0.5, 1.0)]
    streams += [("direct", exponent, "clustered", PUSH) for exponent in (0.5, 1.0)]
    return [
        (mode, percent, exponent, ranks, push, join)
        for percent in percents
        for mode, exponent, ranks, push in streams
        for join in joins
    ]


def cell_of(join: str, percent: float, **others: Any) -> dict[str, Any]:
    share = 20 if join in SLOW else 1
    return {
        "join": join,
        "percent": percent,
        "rows": ROWS,
        "seed": 1,
        "direct": False,
        "push": PUSH,
        "check_tuples": 50_000 // share,
        "warm_tuples": 8_000_000 // share,
        "warm_seconds": 5.0,
        "tuples": 4_000_000 // share,
        "seconds": 0.0,  # every turn has its own
        **others,
    }


def main() -> int:
    options = _parser().parse_args()
    if options.measure == "instructions":
        return turns_report.main(options)
    options.rows = options.rows or ROWS
    console, before = Console(), options.before.resolve()
    for checkout in (before, HERE):
        console.print(prepare(checkout, options.rows), end="")
    console.print(f"load {machine.load()}, before: {options.before}")
    columns = "join", "memory", "reads", "exponent", "before", "now", "ratio", "error"
    table = Table(*columns, title="million tuples/s")
    slower = 0
    joins, percents = options.joins.split(","), [*map(float, options.percents.split(","))]
    drawn: Iterable[tuple[Any, ...]] = product(
        options.modes.split(","),
        percents,
        map(float, options.exponents.split(",")),
        options.ranks.split(","),
        map(int, options.pushes.split(",")),
        joins,
    )
    if options.every_cell:
        drawn = every_cell(joins, percents)
    for mode, percent, exponent, ranks, push, join in drawn:
        cell = cell_of(
            join,
            percent,
            rows=options.rows,
            direct=mode == "direct",
            push=push,
            warm_seconds=options.warm_up,
            exponent=exponent,
            scattered=ranks == "scattered",
        )
        was, now, error = compare(before, cell, options)
        slower += now / was < options.least
        keys = f"{exponent:g}, {ranks}" + ("" if push == PUSH else f", pushes of {push:,}")
        rates = f"{was / 1e6:.3f}", f"{now / 1e6:.3f}", f"{now / was:.3f}", f"{error:.3f}"
        table.add_row(join, f"{percent:g} %", mode, keys, *rates)
        name = f"{join}, {percent:g} %, {mode}, {keys}"
        console.print(f"{name}: {now / was:.3f} (error {error:.3f})")
    console.print(table)
    console.print(f"load {machine.load()}")
    return 1 if slower else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.bench_turns", description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="the other checkout")
    parser.add_argument("--now", type=Path, default=HERE, help="instructions: instead of this one")
    parser.add_argument("--measure", choices=("seconds", "instructions"), default="seconds")
    parser.add_argument("--rows", type=int, help=f"of R; {ROWS:,}, or {turns_report.ROWS:,}")
    parser.add_argument("--percents", default="10")
    parser.add_argument("--modes", default="warm,direct")
    parser.add_argument("--joins", default=",".join(ss.ALGORITHMS))
    parser.add_argument("--exponents", default="1", help="of the keys' Zipf distribution")
    parser.add_argument("--ranks", default="scattered", help="scattered, clustered or both")
    parser.add_argument("--pushes", default=str(PUSH), help="tuples per push")
    parser.add_argument("--rounds", type=int, default=1, help="pairs of processes")
    parser.add_argument("--every-cell", action="store_true", help="instead of modes to pushes")
    parser.add_argument("--turns", type=int, default=12, help="of each process")
    parser.add_argument("--most-turns", type=int, default=0, help="while a ratio is in doubt")
    parser.add_argument("--seconds", type=float, default=0.4, help="of a turn")
    parser.add_argument(
        "--warm-up",
        type=float,
        default=5.0,
        help="seconds, until memory has moved to where it stays",
    )
    parser.add_argument("--least", type=float, default=0.97)
    parser.add_argument("--out", type=Path, default=RESULTS / "turns.json", help="instructions")
    return parser


if __name__ == "__main__":
    sys.exit(main())
