"""A plot of ratios: every variant's rate relative to our default join at the same point."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab import rivals
from lab.rivals.grid import Point, Size
from lab.rivals.report import REFERENCE, Held, columns, lookup, variants

# Lightness and shape both differ, so that the plot is readable in greyscale.
MARKS = (("#08306b", "o"), ("#2f7fbc", "s"), ("#f08a24", "^"), ("#c9c9c9", "D"))
_LEAST, _MOST = 1e-4, 20.0

RATE, FILLING, STOPPED = "rate", "still filling", "stopped"


def kind(cell: dict[str, Any]) -> str:
    """Whether a cell has a rate, was still filling when its time was over, or was stopped.

    A cell that is still filling may not have served a tuple yet, which does not mean it was killed.
    """
    if not cell["outcome"].startswith(("right", "cut")):
        return STOPPED
    if not cell.get("steady", True):
        return FILLING
    return RATE if cell.get("rate") else STOPPED


def ratios(results: Held, size: Size, path: Path) -> Path:
    """One panel per axis of the grid that was measured."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    found = lookup(results)
    names = [pair for pair in variants() if any(key[:2] == pair for key in found)]
    labels = [f"{rivals.rival(name).name}: {variant}" for name, variant in names]
    panels = _panels(results, size)
    style = {"font.size": 15, "axes.spines.top": False, "axes.spines.right": False}
    with rc_context(style):
        height = 2.6 + 0.42 * len(names)
        figure = Figure(figsize=(6.4 + 5.4 * len(panels), height), layout="constrained")
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, (title, points) in zip(axes, panels.items(), strict=True):
            _panel(axis, found, names, points)
            axis.set_title(title, loc="left", fontsize=16)
            axis.set_xlabel(f"rate / rate of {REFERENCE[1]}")
        axes[0].set_yticks(range(len(names)), labels)
        axes[0].set_ylim(len(names) - 0.4, -0.6)
        figure.savefig(path, dpi=100)
    return path


def _panels(results: Held, size: Size) -> dict[str, dict[str, Point]]:
    """Points by panel and label; an axis of which only the centre was measured has no panel."""
    measured = set(columns(results, size).values())
    centre, slices = size.centre, size.slices()
    label = {
        "memory": lambda p: "all of R" if p.memory == "all" else f"{p.memory} % of R",
        "batch": lambda p: f"{p.batch:,} tuples a batch",
        "exponent": lambda p: f"exponent {p.exponent:g}",
    }
    keys: dict[str, Any] = {
        "memory": lambda p: float("inf") if p.memory == "all" else float(p.memory),
        "batch": lambda p: p.batch,
        "exponent": lambda p: p.exponent,
    }
    panels = {}
    for name, describe in label.items():
        points = sorted({centre, *slices.get(name, [])} & measured, key=keys[name])
        if len(points) > 1:
            panels[f"by {name}"] = {describe(point): point for point in points}
    return panels or {"centre": {label["memory"](centre): centre}}


def _panel(
    axis: Any,
    found: dict[tuple[str, str, Point], dict[str, Any]],
    names: list[tuple[str, str]],
    points: dict[str, Point],
) -> None:
    axis.set_xscale("log")
    axis.axvline(1.0, color="#444444", linewidth=1.5)
    for row in range(len(names)):
        axis.axhline(row, color="#e4e4e4", linewidth=1, zorder=0)
    seen = set()
    for number, (label, point) in enumerate(points.items()):
        colour, mark = MARKS[number % len(MARKS)]
        reference = found.get((*REFERENCE, point), {}).get("rate")
        shift = 0.2 * (number - (len(points) - 1) / 2)
        drawn: dict[str, list[tuple[float, float]]] = {RATE: [], FILLING: []}
        for row, pair in enumerate(names):
            cell = found.get((*pair, point))
            if cell is None:
                continue
            which = kind(cell) if reference else STOPPED
            seen.add(which)
            if which == STOPPED:
                axis.plot(_LEAST, row + shift, "x", color="#222222", markersize=7, clip_on=False)
            else:
                ratio = min(_MOST, max(_LEAST, (cell.get("rate") or 0.0) / reference))
                drawn[which].append((ratio, row + shift))
        for which, places in drawn.items():
            axis.plot(
                [x for x, _ in places],
                [y for _, y in places],
                mark,
                color=colour if which == RATE else "white",
                markeredgecolor="#222222" if which == RATE else colour,
                markeredgewidth=0.8 if which == RATE else 2.0,
                markersize=8,
                label=label if which == RATE else None,
                clip_on=which == RATE or not places,  # a rate of 0 is on the edge
            )
    if FILLING in seen:
        hollow = {"color": "white", "markeredgecolor": "#222222", "markeredgewidth": 2.0}
        axis.plot([], [], "o", **hollow, label="hollow: still filling")
    if STOPPED in seen:
        axis.plot([], [], "x", color="#222222", label="killed, refused or failed")
    axis.set_xlim(_LEAST, _MOST)
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.04), ncols=2, frameon=False, fontsize=13)
