"""The results of the drain benchmark as a table and as verdicts."""

from __future__ import annotations

from typing import Any

from lab.shapes.targets import Verdict
from lab.tables import TROUBLES, Grid, about

# The least ratio to the alternative by batch size, for joins whose tuples wait for each other.
LEAST = ((100_000, 5.0), (10_000, 3.0), (1_000, 2.0), (100, 1.0))
LEAST_ONE_BY_ONE = 0.5  # for joins that look every tuple up on its own
ONE_BY_ONE = ("inlj", "cinlj")


def least(join: str, batch: int) -> float | None:
    """The target for this join and batch size; None: there is none."""
    if join in ONE_BY_ONE:
        return LEAST_ONE_BY_ONE
    return next((ratio for smallest, ratio in LEAST if batch >= smallest), None)


def ratio(size: dict[str, Any]) -> float:
    """How many times as fast as the alternative, by the median batch."""
    return float(size["rival"]["median"] / size["join"]["median"])


def verdicts(cells: list[dict[str, Any]]) -> list[Verdict]:
    """The targets of all cells; a cell without figures misses all of its own."""
    found = []
    for cell in cells:
        measured = {size["batch"]: size for size in cell.get("sizes", ())}
        for batch in cell["batches"]:
            wanted, size = least(cell["join"], batch), measured.get(batch)
            if wanted is None:
                continue
            name = f"{where(cell)}, batches of {batch:,}"
            found.append(Verdict(name, wanted, None if size is None else ratio(size)))
            if size is not None and "cold" in size:
                found.append(Verdict(f"{name}, LMDB cold", wanted, ratio(size["cold"])))
    return found


def where(cell: dict[str, Any]) -> str:
    return f"{cell['join']}, {cell['percent']:g} % of {cell['rows']:,} rows, {cell['mode']}"


def grid(cells: list[dict[str, Any]]) -> Grid:
    """A row for each batch size of each cell."""
    rows = []
    for cell in cells:
        head = [cell["join"], f"{cell['rows'] / 1e6:g} M, {cell['percent']:g} %", cell["mode"]]
        for trouble, shown in TROUBLES.items():
            if trouble in cell:
                rows.append([*head, "", shown, *[""] * 8])
        for size in cell.get("sizes", ()):
            rows.append([*head, "warm", *_figures(cell["join"], size["batch"], size)])
            if "cold" in size:
                rows.append([*head, "cold", *_figures(cell["join"], size["batch"], size["cold"])])
    heads = ["join", "rows, memory", "reads", "LMDB", "batch", "median ms", "p99 ms"]
    heads += ["LMDB median ms", "LMDB p99 ms", "M tuples/s", "LMDB M tuples/s", "ratio", "target"]
    return Grid(heads, rows, 4)


def _figures(join: str, batch: int, timed: dict[str, Any]) -> list[str]:
    """The cells of a row, from the batch size on."""
    wanted, reached = least(join, batch), ratio(timed)
    missed = " (missed)" if wanted is not None and reached < wanted else ""
    return [
        f"{batch:,}",
        *[_milliseconds(timed[side][of]) for side in _SIDES for of in ("median", "p99")],
        *[f"{timed[side]['rate'] / 1e6:.3g}" for side in _SIDES],
        f"{reached:.2f}{missed}",
        "" if wanted is None else f"{wanted:g}",
    ]


_SIDES = ("join", "rival")


def markdown(report: dict[str, Any]) -> str:
    """The table and the machine, for the docs."""
    said = (
        "The time of one batch, pushed and flushed; the alternative is an LRU of equal memory in "
        "front of LMDB, given the same batches in turns; for INLJ and CINLJ, LMDB alone. Warm: all "
        "of LMDB's file is in the page cache. Cold: its pages with rows are dropped from the page "
        "cache before every batch, so that both sides read them from the disk. The ratio is that "
        "of the medians."
    )
    return "\n\n".join([said, grid(report["cells"]).markdown(), about(report)]) + "\n"


def _milliseconds(seconds: float) -> str:
    return f"{1_000 * seconds:.3g}"
