"""Compares the speed of two checkouts: in alternating runs, or by executed instructions.

    git worktree add ../before v0.1.0
    python -m lab.bench_turns --before ../before
    python -m lab.bench_turns --before ../before --measure instructions   # needs Valgrind

Every cell is measured in a fresh process pinned to one core, first with one checkout, then with the
other, for several rounds; the order alternates. Two ratios (now / before) are shown: that of the
best rounds, and the median of the rounds' ratios. What else the host does only slows a round down,
at times by half, so the best of enough rounds is what the code can do; the median shows how quiet
the machine was. Each checkout has an R of its own under .data/, in its own format. The exit code is
1 if the ratio of the best rounds is below --least for any cell.

With ``--measure instructions`` the ratio is instructions before / instructions now, on a smaller R
(lab/turns_report.py); results go to lab/results/turns.json. This resolves differences that the
seconds of a shared machine hide.
"""

from __future__ import annotations

import argparse
import json
import os
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
from lab.build_once import DATA

HERE = Path(__file__).resolve().parents[1]
ROWS = 2_000_000
CELL = (
    "import json, sys; from lab.engine_cell import Cell, measure; "
    "print(json.dumps(measure(Cell(**json.loads(sys.argv[1])))))"
)
PREPARE = (
    "import sys; from lab.engine_data import EngineData; data = EngineData(int(sys.argv[1]), 1); "
    "data.prepare(print, lmdb=False); data.warm()"
)


def run_with(checkout: Path, code: str, argument: str) -> str:
    """The output of a script that runs with the code of one checkout, and its data."""
    env = {**os.environ, "PYTHONPATH": f"{checkout / 'src'}{os.pathsep}{HERE}"}
    if checkout != HERE:
        env["SEMISTREAM_LAB_DATA"] = str(DATA / f"turns-{checkout.name}")
    command = [sys.executable, "-c", code, argument]
    done = subprocess.run(command, env=env, cwd=HERE, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{argument} with {checkout}: {done.stderr}")
    return done.stdout


def measure_with(checkout: Path, cell: dict[str, Any]) -> dict[str, Any]:
    """One cell with the code of one checkout."""
    result: dict[str, Any] = json.loads(run_with(checkout, CELL, json.dumps(cell)).splitlines()[-1])
    return result


def compare(before: Path, cell: dict[str, Any], rounds: int) -> tuple[float, float, float]:
    """The best rate of each checkout, before and now, and the median of the rounds' ratios."""
    rates: dict[Path, list[float]] = {before: [], HERE: []}
    for number in range(rounds):
        for checkout in (before, HERE) if number % 2 == 0 else (HERE, before):
            result = measure_with(checkout, cell)
            trouble = {key: result[key] for key in ("wrong", "error", "refused") if key in result}
            if trouble:
                raise RuntimeError(f"{cell['join']} with {checkout}: {trouble}")
            rates[checkout].append(result["rate"])
    ratios = [now / was for was, now in zip(rates[before], rates[HERE], strict=True)]
    return max(rates[before]), max(rates[HERE]), median(ratios)


def main() -> int:
    options = _parser().parse_args()
    if options.measure == "instructions":
        return turns_report.main(options)
    options.rows = options.rows or ROWS
    console, before = Console(), options.before.resolve()
    for checkout in (before, HERE):
        console.print(run_with(checkout, PREPARE, str(options.rows)), end="")
    console.print(f"load {machine.load()}, before: {options.before}")
    columns = "join", "memory", "reads", "exponent", "before", "now", "ratio", "median ratio"
    table = Table(*columns, title="million tuples/s")
    slower = 0
    drawn = product(
        options.modes.split(","),
        map(float, options.percents.split(",")),
        map(float, options.exponents.split(",")),
        options.ranks.split(","),
        options.joins.split(","),
    )
    for mode, percent, exponent, ranks, join in drawn:
        share = 20 if join in SLOW else 1
        cell = {
            "join": join,
            "rows": options.rows,
            "seed": 1,
            "percent": percent,
            "direct": mode == "direct",
            "push": 50_000,
            "check_tuples": 50_000 // share,
            "warm_tuples": 8_000_000 // share,
            "warm_seconds": 4 * options.seconds,  # until memory has moved to where it stays
            "tuples": 12_000_000 // share,
            "seconds": options.seconds,
            "exponent": exponent,
            "scattered": ranks == "scattered",
        }
        was, now, middle = compare(before, cell, options.rounds)
        slower += now / was < options.least
        keys = f"{exponent:g}, {ranks}"
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
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--least", type=float, default=0.97)
    parser.add_argument("--out", type=Path, default=RESULTS / "turns.json", help="instructions")
    return parser


if __name__ == "__main__":
    sys.exit(main())
