"""SweepJoin's targets, evaluated on the parts of its benchmark that were run."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Verdict:
    """One target and its measured value."""

    target: str
    least: float | None
    most: float | None
    value: float | None

    @property
    def wanted(self) -> str:
        return f">= {self.least:g}" if self.least is not None else f"<= {self.most:g}"

    @property
    def met(self) -> bool:
        if self.value is None:
            return False
        return (self.least is None or self.value >= self.least) and (
            self.most is None or self.value <= self.most
        )


def verdicts(report: dict[str, Any]) -> list[Verdict]:
    """All targets whose parts were run."""
    found: list[Verdict] = []
    if "cells" in report:
        found += _against_published(report["cells"]["result"])
    if "peers" in report:
        rates = report["peers"]["result"]
        ours = rates["sweepjoin"]["rate"]
        for name, least in (("lru+lmdb", 10.0), ("duckdb", 5.0), ("polars", 5.0)):
            rate = rates.get(name, {}).get("rate")
            found.append(Verdict(f"/ {name} at 10 %", least, None, ours / rate if rate else None))
    for one in report.get("limit", {}).get("result", ()):
        found.append(Verdict(f"of the limit at {one['percent']:g} %", 0.6, None, one["share"]))
    if "size" in report:
        rate = {c["rows"]: c.get("rate") for c in report["size"]["result"]}
        small, large = rate.get(2_000_000), rate.get(50_000_000)
        ratio = small / large if small and large else None
        found.append(Verdict("time per tuple, 50 M / 2 M rows", None, 1.5, ratio))
    for stream, joins in report.get("wait", {}).get("result", {}).items():
        ours = joins["sweepjoin"]
        ratio = ours["max_iterations"] / ours["bound"]
        found.append(Verdict(f"longest wait / bound, {stream}", None, 1.0, ratio))
    if "cores" in report:
        result = report["cores"]["result"]
        found.append(Verdict("two processes / one", 1.8, None, result["two_processes"]))
        found.append(Verdict("two cores / one, I/O-bound", 1.0, None, result["second_core"]))
    return found


def _against_published(cells: list[dict[str, Any]]) -> list[Verdict]:
    groups: dict[tuple[float, float, bool], dict[str, float]] = defaultdict(dict)
    for one in cells:
        if one.get("rate"):
            key = (one["percent"], one["exponent"], one["scattered"])
            groups[key][one["join"]] = one["rate"]
    found = []
    for (percent, exponent, scattered), rates in sorted(groups.items()):
        ours = rates.pop("sweepjoin", None)
        if not rates:
            continue
        best = max(rates, key=lambda name: rates[name])
        least = 2.0 if exponent == 1.0 and percent <= 5 else 0.95
        ranks = "scattered" if scattered else "clustered"
        target = f"/ {best}: {percent:g} %, exponent {exponent:g}, {ranks}"
        found.append(Verdict(target, least, None, ours / rates[best] if ours else None))
    return found
