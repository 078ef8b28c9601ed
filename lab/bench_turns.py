"""Compares the speed of two checkouts: in turns, or by executed instructions.

    git worktree add ../before v0.1.0
    python -m lab.bench_turns --before ../before
    python -m lab.bench_turns --before ../before --measure instructions   # needs Valgrind

A cell is measured by two processes, one per checkout, pinned to one core. Both warm up; then they
take turns of a fraction of a second (lab/turns_cell.py). The ratio (now / before) is that of the
rows which each has returned in all its turns; the median of the turns' ratios is shown beside it.
``--rounds`` repeats a cell with new processes, as memory that moves may settle in different places:
the ratio is over all rounds. Each checkout has an R of its own under .data/, in its own format. The
exit code is 1 if the ratio is below --least for any cell.

With ``--measure instructions`` the ratio is instructions before / instructions now, on a smaller R
(lab/turns_report.py); results go to lab/results/turns.json.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

import semistream as ss
from lab import machine, turns_report
from lab.bench_engine import RESULTS, SLOW
from lab.engine_cell import PUSH
from lab.turns_cell import HERE, Slice, Turn, environment

ROWS = 2_000_000
PREPARE = (
    "import sys; from lab.engine_data import EngineData; data = EngineData(int(sys.argv[1]), 1); "
    "data.prepare(print, lmdb=False); data.warm()"
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
    before: Path, cell: dict[str, Any], rounds: int, turns: int, seconds: float
) -> tuple[float, float, float]:
    """The rates of both checkouts, before and now, and the median ratio of their turns."""
    slices: dict[Path, list[Slice]] = {before: [], HERE: []}
    for number in range(rounds):
        order = (before, HERE) if number % 2 == 0 else (HERE, before)
        processes = {checkout: Turn(checkout, cell) for checkout in order}
        for turn in range(turns + 1):
            for checkout in order if turn % 2 == 0 else reversed(order):
                found = processes[checkout].measure(seconds)
                if turn:  # the first one is still part of the warm-up
                    slices[checkout].append(found)
        for process in processes.values():
            process.close()
    pairs = zip(slices[before], slices[HERE], strict=True)
    ratios = [rate([now]) / rate([was]) for was, now in pairs if was.rows and now.rows]
    return rate(slices[before]), rate(slices[HERE]), median(ratios)


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
    columns = "join", "memory", "reads", "exponent", "before", "now", "ratio", "median ratio"
    table = Table(*columns, title="million tuples/s")
    slower = 0
    drawn = product(
        options.modes.split(","),
        map(float, options.percents.split(",")),
        map(float, options.exponents.split(",")),
        options.ranks.split(","),
        map(int, options.pushes.split(",")),
        options.joins.split(","),
    )
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
        was, now, middle = compare(before, cell, options.rounds, options.turns, options.seconds)
        slower += now / was < options.least
        keys = f"{exponent:g}, {ranks}" + ("" if push == PUSH else f", pushes of {push:,}")
        rates = f"{was / 1e6:.3f}", f"{now / 1e6:.3f}", f"{now / was:.2f}", f"{middle:.2f}"
        table.add_row(join, f"{percent:g} %", mode, keys, *rates)
        console.print(f"{join}, {percent:g} %, {mode}, {keys}: {now / was:.3f} ({middle:.3f})")
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
    parser.add_argument("--turns", type=int, default=12, help="of each process")
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
