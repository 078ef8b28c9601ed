"""The results of the shapes benchmark as tables: on the screen, and as Markdown."""

from __future__ import annotations

from typing import Any

from lab.shapes.catalogue import SHAPES
from lab.shapes.cell import RIVAL
from lab.shapes.targets import OURS, Point, points, verdicts
from lab.tables import TROUBLES, Grid, about, grouped


def summary(cells: list[dict[str, Any]]) -> Grid:
    """SweepJoin in every shape, beside int64, the best published join and the alternative."""
    missed = {verdict.target for verdict in verdicts(cells) if not verdict.met}

    def marked(point: Point, other: str | None, shown: str) -> str:
        return f"{shown} (missed)" if f"{point.name}: / {other}" in missed else shown

    rows = []
    for point in points(cells):
        if OURS not in point.rates:
            continue
        least, best = SHAPES[point.shape].least, point.best_published
        published = "" if best is None else f"{_millions(point.published[best])} ({best})"
        rows.append(
            [
                SHAPES[point.shape].label,
                f"{point.rows / 1e6:g} M, {point.percent:g} %",
                _outcome(cells, point, OURS),
                marked(point, "int64", _times(point.share)),
                "" if least is None else f"{least:g}",
                published,
                marked(point, best, _times(point.times_published)),
                _outcome(cells, point, RIVAL),
                marked(point, RIVAL, _times(point.times_rival)),
            ]
        )
    heads = ["master table", "rows, memory", OURS, "/ int64", "target"]
    heads += ["best published", "ratio", "LRU + LMDB", "ratio"]
    return Grid(heads, rows, 2)


def all_joins(cells: list[dict[str, Any]]) -> Grid:
    """Every join in every shape, in million tuples per second."""
    found = points(cells)
    joins = list(dict.fromkeys(name for point in found for name in point.rates))
    rows = [
        [
            SHAPES[point.shape].label,
            f"{point.rows / 1e6:g} M, {point.percent:g} %",
            *[_outcome(cells, point, join) for join in joins],
        ]
        for point in found
    ]
    return Grid(["master table", "rows, memory", *joins], rows, 2)


def markdown(report: dict[str, Any]) -> str:
    """Both tables and the machine, for the docs."""
    cells = report["cells"]
    said = "Million tuples/s, one core. Targets: the share of the int64 rate as listed, at least "
    said += "as fast as the best published join, at least 3 times the alternative. "
    said += f"Measured for {_range(cells, 'seconds')} s after a warm-up of at most "
    said += f"{_range(cells, 'warm_seconds')} s."
    parts = [said, summary(cells).markdown(), "All joins:", all_joins(cells).markdown()]
    unsettled = [cell for cell in cells if cell.get("settled") is False]
    if unsettled:
        parts.append(
            "\\* The front stage had not settled, the cache was not full or the window had not "
            "turned over when the time for the warm-up was over."
        )
    return "\n\n".join([*parts, about(report)]) + "\n"


def _range(cells: list[dict[str, Any]], name: str) -> str:
    values = sorted({cell[name] for cell in cells})
    return " to ".join(f"{value:g}" for value in dict.fromkeys((values[0], values[-1])))


def _outcome(cells: list[dict[str, Any]], point: Point, join: str) -> str:
    """The rate, or why there is none."""
    where = (point.rows, point.percent, point.shape, join, False)
    cell = grouped(cells, "rows", "percent", "shape", "join", "is_reference").get(where)
    if cell is None:
        return ""
    for trouble, shown in TROUBLES.items():
        if trouble in cell:
            return shown
    return _millions(cell["rate"]) + ("" if cell["settled"] else "*")


def _millions(rate: float) -> str:
    return f"{rate / 1e6:.3g}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"
