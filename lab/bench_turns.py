"""Compares the speed of two checkouts in alternating runs.

    git worktree add ../before v0.1.0
    python -m lab.bench_turns --before ../before

Every cell is measured in a fresh process pinned to one core, first with one checkout, then with the
other, for several rounds; the order alternates. The ratio (now / before) is the median over the
rounds: two runs that follow each other meet the same disk and the same neighbours. Both use the R
that is cached under .data/. The exit code is 1 if the ratio is below --least for any cell.
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
from lab import machine
from lab.bench_engine import SLOW
from lab.engine_data import EngineData

HERE = Path(__file__).resolve().parents[1]
CELL = (
    "import json, sys; from lab.engine_cell import Cell, measure; "
    "print(json.dumps(measure(Cell(**json.loads(sys.argv[1])))))"
)


def measure_with(checkout: Path, cell: dict[str, Any]) -> dict[str, Any]:
    """One cell with the code of one checkout."""
    env = {**os.environ, "PYTHONPATH": f"{checkout / 'src'}{os.pathsep}{HERE}"}
    command = [sys.executable, "-c", CELL, json.dumps(cell)]
    done = subprocess.run(command, env=env, cwd=HERE, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{cell['join']} with {checkout}: {done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def compare(before: Path, cell: dict[str, Any], rounds: int) -> tuple[float, float, float]:
    """The median rate of each checkout, before and now, and the median of their ratios."""
    rates: dict[Path, list[float]] = {before: [], HERE: []}
    for number in range(rounds):
        for checkout in (before, HERE) if number % 2 == 0 else (HERE, before):
            result = measure_with(checkout, cell)
            trouble = {key: result[key] for key in ("wrong", "error", "refused") if key in result}
            if trouble:
                raise RuntimeError(f"{cell['join']} with {checkout}: {trouble}")
            rates[checkout].append(result["rate"])
    ratios = [now / was for was, now in zip(rates[before], rates[HERE], strict=True)]
    return median(rates[before]), median(rates[HERE]), median(ratios)


def main() -> int:
    options = _parser().parse_args()
    console, data = Console(), EngineData(options.rows, 1)
    data.prepare(console.print)
    data.warm()
    console.print(f"load {machine.load()}, before: {options.before}")
    table = Table(
        "join", "memory", "reads", "exponent", "before", "now", "ratio", title="million tuples/s"
    )
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
            "warm_tuples": 2_000_000 // share,
            "warm_seconds": options.seconds,
            "tuples": 6_000_000 // share,
            "seconds": options.seconds,
            "exponent": exponent,
            "scattered": ranks == "scattered",
        }
        was, now, ratio = compare(options.before.resolve(), cell, options.rounds)
        slower += ratio < options.least
        keys = f"{exponent:g}, {ranks}"
        rates = f"{was / 1e6:.3f}", f"{now / 1e6:.3f}"
        table.add_row(join, f"{percent:g} %", mode, keys, *rates, f"{ratio:.2f}")
        console.print(f"{join}, {percent:g} %, {mode}, {keys}: {ratio:.3f}")
    console.print(table)
    console.print(f"load {machine.load()}")
    return 1 if slower else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.bench_turns", description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="the other checkout")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--percents", default="10")
    parser.add_argument("--modes", default="warm,direct")
    parser.add_argument("--joins", default=",".join(ss.ALGORITHMS))
    parser.add_argument("--exponents", default="1", help="of the keys' Zipf distribution")
    parser.add_argument("--ranks", default="scattered", help="scattered, clustered or both")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--least", type=float, default=0.97)
    return parser


if __name__ == "__main__":
    sys.exit(main())
