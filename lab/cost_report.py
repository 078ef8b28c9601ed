"""The cost benchmark's results: a line per cell, the errors, the targets, a plot."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

TUNED, AUTO = 0.95, 0.9  # targets: least share of the best setting, and of the best join


def line(part: str, entry: dict[str, Any]) -> str:
    """What was found, for the one who waits."""
    if part == "rates":
        return _rate_line(entry)
    name = f"{part}: {entry['name']}: "
    if part in ("grid", "auto"):
        picked = f" ({entry['picked']}, best {entry['best_join']})" if part == "auto" else ""
        return name + f"{entry['rate'] / entry['best']:.2f} of the best{picked}"
    if part == "moved":
        soon = entry["seconds_until"]
        when = "never" if soon is None else f"after {soon:g} s"
        return name + f"{entry['last'] / entry['tuned']:.2f} of the tuned rate; near {when}"
    if "rate" not in entry:
        return name + "out of reach"
    return (
        name
        + f"{entry['percent']:.2f} % gives {entry['rate']:.0f}, 80 %: {entry['rate_at_80']:.0f}"
    )


def _rate_line(cell: dict[str, Any]) -> str:
    if "rate" not in cell:
        return f"{cell['name']}: refused"
    ratio = cell["predicted"] / cell["rate"]
    return (
        f"{cell['name']}: {cell['rate'] / 1e6:.3f} M, predicted {cell['predicted'] / 1e6:.3f} M "
        f"({ratio:.2f}); hit {cell['hit']:.2f} / {cell['predicted_hit']:.2f}"
    )


_CELL = ("rows", "percent", "exponent", "scattered", "drained", "kind")  # one for all joins


def errors(cells: list[dict[str, Any]]) -> Any:
    """|predicted / measured - 1| of every cell."""
    return np.array([abs(c["predicted"] / c["rate"] - 1) for c in cells if "predicted" in c])


def pairs(cells: list[dict[str, Any]]) -> tuple[int, int]:
    """(pairs in the right order, pairs) of joins in one cell that differ by more than 20 %."""
    right = total = 0
    groups: dict[Any, list[dict[str, Any]]] = {}
    for cell in cells:
        if "predicted" in cell:
            key = tuple(cell[k] for k in _CELL)
            groups.setdefault(key, []).append(cell)
    for group in groups.values():
        for a, b in combinations(group, 2):
            if max(a["rate"], b["rate"]) > 1.2 * min(a["rate"], b["rate"]):
                total += 1
                right += (a["rate"] > b["rate"]) == (a["predicted"] > b["predicted"])
    return right, total


def summary(report: dict[str, Any]) -> dict[str, Any]:
    """The figures that the targets are about."""
    targets: list[dict[str, Any]] = []

    def target(what: str, value: float, limit: float, most: bool) -> None:
        met = value <= limit if most else value >= limit
        targets.append({"target": what, "value": float(value), "limit": limit, "met": bool(met)})

    if report["rates"]:
        found = errors(report["rates"])
        target("median error", float(np.median(found)), 0.15, True)
        right, total = pairs(report["rates"])
        if total:
            target("pairs of joins in the right order", right / total, 0.9, False)
        within = float(np.mean(found <= 0.30))
        target("share of predictions within 30 %", within, 0.9, False)
    if report["grid"]:
        parts = [entry["rate"] / entry["best"] for entry in report["grid"]]
        target("tuned setting / best of the grid, least", min(parts), TUNED, False)
    if report["auto"]:
        parts = [entry["rate"] / entry["best"] for entry in report["auto"]]
        target("join that auto picks / best join, least", min(parts), AUTO, False)
    least = [entry for entry in report["least"] if "rate" in entry]
    if least:
        served = [entry["rate"] / entry["wanted"] for entry in least]
        less = [entry["rate_at_80"] / entry["wanted"] for entry in least]
        target("rate at the least memory / wanted, least", min(served), 1.0, False)
        target("rate at 80 % of it / wanted, most", max(less), 1.0, True)
    if report["moved"]:
        parts = [entry["last"] / entry["tuned"] for entry in report["moved"]]
        target("running query / tuned for the new state, least", min(parts), 0.9, False)
    return {"targets": targets}


def show(report: dict[str, Any], console: Console) -> None:
    by_join: dict[str, list[dict[str, Any]]] = {}
    for cell in report["rates"]:
        by_join.setdefault(cell["join"], []).append(cell)
    if by_join:
        table = Table("join", "cells", "median error", "nine in ten", box=None)
        for name, cells in by_join.items():
            found = errors(cells)
            table.add_row(
                name,
                str(len(found)),
                f"{np.median(found):.0%}",
                f"{np.quantile(found, 0.9):.0%}",
            )
        console.print(table)
    table = Table("target", "value", "limit", "", box=None)
    for entry in report.get("summary", {"targets": []})["targets"]:
        verdict = "met" if entry["met"] else "missed"
        table.add_row(entry["target"], f"{entry['value']:.2f}", f"{entry['limit']:.2f}", verdict)
    console.print(table)


def plot(report: dict[str, Any], path: Path) -> None:
    """Predicted against measured, one colour per join."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 5))
    axes = figure.subplots()
    for name in dict.fromkeys(cell["join"] for cell in report["rates"]):
        some = [c for c in report["rates"] if c["join"] == name and "predicted" in c]
        axes.loglog([c["rate"] for c in some], [c["predicted"] for c in some], "o", label=name)
    ends = np.array([2e3, 2e7])
    axes.loglog(ends, ends, color="black", linewidth=1)
    for ratio in (0.7, 1.3):
        axes.loglog(ends, ratio * ends, color="grey", linewidth=0.7, linestyle="--")
    axes.set_xlabel("measured tuples/s")
    axes.set_ylabel("predicted tuples/s")
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
