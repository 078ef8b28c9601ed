"""Writes the tables of results into the pages of docs/.

    python -m lab.bench_tables                                  # from lab/results/
    python -m lab.bench_tables --results other/ --docs pages/   # other folders
    python -m lab.bench_tables --page page.md                   # one page for all tables

A benchmark that has no results keeps its part of the page as it is.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from lab import bench_conditions as conditions
from lab import tables
from lab.bench_shapes import RESULTS
from lab.changes import report as changes
from lab.drain import report as drain
from lab.shapes import report as shapes

DOCS = Path(__file__).resolve().parent.parent / "docs"
# By name of the results: the page and what makes its table.
PARTS: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "shapes": ("benchmarks.md", shapes.markdown),
    "drain": ("benchmarks.md", drain.markdown),
    "conditions": ("conditions.md", conditions.markdown),
    "changes": ("changing-tables.md", changes.markdown),
    "appends": ("changing-tables.md", changes.markdown),
    "sync-delta-feed": ("changing-tables.md", changes.markdown),
    "sync-delta-files": ("changing-tables.md", changes.markdown),
    "sync-postgresql": ("changing-tables.md", changes.markdown),
    "sync-kafka": ("changing-tables.md", changes.markdown),
    "killed-delta-feed": ("changing-tables.md", changes.markdown),
    "killed-postgresql": ("changing-tables.md", changes.markdown),
    "killed-kafka": ("changing-tables.md", changes.markdown),
}


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    console, found = Console(), 0
    for name, (page, markdown) in PARTS.items():
        results = options.results / f"{name}.json"
        if not results.exists():
            console.print(f"{results} does not exist: the table stays as it is")
            continue
        target = options.page or options.docs / page
        tables.insert(target, name, markdown(json.loads(results.read_text())))
        console.print(f"{name}: written to {target}")
        found += 1
    return 0 if found else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON results")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of the pages")
    parser.add_argument("--page", type=Path, help="one page for all tables")
    return parser


if __name__ == "__main__":
    sys.exit(main())
