"""Rate against memory: SweepJoin, the published joins, and what is used instead.

    python -m lab.rate_memory --prepare    # builds the tables, some minutes
    python -m lab.rate_memory --measure    # one run, about five minutes on a quiet machine
    python -m lab.rate_memory              # draws docs/images/rate-memory.svg from the run
    python -m lab.rate_memory --measure --rows 1000000   # a trial, which is only printed

Rates are per second of CPU time of the measured process, all of whose work is on one core with R in
the page cache: on a machine that others use, wall-clock rates would say more about them. A run
measures all cells one after the other and replaces lab/results/rate-memory.json as a whole,
so that a chart never mixes runs; one that takes longer than --minutes is given up. Cells are those
of ``lab.bench_rivals``, with shorter times.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

from lab import machine, rivals
from lab.bench_rivals import PACKAGES
from lab.rivals import launch, report
from lab.rivals.cell import Cell
from lab.rivals.data import RivalData

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "lab" / "results" / "rate-memory.json"
PICTURE = ROOT / "docs" / "images" / "rate-memory.svg"
ROWS = 10_000_000
MEMORY = ("1", "5", "10")  # percent of R
# rival and variant -> label, colour, and line style
LINES = {
    ("semistream", "sweepjoin"): ("SweepJoin, the default", "#2a78d6", "-"),
    ("semistream", "cmeshjoin"): ("CMESHJOIN", "#8b8a84", "-"),
    ("semistream", "chybridjoin"): ("CHYBRIDJOIN", "#8b8a84", "--"),
    ("semistream", "meshjoin"): ("MESHJOIN", "#8b8a84", "-."),
    ("semistream", "hybridjoin"): ("HYBRIDJOIN", "#8b8a84", ":"),
    ("lmdb", "in batches"): ("LMDB behind an LRU cache", "#eb6834", "-"),
    ("duckdb", "R loaded"): ("DuckDB, table loaded", "#eb6834", "--"),
    ("sqlite", "in batches"): ("SQLite", "#eb6834", ":"),
}


def cells(rows: int = ROWS) -> list[Cell]:
    return [
        Cell(
            rival=rival,
            variant=variant,
            rows=rows,
            memory=memory,
            exponent=1.0,
            batch=100_000,
            cold=False,
            seed=0,
            check_tuples=100_000,
            check_seconds=1.0,
            warm_tuples=3_000_000,
            warm_seconds=8.0,
            repeats=5,
            repeat_seconds=0.4,
            time_limit=45.0,
        )
        for memory in MEMORY
        for rival, variant in LINES
    ]


def prepare(cell: Cell) -> Path:
    data = RivalData(cell.rows, cell.seed)
    return launch.prepare(rivals.rival(cell.rival), cell.variant, data, print)


def measure(rows: int, minutes: float) -> int:
    run = machine.describe(PACKAGES)
    found = []
    until = time.monotonic() + 60 * minutes
    for cell in cells(rows):
        if time.monotonic() > until:
            print(f"given up after {minutes:g} minutes; {RESULTS.name} is as it was")
            return 1
        result = launch.run(cell, page_cache=prepare(cell))
        found.append(result)
        print(f"{cell.key}: {report.said(result)}", flush=True)
    held = {"machine": {**run, "load_after": machine.load()}, "cells": found}
    if rows == ROWS:
        RESULTS.write_text(json.dumps(held, indent=1) + "\n")
    return 1 if any(report.is_wrong(cell) for cell in found) else 0


def caption(held: dict[str, Any]) -> str:
    """What the README says below the chart, on one line."""
    loads = [cell["load"][0] for cell in held["cells"]]
    cores = held["machine"]["cores"]
    where = f"a quiet machine (load {max(loads):.1f} at most on {cores} cores)"
    if max(loads) > cores:
        where = f"a machine that others used (load up to {max(loads):.0f} on {cores} cores)"
    filling = sum(not cell.get("steady", True) for cell in held["cells"])
    marks = f"a hollow mark ({filling} of {len(held['cells'])}) was still filling its window. "
    return (
        f"R has {ROWS // 10**6} million rows of 113 bytes in a warm page cache; the stream's keys "
        "are Zipf(1), scattered, in batches of 100,000; every answer is checked. A process may use "
        "256 MiB more for its libraries, where DuckDB keeps a part of the table. One run on "
        f"{held['machine']['time'][:10]}, on {where}, rates per second of CPU time"
        f"{'; ' + marks if filling else '. '}"
        "`python -m lab.rate_memory` draws it from `lab/results/rate-memory.json`."
    )


def write_caption(held: dict[str, Any], readme: Path) -> None:
    head, begin, rest = readme.read_text().partition("<!-- rate-memory -->\n")
    _, end, tail = rest.partition("\n<!-- end -->")
    assert begin
    assert end
    text = textwrap.fill(caption(held), 120, break_on_hyphens=False)
    readme.write_text(head + begin + text + end + tail)


def unsteady(held: dict[str, Any], line: tuple[str, str]) -> list[float]:
    """Percents at which a line's window or cache was still filling."""
    return [
        float(cell["memory"])
        for cell in held["cells"]
        if (cell["rival"], cell["variant"]) == line and not cell.get("steady", True)
    ]


def rates(held: dict[str, Any]) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Percent of R, tuples per CPU second; cells without a rate are left out."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {line: [] for line in LINES}
    for cell in held["cells"]:
        if cell["outcome"] == "right" and cell.get("rate"):
            line = found[cell["rival"], cell["variant"]]
            line.append((float(cell["memory"]), cell["rows_out"] / cell["processor_seconds"]))
    return found


def draw(held: dict[str, Any], path: Path) -> None:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    style = {
        "font.size": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "semistream",  # the same file for the same figures
        "svg.fonttype": "path",
    }
    with rc_context(style):
        figure = Figure(figsize=(8.2, 4.3), layout="constrained", facecolor="white")
        axis = figure.subplots()
        ends = []
        for line, points in rates(held).items():
            if not points:
                continue
            label, colour, dashes = LINES[line]
            memory, rate = zip(*sorted(points), strict=True)
            ours = line == ("semistream", "sweepjoin")
            axis.plot(memory, rate, dashes, color=colour, lw=2.6 if ours else 1.5, marker="o", ms=4)
            hollow = [(m, r) for m, r in points if m in unsteady(held, line)]
            if hollow:
                axis.plot(
                    *zip(*hollow, strict=True), "o", color=colour, mfc="white", ms=5, zorder=4
                )
            ends.append([rate[-1], memory[-1], label, colour])
        axis.set(xscale="log", yscale="log")
        axis.set_xlim(0.9, 11)
        for end, height in zip(sorted(ends), _apart([end[0] for end in sorted(ends)]), strict=True):
            axis.annotate(
                end[2],
                (end[1], height),
                xytext=(10, 0),
                textcoords="offset points",
                color=end[3],
                va="center",
                annotation_clip=False,
            )
        axis.set_xticks([float(m) for m in MEMORY], [f"{m} %" for m in MEMORY], minor=False)
        axis.minorticks_off()
        low, high = axis.get_ylim()
        ticks = [m * 10**e for e in range(3, 8) for m in (1, 3) if low <= m * 10**e <= high]
        axis.set_yticks(ticks, [f"{t / 1e6:g} M" for t in ticks])
        axis.grid(color="#ecebe7")
        axis.set_xlabel("memory, in percent of the table")
        axis.set_title(
            "stream tuples joined per second of CPU time, one core", loc="left", fontsize=12
        )
        figure.savefig(path, metadata={"Date": None})


def _apart(heights: list[float], factor: float = 1.24) -> list[float]:
    """The same heights, moved up where labels would overlap."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] * factor) if placed else height)
    return placed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--prepare", action="store_true", help="build the tables, measure nothing")
    parser.add_argument("--measure", action="store_true", help="measure everything again")
    parser.add_argument("--rows", type=int, default=ROWS, help="another size: a trial, not kept")
    parser.add_argument("--minutes", type=float, default=20, help="give a measurement up after")
    options = parser.parse_args(arguments)
    if options.prepare:
        for cell in cells(options.rows)[: len(LINES)]:
            prepare(cell)
        return 0
    code = measure(options.rows, options.minutes) if options.measure else 0
    if code or options.rows != ROWS:
        return code
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    held = json.loads(RESULTS.read_text())
    draw(held, PICTURE)
    write_caption(held, ROOT / "README.md")
    print(f"written to {PICTURE.relative_to(ROOT)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
