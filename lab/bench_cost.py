"""The cost benchmark: what the models predict beside what is measured.

    python -m lab.bench_cost --size small                # R = 2 million rows, some minutes
    python -m lab.bench_cost --size small --parts rates  # or grid, least
    python -m lab.bench_cost                             # R = 2 and 20 million rows

1. rates: predicted against measured, for all joins, budgets, exponents; and drained batches.
2. grid: the tuner's settings against the best of a grid that is measured exhaustively.
3. least: the least memory for a rate. At it the run serves the rate, at 80 % of it it does not.

The machine is calibrated first. Results go to lab/results/cost.json (small: cost-small.json), a
plot beside it. A rate is tuples per second of processor time; where other processes run, this
compares better than the clock. The exit code is 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

import semistream as ss
from lab import cost_report, machine
from lab.cost_cell import CostCell, case_of, measure, predicted
from lab.engine_data import EngineData
from semistream.cost import Machine
from semistream.errors import BudgetError
from semistream.tuning import calibrate
from semistream.tuning.search import settings_of, tuned

RESULTS = Path(__file__).resolve().parent / "results"
PARTS = ("rates", "grid", "least")
DRAINED = ("sweepjoin", "hybridjoin", "cinlj", "meshjoin")
TUNABLE = tuple(name for name in ss.ALGORITHMS if name != "inlj")
_GRID = {"disk_buffer_pages": 3, "front_stage": 4, "pinned": 3, "group_pages": 2}  # values each


@dataclass(frozen=True)
class Size:
    """Which cells, and how long."""

    rows: tuple[int, ...]
    percents: tuple[float, ...]
    exponents: tuple[float, ...]
    grid_percents: tuple[float, ...]
    seconds: float
    file: str


SIZES = {
    "full": Size(
        (2_000_000, 20_000_000), (1, 2, 5, 10, 20), (0.0, 0.5, 1.0), (1, 5, 20), 2.0, "cost.json"
    ),
    "small": Size((2_000_000,), (1, 5, 20), (0.0, 0.5, 1.0), (2, 10), 0.5, "cost-small.json"),
}


def rate_cells(size: Size) -> Iterator[CostCell]:
    """Streams of all joins, then drained batches of four."""
    for rows, percent, exponent in itertools.product(size.rows, size.percents, size.exponents):
        for name in ss.ALGORITHMS:
            yield CostCell(name, rows, percent, exponent, seconds=size.seconds)
    for rows, batch in itertools.product(size.rows, (1_000, 100_000)):
        for name in DRAINED:
            yield CostCell(name, rows, 10, 1.0, drained=batch, warm_seconds=1.0)


def compare(cell: CostCell, factors: Machine) -> dict[str, Any]:
    """Measure a cell, and predict it."""
    data = EngineData(cell.rows, cell.seed)
    result = measure(cell)
    if "rate" in result:
        found = predicted(cell, data, factors)
        result |= {"predicted": found.rate, "predicted_hit": found.front_share}
        result["predicted_pages"] = found.pages_per_tuple
    return {**result, "name": cell.name}


def grid_cells(
    cell: CostCell, data: EngineData, factors: Machine
) -> tuple[CostCell, list[CostCell]]:
    """The tuner's setting, and an exhaustive grid around which it was chosen."""
    case = case_of(cell, data, factors)
    best = tuned(case)
    assert best is not None
    names, values = [], []
    for name, possible in settings_of(case):
        step = max(1, len(possible) // _GRID[name])
        names.append(name)
        values.append(list(possible)[step // 2 :: step])
    chosen = tuple((name, getattr(best.join, name)) for name in names)
    grid = [
        replace(cell, options=tuple(zip(names, combination, strict=True)))
        for combination in itertools.product(*values)
    ]
    return replace(cell, options=chosen), [*grid, cell]


def least_memory(name: str, rows: int, rate: float, factors: Machine) -> CostCell | None:
    """The smallest budget whose prediction reaches the rate, with the join's default settings."""
    data, low, high = EngineData(rows), 0.05, 60.0
    for _ in range(24):
        middle = (low * high) ** 0.5
        try:
            found = predicted(CostCell(name, rows, middle), data, factors).rate
        except BudgetError:
            found = 0.0
        low, high = (middle, high) if found < rate else (low, middle)
    return None if high > 50 else CostCell(name, rows, high)


def run(
    size: Size, parts: list[str], joins: list[str], log: Callable[[str], None]
) -> dict[str, Any]:
    """Measure everything; JSON-serializable."""
    report: dict[str, Any] = {"machine": machine.describe(), "rates": [], "grid": [], "least": []}
    factors: dict[int, Machine] = {}
    for rows in size.rows:
        data = EngineData(rows)
        data.prepare(log, lmdb=False)
        data.warm()
        began = time.perf_counter()
        factors[rows] = calibrate(ss.MasterTable.open(data.master), keep=False)
        log(f"calibrated for {rows:,} rows in {time.perf_counter() - began:.1f} s")
        report.setdefault("factors", {})[str(rows)] = dict(factors[rows].factors)
    if "rates" in parts:
        for cell in rate_cells(size):
            if cell.join in joins:
                report["rates"].append(compare(cell, factors[cell.rows]))
                log(cost_report.line(report["rates"][-1]))
    if "grid" in parts:
        for rows, percent in itertools.product(size.rows, size.grid_percents):
            for name in (name for name in TUNABLE if name in joins):
                base = CostCell(name, rows, percent, seconds=size.seconds, warm_seconds=1.5)
                chosen, grid = grid_cells(base, EngineData(rows), factors[rows])
                measured = [measure(cell) for cell in grid]
                best = max((one.get("rate", 0.0), one["options"]) for one in measured)
                mine = max(measure(chosen)["rate"], measure(chosen)["rate"])
                entry = {"name": base.name, "tuned": chosen.options, "rate": mine}
                entry |= {"best": best[0], "best_options": best[1], "cells": len(grid)}
                report["grid"].append(entry)
                log(f"{base.name}: {mine / best[0]:.2f} of the best of {len(grid)}")
    if "least" in parts:
        for rows in size.rows:
            for name in (
                name for name in ("sweepjoin", "meshjoin", "chybridjoin") if name in joins
            ):
                for rate in (300_000.0, 1_000_000.0):
                    cell = least_memory(name, rows, rate, factors[rows])
                    if cell is None:
                        continue
                    cell = replace(cell, seconds=2 * size.seconds)
                    found = measure(cell).get("rate", 0.0)
                    less = measure(replace(cell, percent=0.8 * cell.percent)).get("rate", 0.0)
                    entry = {"join": name, "rows": rows, "wanted": rate, "percent": cell.percent}
                    report["least"].append({**entry, "rate": found, "rate_at_80": less})
                    log(
                        f"{name}, {rate:g}/s: {cell.percent:.2f} % gives {found:.0f}, "
                        f"80 %: {less:.0f}"
                    )
    report["machine"]["load_after"] = machine.load()
    report["summary"] = cost_report.summary(report)
    return report


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=sorted(SIZES), default="full")
    parser.add_argument("--parts", default=",".join(PARTS), help="rates, grid, least")
    parser.add_argument("--joins", help="names, comma-separated; default: all")
    parser.add_argument("--out", help="path of the JSON results")
    options = parser.parse_args(arguments)
    size, console = SIZES[options.size], Console()
    joins = options.joins.split(",") if options.joins else list(ss.ALGORITHMS)
    report = run(
        size, options.parts.split(","), joins, lambda text: console.print(text, markup=False)
    )
    out = Path(options.out) if options.out else RESULTS / size.file
    out.write_text(json.dumps(report, indent=1) + "\n")
    cost_report.show(report, console)
    if report["rates"]:
        cost_report.plot(report, out.with_suffix(".png"))
    return 0 if all(target["met"] for target in report["summary"]["targets"]) else 1


if __name__ == "__main__":
    sys.exit(main())
