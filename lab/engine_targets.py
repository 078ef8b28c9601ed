"""The engine's targets: ratios of rates within one run on one machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

REFERENCE = "lru+lmdb"
PUSH, SMALL_PUSH = 50_000, 100
FOUR = ("meshjoin", "hybridjoin", "cmeshjoin", "chybridjoin")
CACHED = (("chybridjoin", "hybridjoin"), ("cmeshjoin", "meshjoin"))


@dataclass(frozen=True)
class Verdict:
    """One target and its measured value; a missing cell counts as missed."""

    target: str
    least: float
    ratio: float | None
    strictly: bool = False

    @property
    def met(self) -> bool:
        if self.ratio is None:
            return False
        return self.ratio > self.least if self.strictly else self.ratio >= self.least


class Rates:
    """Rates by join, budget, I/O mode and push size."""

    def __init__(self, cells: list[dict[str, Any]]) -> None:
        self._rates = {
            (cell["join"], cell["percent"], cell["direct"], cell["push"]): cell.get("rate")
            for cell in cells
        }
        self.refused = {
            (cell["join"], cell["percent"], cell["direct"]) for cell in cells if "refused" in cell
        }
        self.percents = sorted({key[1] for key in self._rates})
        self.joins = list(dict.fromkeys(key[0] for key in self._rates))

    def get(
        self, join: str, percent: float, direct: bool = False, push: int = PUSH
    ) -> float | None:
        return self._rates.get((join, percent, direct, push))

    def planned(self, join: str, percent: float, push: int = PUSH) -> bool:
        """Whether this cell, on the warm page cache, was part of the run."""
        return (join, percent, False, push) in self._rates

    def ratio(self, one: float | None, other: float | None) -> float | None:
        return one / other if one is not None and other else None


def verdicts(rates: Rates) -> list[Verdict]:
    """All targets whose cells were part of the run, evaluated on the warm page cache."""
    found = []
    for percent, joins, least in ((10.0, FOUR, 3.0), (1.0, ("chybridjoin", "cmeshjoin"), 1.0)):
        for join in joins:
            if not rates.planned(join, percent):
                continue
            ratio = rates.ratio(rates.get(join, percent), rates.get(REFERENCE, percent))
            found.append(Verdict(f"{join} / {REFERENCE} at {percent:g} %", least, ratio))
    for percent in rates.percents:
        for cached, plain in CACHED:
            if not (rates.planned(cached, percent) and rates.planned(plain, percent)):
                continue
            ratio = rates.ratio(rates.get(cached, percent), rates.get(plain, percent))
            found.append(Verdict(f"{cached} / {plain} at {percent:g} %", 1.0, ratio, strictly=True))
    for percent in rates.percents:
        for join in rates.joins:
            if rates.planned(join, percent, push=SMALL_PUSH):
                small = rates.get(join, percent, push=SMALL_PUSH)
                ratio = rates.ratio(small, rates.get(join, percent))
                target = f"{join}: pushes of {SMALL_PUSH} / {PUSH:,} at {percent:g} %"
                found.append(Verdict(target, 0.1, ratio))
    return found
