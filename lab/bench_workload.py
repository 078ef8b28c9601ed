"""The speed of the generators, on one core.

    python -m lab.bench_workload

Rates are the best of several runs, in million tuples (or rows) a second; results go to
lab/results/workload.json. The exit code is 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from lab import machine
from semistream import workload
from semistream.workload import arrivals, locality

RESULTS = Path(__file__).resolve().parent / "results" / "workload.json"
DOMAIN = 20_000_000
REPEATS = 5
_TARGET = 10.0


def _drain(batches: Iterable[Any]) -> None:
    for _ in batches:
        pass


# Name, target in millions per second, and a function that generates n of them.
CASES: list[tuple[str, float | None, Callable[[int], Any]]] = [
    *(
        (
            f"zipf, exponent {exponent:g}{', scattered' if scattered else ''}",
            _TARGET,
            lambda n, e=exponent, s=scattered: workload.zipf(n, DOMAIN, e, scattered=s),
        )
        for exponent in (0.0, 0.5, 1.0, 1.2)
        for scattered in (False, True)
    ),
    (
        "zipf, exponent 1, a billion keys, scattered",
        _TARGET,
        lambda n: workload.zipf(n, 1_000_000_000, scattered=True),
    ),
    (
        "zipf, exponent 1, integral method",
        _TARGET,
        lambda n: workload.zipf(n, DOMAIN, method="integral"),
    ),
    (
        "sales as Arrow batches",
        _TARGET,
        lambda n: _drain(workload.sales(n, DOMAIN, scattered=True)),
    ),
    (
        "sales with unmatched and null keys",
        _TARGET,
        lambda n: _drain(
            workload.sales(n, DOMAIN, scattered=True, stride=2, unmatched=0.1, nulls=0.05)
        ),
    ),
    (
        "sales with temporal locality",
        _TARGET,
        lambda n: _drain(workload.sales(n, DOMAIN, keys=locality.intervals(DOMAIN))),
    ),
    (
        "sales with a shifting hot set",
        _TARGET,
        lambda n: _drain(workload.sales(n, DOMAIN, keys=locality.shifting(DOMAIN))),
    ),
    ("products of 113 bytes", 5.0, lambda n: _drain(workload.products(n))),
    ("products, shuffled", 5.0, lambda n: _drain(workload.products(n, shuffled=True))),
    ("Poisson arrivals", _TARGET, lambda n: arrivals.poisson(n // 1_000, 1_000.0)),
    ("bursty arrivals", _TARGET, lambda n: arrivals.bursty(n // 1_000, 1_000.0)),
]


def rate(make: Callable[[int], Any], n: int) -> float:
    """Best rate of several runs, after a warm-up run that loads the compiled code."""
    make(1_000)
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        make(n)
        seconds.append(time.perf_counter() - start)
    return n / min(seconds)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tuples", type=int, default=5_000_000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    core = machine.pin_to_one_core()
    about = machine.describe()
    console, cells = Console(), []
    for name, least, make in track(CASES, "measuring", console=console, transient=True):
        measured = rate(make, options.tuples) / 1e6
        met = least is None or measured >= least
        cells.append({"case": name, "millions_per_second": measured, "least": least, "met": met})
    report = {"tuples": options.tuples, "domain": DOMAIN, "core": core, "machine": about}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({**report, "cells": cells}, indent=1) + "\n")
    console.print(_table(cells))
    console.print(f"written to {options.out}")
    return 0 if all(cell["met"] for cell in cells) else 1


def _table(cells: list[dict[str, Any]]) -> Table:
    table = Table("generator", "M/s", "least", "", title="one core, best of five")
    for cell in cells:
        least = "" if cell["least"] is None else f"{cell['least']:g}"
        verdict = "met" if cell["met"] else "[red]missed[/red]"
        table.add_row(cell["case"], f"{cell['millions_per_second']:.1f}", least, verdict)
    return table


if __name__ == "__main__":
    sys.exit(main())
