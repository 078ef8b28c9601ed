"""Writes the tables and pictures of docs/overload.md from the results of the shedding benchmark.

    python -m lab.shedding.page                     # from lab/results/shedding-small-*.json
    python -m lab.shedding.page --size full

A part that has no results keeps its place on the page as it is.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from lab import tables
from lab.bench_engine import RESULTS
from lab.shedding.plot import plot_burst, plot_figures
from lab.shedding.report import markdown

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "overload.md"
PARTS = ("figure6", "2011", "this", "cached", "burst-2011", "burst", "ready")
PICTURES = {"burst-2011": "overload.png", "burst": "overload-disk.png"}
FIGURES = ("figure6", "2011", "this")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--size", default="small")
    options = parser.parse_args(arguments)
    reports: dict[str, dict[str, Any]] = {}
    for part in PARTS:
        path = options.results / f"shedding-{options.size}-{part}.json"
        if path.exists():
            reports[part] = json.loads(path.read_text())
            tables.insert(options.page, f"shedding {part}", markdown(reports[part]))
    for part, picture in PICTURES.items():
        if part in reports:
            plot_burst(reports[part]["burst"], options.page.parent / picture)
    if all(part in reports for part in FIGURES):
        plot_figures(reports, options.page.parent / "overload-figures.png")
    print(f"{', '.join(reports) or 'nothing'}: written to {options.page}")
    return 0 if reports else 1


if __name__ == "__main__":
    sys.exit(main())
