"""Writes the tables of docs/benchmarks.md from the results of the shapes and drain benchmarks.

    python -m lab.bench_tables                                  # from lab/results/
    python -m lab.bench_tables --results other/ --page page.md  # other files

A benchmark that has no results keeps its part of the page as it is.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console

from lab import tables
from lab.bench_shapes import RESULTS
from lab.drain import report as drain
from lab.shapes import report as shapes

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
PARTS = {"shapes": shapes.markdown, "drain": drain.markdown}


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    console, found = Console(), 0
    for name, markdown in PARTS.items():
        results = options.results / f"{name}.json"
        if not results.exists():
            console.print(f"{results} does not exist: run `make bench-{name}` first")
            continue
        tables.insert(options.page, name, markdown(json.loads(results.read_text())))
        console.print(f"{name}: written to {options.page}")
        found += 1
    return 0 if found else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON results")
    parser.add_argument("--page", type=Path, default=PAGE)
    return parser


if __name__ == "__main__":
    sys.exit(main())
