"""The results of the benchmark of changing tables: on the screen, and as Markdown for the docs."""

from __future__ import annotations

from typing import Any

from lab.tables import Grid

LAST_TO_FIRST = {"upserts": 0.8}  # target: at least. Where ever more rows change, it must fall.
WORST_TO_MEDIAN = {"upserts": 5.0, "rates": 3.0, "appends": 3.0}  # targets: at most


def changes(cells: list[dict[str, Any]]) -> Grid:
    heads = ["cell", "mode", "changed rows/s", "M rows/s", "last/first tenth", "median push, ms",
             "worst push, ms", "worst CPU, ms", "worst/median", "of all rounds", "hit rate",
             "versions"]  # fmt: skip
    rows = [
        [c["cell"], c["mode"], f"{c['rows_per_second']:,.0f}", f"{c['rate'] / 1e6:.2f}",
         _marked(f"{c['last_to_first']:.2f}", c["last_to_first"] < LAST_TO_FIRST.get(c["cell"], 0)),
         f"{1e3 * c['median_push']:.1f}", f"{1e3 * c['worst_push']:.1f}",
         f"{1e3 * c['worst_cpu']:.1f}",
         _marked(f"{c['worst_to_median']:.1f}", _is_too_long(c)),
         ", ".join(f"{ratio:.1f}" for ratio in c.get("rounds", [])),
         f"{c['hit_rate']:.0%}", str(c["versions"])]
        for c in cells if "source" not in c
    ]  # fmt: skip
    return Grid(heads, rows, names=2)


def syncs(cells: list[dict[str, Any]]) -> Grid:
    heads = ["source", "mode", "sync, s", "rows read", "changed", "build, s",
             "M rows/s before", "during", "worst/median push"]  # fmt: skip
    rows = [
        [c["source"], c["mode"], f"{c['sync']['seconds']:.2f}", f"{c['sync']['rows_read']:,}",
         f"{c['changed']:,}", f"{c['build_seconds']:.1f}", f"{c['rate_before'] / 1e6:.2f}",
         f"{c['rate'] / 1e6:.2f}", f"{c['worst_to_median']:.1f}"]
        for c in cells if c["cell"] == "sync"
    ]  # fmt: skip
    return Grid(heads, rows, names=2)


def kills(cells: list[dict[str, Any]]) -> Grid:
    heads = ["source", "changed", "whole sync, s", "rows read", "killed", "ended before",
             "last sync, s", "rows read"]  # fmt: skip
    rows = [
        [c["source"], f"{c['changed']:,}", f"{c['whole']['seconds']:.2f}",
         f"{c['whole']['rows_read']:,}", str(c["kills"]), str(c["published"]),
         f"{c['last']['seconds']:.2f}", f"{c['last']['rows_read']:,}"]
        for c in cells if c["cell"] == "killed"
    ]  # fmt: skip
    return Grid(heads, rows, names=1)


def is_missed(cell: dict[str, Any]) -> bool:
    return _is_too_long(cell) or cell.get("last_to_first", 1) < LAST_TO_FIRST.get(cell["cell"], 0)


def _is_too_long(cell: dict[str, Any]) -> bool:
    """Whether the worst push was, while the table changed; syncs have no target."""
    most = WORST_TO_MEDIAN.get(cell["cell"])
    return bool(most and cell["rows_per_second"] and cell["worst_to_median"] > most)


def markdown(report: dict[str, Any]) -> str:
    cells, machine = report["cells"], report["machine"]
    kinds = {"sync": syncs, "killed": kills}
    grid = kinds.get(cells[0]["cell"], changes)(cells)
    rows = f"R = {report['rows'] / 1e6:g} million rows"
    load = f"load average {machine['load'][0]:.1f} when it began"
    return (
        f"\n{grid.markdown()}\n\n{rows}; measured at {machine['time']}, {machine['processor']}, "
        f"{machine['cores']} cores, {load}.\n\n"
    )


def _marked(shown: str, is_missed: bool) -> str:
    return f"{shown} (missed)" if is_missed else shown
