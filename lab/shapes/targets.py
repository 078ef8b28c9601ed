"""The targets of the shapes benchmark: ratios of rates within one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lab.shapes.catalogue import REFERENCE, SHAPES
from lab.shapes.cell import RIVAL

OURS = "sweepjoin"
TIMES_PUBLISHED = 1.0
TIMES_RIVAL = 3.0


@dataclass(frozen=True)
class Verdict:
    """One target and its measured value; a cell that failed counts as missed."""

    target: str
    least: float
    ratio: float | None

    @property
    def met(self) -> bool:
        return self.ratio is not None and self.ratio >= self.least


@dataclass(frozen=True)
class Point:
    """All cells of one shape at one size and budget."""

    shape: str
    rows: int
    percent: float
    rates: dict[str, float | None]  # by join; None: refused, wrong or failed
    reference: float | None  # SweepJoin's rate with int64 keys, measured beside this shape

    @property
    def name(self) -> str:
        return f"{self.shape}, {self.percent:g} % of {self.rows:,} rows"

    @property
    def share(self) -> float | None:
        return _ratio(self.rates.get(OURS), self.reference)

    @property
    def published(self) -> dict[str, float]:
        """Rates of the published joins."""
        others = ((name, rate) for name, rate in self.rates.items() if name not in (OURS, RIVAL))
        return {name: rate for name, rate in others if rate is not None}

    @property
    def best_published(self) -> str | None:
        return max(self.published, key=lambda name: self.published[name], default=None)

    @property
    def times_published(self) -> float | None:
        best = self.best_published
        return None if best is None else _ratio(self.rates.get(OURS), self.published[best])

    @property
    def times_rival(self) -> float | None:
        return _ratio(self.rates.get(OURS), self.rates.get(RIVAL))


def points(cells: list[dict[str, Any]]) -> list[Point]:
    """Cells by size, budget and shape, in the order in which they were measured."""
    found: dict[tuple[int, float, str], Point] = {}
    for cell in cells:
        where = (cell["rows"], cell["percent"], cell["beside"] or cell["shape"])
        point = found.get(where) or Point(where[2], where[0], where[1], {}, None)
        if cell["is_reference"]:
            point = Point(point.shape, point.rows, point.percent, point.rates, cell.get("rate"))
        else:
            rates = {**point.rates, cell["join"]: cell.get("rate")}
            reference = point.reference
            if (cell["shape"], cell["join"]) == (REFERENCE, OURS):
                reference = cell.get("rate")
            point = Point(point.shape, point.rows, point.percent, rates, reference)
        found[where] = point
    return list(found.values())


def verdicts(cells: list[dict[str, Any]]) -> list[Verdict]:
    """All targets whose cells were part of the run. A published join that refuses the budget is
    not compared; if SweepJoin does, its targets are missed."""
    found = []
    for point in points(cells):
        if OURS not in point.rates:
            continue
        least = SHAPES[point.shape].least
        if least is not None:
            found.append(Verdict(f"{point.name}: / {REFERENCE}", least, point.share))
        best = point.best_published
        if best is not None:
            ratio = point.times_published
            found.append(Verdict(f"{point.name}: / {best}", TIMES_PUBLISHED, ratio))
        if RIVAL in point.rates:
            found.append(Verdict(f"{point.name}: / {RIVAL}", TIMES_RIVAL, point.times_rival))
    return found


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None
