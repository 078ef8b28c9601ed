"""``lab.bench_turns --measure instructions``: the cells, the results file and the table.

SweepJoin is also measured with the exponents and orders of ranks of lab.bench_sweep. A result is
kept in the file until the same cell is measured again, unless one of the checkouts has changed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from lab import machine
from lab.bench_engine import SLOW
from lab.bench_sweep import EXPONENTS
from lab.engine_data import EngineData
from lab.instruction_cell import Cell
from lab.instructions import VALGRIND, Checkout, compared

ROWS = 200_000
PUSH, WARM_TUPLES, TUPLES = 50_000, 100_000, 300_000
SLOW_SHARE = 200  # a page per tuple


def planned(
    joins: list[str],
    modes: list[str],
    percents: list[float],
    exponents: list[float],
    ranks: list[str],
    rows: int = ROWS,
) -> list[Cell]:
    """The cells of all joins, and the further ones of SweepJoin."""
    drawn: list[tuple[str, str, float, float, str]] = []
    for mode in modes:
        drawn += product(joins, [mode], percents, exponents, ranks)
        if mode == "direct" and "sweepjoin" in joins:
            further = product(
                ["sweepjoin"], [mode], percents, EXPONENTS, ["scattered", "clustered"]
            )
            drawn += [each for each in further if each not in drawn]
    cells = []
    for join, mode, percent, exponent, order in drawn:
        share = SLOW_SHARE if join in SLOW else 1
        cells.append(
            Cell(
                join=join,
                rows=rows,
                seed=1,
                percent=percent,
                direct=mode == "direct",
                push=PUSH // share,
                warm_tuples=WARM_TUPLES // share,
                tuples=TUPLES // share,
                exponent=exponent,
                scattered=order == "scattered",
            )
        )
    return cells


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The new report with the old one's other cells, if they are of the same two checkouts."""
    if any(old.get(side) != new[side] for side in ("before", "now")):
        return new
    names = {_name(each) for each in new["cells"]}
    return {**new, "cells": [e for e in old["cells"] if _name(e) not in names] + new["cells"]}


def main(options: argparse.Namespace) -> int:
    console, rows = Console(), options.rows or ROWS
    cells = planned(
        options.joins.split(","),
        options.modes.split(","),
        [float(percent) for percent in options.percents.split(",")],
        [float(exponent) for exponent in options.exponents.split(",")],
        options.ranks.split(","),
        rows,
    )
    EngineData(rows, 1).prepare(console.print, lmdb=False)
    checkouts = [Checkout(path.resolve()) for path in (options.before, options.now)]
    for checkout in checkouts:
        checkout.check(cells)
    results: list[dict[str, Any]] = []
    report = {
        "before": commit(checkouts[0].path),
        "now": commit(checkouts[1].path),
        "command": " ".join(["python -m lab.bench_turns", *_without_paths(sys.argv[1:])]),
        "valgrind": " ".join(VALGRIND),
        "machine": machine.describe(),
        "cells": results,
    }
    old = json.loads(options.out.read_text()) if options.out.exists() else {}
    both = [checkout.counts(cells) for checkout in checkouts]  # two processes at once
    for cell, was, now in zip(cells, *both, strict=True):
        results.append(compared(cell, was, now))
        console.print(f"{cell.name}: {results[-1]['ratio']:.3f} {results[-1]['different'] or ''}")
        options.out.write_text(json.dumps(merged(old, report), indent=1) + "\n")
    console.print(table(results))
    return 1 if any(each["ratio"] < options.least for each in results) else 0


def table(results: list[dict[str, Any]]) -> Table:
    title = "thousand instructions per tuple; ratio = before / now"
    columns = ("join", "memory", "reads", "keys", "before", "now", "ratio", "counters")
    made = Table(*columns, title=title, box=box.SIMPLE_HEAD)
    for each in results:
        tuples = each["counters_now"]["tuples_in"] * 1e3
        ranks = "scattered" if each["scattered"] else "clustered"
        made.add_row(
            each["join"],
            f"{each['percent']:g} %",
            "direct" if each["direct"] else "warm",
            f"{each['exponent']:g}, {ranks}",
            f"{each['instructions_before'] / tuples:.2f}",
            f"{each['instructions_now'] / tuples:.2f}",
            f"{each['ratio']:.3f}",
            ", ".join(f"{k} {was:,} -> {now:,}" for k, (was, now) in each["different"].items())
            or "equal",
        )
    return made


def commit(checkout: Path) -> str:
    """The commit of a checkout, marked if its library was changed since."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(checkout), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    return git("rev-parse", "HEAD") + (" (changed)" if git("status", "-s", "--", "src") else "")


def _name(result: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(result[field] for field in Cell.__dataclass_fields__)


def _without_paths(arguments: list[str]) -> list[str]:
    """The arguments; of paths only the last part, as others have theirs elsewhere."""
    return [f"../{Path(each).name}" if "/" in each else each for each in arguments]
