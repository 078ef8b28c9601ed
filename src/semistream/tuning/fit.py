"""Fits the machine's factors to measured runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from semistream.cost import FACTORS

# Trust in the defaults' proportions, against one measured run: a run of a fraction of a second is
# off by 20 % where other guests work beside it, and it has few of the table's keys. So a
# calibration measures above all the speed of the machine.
_TRUST = 3.0
_LEAST = 0.6  # of a default at this speed: a lower price is noise that another was fitted to


@dataclass(frozen=True)
class Measured:
    """One run: the units of work per tuple by factor, and the seconds per tuple that it took."""

    work: Mapping[str, float]  # "access": seconds of random accesses, already priced
    seconds: float


def fit(runs: Sequence[Measured], defaults: Mapping[str, float] | None = None) -> dict[str, float]:
    """Prices that explain the runs: relative errors are squared.

    What the runs do not determine keeps the proportions of the defaults, on a machine that is as
    much faster or slower as the runs show. No price is negative.
    """
    defaults = defaults or {name: default for name, (default, _) in FACTORS.items()}
    names = [name for name in defaults if any(run.work.get(name) for run in runs)]
    if not names:
        return dict(defaults)
    parts = np.array([[run.work.get(n, 0.0) * defaults[n] for n in names] for run in runs])
    seconds = np.array(
        [max(run.seconds - run.work.get("access", 0.0), 0.1 * run.seconds) for run in runs]
    )
    whole = np.array([run.seconds for run in runs])
    speed = float(np.median(seconds / np.maximum(parts.sum(axis=1), 1e-15)))
    rows = parts / whole[:, None]
    prior = np.eye(len(names)) * _TRUST
    wanted = np.r_[seconds / whole, np.full(len(names), _TRUST * speed)]
    scale = _not_below(np.vstack([rows, prior]), wanted, _LEAST * speed)
    prices = {name: default * speed for name, default in defaults.items()}
    return prices | {n: float(defaults[n] * s) for n, s in zip(names, scale, strict=True)}


def _not_below(matrix: Any, wanted: Any, least: float) -> Any:
    """Least squares with a lower limit, by coordinate descent."""
    square, right = matrix.T @ matrix, matrix.T @ wanted
    found = np.full(matrix.shape[1], 1.0)
    for _ in range(2_000):
        before = found.copy()
        for i in range(len(found)):
            others = right[i] - square[i] @ found + square[i, i] * found[i]
            found[i] = max(least, others / square[i, i])
        if np.abs(found - before).max() < 1e-6:
            break
    return found
