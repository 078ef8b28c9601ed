"""Fits the package's prices to the rates that the cost benchmark has measured with R = 2 million.

    python -m lab.cost_fit     # prints the prices for cost/machine.py

A model counts the work of a cell; accesses to memory have their own price. The others are chosen so
that the squares of the relative errors are least, near the prices that there are: work that always
occurs together cannot be told apart. lab/results/cost-prices.json has the rates: a run of
``bench_cost`` of its own. The cells of R = 20 million rows are not used: they are a test of the
prices by other data.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from lab.bench_cost import RESULTS
from lab.cost_cell import CostCell, predicted
from semistream.cost import FACTORS, Machine

_TRUST = 0.5  # in the prices that there are, against one cell
_LEAST = 0.2  # of the price that there is


def prices(cells: list[dict[str, Any]]) -> dict[str, float]:
    """Prices that explain the rates of these cells."""
    before = {name: price for name, (price, _) in FACTORS.items()}
    machine, parts, wanted = Machine(), [], []
    for entry in cells:
        work = predicted(_cell(entry), _cell(entry).data, machine).work
        parts.append([work.get(n, 0.0) * price * entry["rate"] for n, price in before.items()])
        wanted.append(1.0 - work["access"] * entry["rate"])
    matrix = np.vstack([np.array(parts), _TRUST * np.eye(len(before))])
    scale = not_below(matrix, np.r_[wanted, np.full(len(before), _TRUST)], _LEAST)
    return {name: price * s for (name, price), s in zip(before.items(), scale, strict=True)}


def not_below(matrix: Any, wanted: Any, least: float) -> Any:
    """Least squares with a lower limit, by coordinate descent."""
    square, right = matrix.T @ matrix, matrix.T @ wanted
    found = np.ones(matrix.shape[1])
    for _ in range(5_000):
        before = found.copy()
        for i in range(len(found)):
            others = right[i] - square[i] @ found + square[i, i] * found[i]
            found[i] = max(least, others / square[i, i])
        if np.abs(found - before).max() < 1e-7:
            break
    return found


def _cell(entry: dict[str, Any]) -> CostCell:
    names = ("join", "rows", "percent", "exponent", "scattered", "drained", "kind", "seed")
    options = tuple((name, value) for name, value in entry["options"])
    return CostCell(**{name: entry[name] for name in names}, options=options)


def main() -> int:
    report = json.loads((RESULTS / "cost-prices.json").read_text())
    for name, price in prices(report["rates"]).items():
        print(f'"{name}": {price:.2g}  # {FACTORS[name][0]:.2g}')
    return 0


if __name__ == "__main__":
    sys.exit(main())
