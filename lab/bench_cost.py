"""The cost benchmark: what the models predict beside what is measured. On a quiet machine:

    python -m lab.bench_cost --size small --parts rates --passes 3      # R = 2 million rows
    python -m lab.bench_cost --size full --parts rates --passes 2       # R = 20 million rows
    python -m lab.bench_cost --size small --parts grid      # some 15 minutes
    python -m lab.bench_cost --size small --parts auto      # some 15 minutes
    python -m lab.bench_cost --size small --parts least     # some 4 minutes
    python -m lab.bench_cost --size small --parts moved     # some 4 minutes
    python -m lab.cost_docs    # tables and plot for docs/tuning.md

1. rates: predicted against measured, for all joins, budgets, exponents; text keys, deltas and
   drained batches for four of them.
2. grid: the tuner's settings against the best of a grid that is measured exhaustively.
   auto: the join that auto picks against the best of all, for streams and drained batches.
3. least: the least memory for a rate. At it the run serves the rate, at 80 % of it it does not. The
   machine is calibrated before and after each of these cells: unlike in ``grid`` and ``auto``,
   where rates are compared with each other, a host that has become slower since would look like an
   error. If it has, the cell is measured again.
4. moved: after the hot keys have moved, and after R has doubled, a running query against one that
   is tuned for the new state.

``--minutes`` ends the run after the cell that exceeds it. The next run of the same commit goes on
with the cells that are missing; results of another commit are discarded (``--fresh``: always).
What is compared in ``grid``, ``auto`` and ``least`` is open at the same time, has learned, and is
measured in 16 turns, of which the middle half counts; in up to 96, while it is in doubt whether a
target of ``grid`` or ``auto`` is met. ``--rounds`` opens what is compared there anew as often.
Cells are in a fixed random order, so that a slice is a sample of all; special tables come last. The
machine is calibrated once per table, and again every 100 s. Results go to
lab/results/cost-small.json or cost.json after every cell. A rate is tuples per second of processor
time; where other processes run, this compares better than the clock. Other guests of the same host
can still halve the speed of a core for some seconds: with ``--passes`` all rates are measured
again, in later passes, and the best of a cell's rates counts (all are kept). The exit code is 1 if
a target is missed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

import semistream as ss
from lab import cost_moved, cost_report, machine
from lab.bench_turns import is_decided
from lab.cost_cell import (
    CostCell,
    Turns,
    case_of,
    in_turns,
    measure,
    middle_rate,
    predicted,
    settled,
)
from lab.cost_data import KINDS, CostData
from semistream.cost import Machine
from semistream.errors import BudgetError
from semistream.tuning.calibrate import calibrate
from semistream.tuning.search import settings_of, tuned
from semistream.tuning.tuner import HEADROOM

RESULTS = Path(__file__).resolve().parent / "results"
PARTS = ("rates", "grid", "auto", "least", "moved")
SOME = ("sweepjoin", "hybridjoin", "cinlj", "meshjoin")
TUNABLE = tuple(name for name in ss.ALGORITHMS if name != "inlj")
_GRID = {"disk_buffer_pages": 3, "front_stage": 4, "pinned": 3, "group_pages": 2}  # values each
_NEAR = 0.8  # of the best: such a setting or join is measured again
_AGAIN = 3  # of them, at most,
_TURNS = 16  # in so many turns
_CALIBRATED = 100.0  # seconds, after which the machine is calibrated again
# Of ``least``: SweepJoin serves less with the smallest budget that it takes.
_LEAST_RATES = {"sweepjoin": (1e6, 3e6), "meshjoin": (3e5, 1e6), "chybridjoin": (3e5, 1e6)}
_LEAST_TRIES = 4  # of a comparison of ``least``,
_SAME_HOST = 0.05  # if the host's speed has changed by more meanwhile
_FEW = 6  # cells: all of them are measured in turns


@dataclass(frozen=True)
class Size:
    """Which cells, and how long: seconds of processor time before and while it is measured."""

    rows: int
    warm_seconds: float
    seconds: float
    file: str
    percents: tuple[float, ...] = (1, 2, 5, 10, 20)
    exponents: tuple[float, ...] = (0.0, 0.5, 1.0)
    grid_rows: int = 1_000_000
    grid_percents: tuple[float, ...] = (2, 5, 20)
    auto_rows: tuple[int, ...] = (500_000, 2_000_000)
    auto_percents: tuple[float, ...] = (2, 10)
    moved_rows: int = 500_000
    moved_seconds: float = 6.0


SIZES = {
    "small": Size(2_000_000, 2.5, 0.5, "cost-small.json"),
    "full": Size(
        20_000_000, 6.0, 0.8, "cost.json",
        grid_rows=2_000_000, auto_rows=(2_000_000, 20_000_000), moved_rows=2_000_000,
        moved_seconds=20.0,
    ),
}  # fmt: skip


def rate_cells(size: Size) -> Iterator[CostCell]:
    """Streams of all joins; drained batches, text keys and deltas of four."""
    times = {"warm_seconds": size.warm_seconds, "seconds": size.seconds}
    for percent, exponent in itertools.product(size.percents, size.exponents):
        for name in ss.ALGORITHMS:
            yield CostCell(name, size.rows, percent, exponent, **times)
    for name in SOME:
        for batch in (1_000, 100_000):
            yield CostCell(name, size.rows, 10, 1.0, drained=batch, **times)
        for kind in KINDS[1:]:
            yield CostCell(name, size.rows, 10, 1.0, kind=kind, **times)


def auto_cells(size: Size) -> Iterator[CostCell]:
    """Where auto must choose: R, memory, exponent, ranks, drained or not."""
    for rows, percent, exponent, scattered, drained in itertools.product(
        size.auto_rows, size.auto_percents, (0.0, 1.0), (True, False), (0, 1_000, 50_000)
    ):
        if exponent or scattered:  # a uniform stream has no ranks
            yield CostCell("auto", rows, percent, exponent, scattered, drained)


def compare(cell: CostCell, factors: Machine) -> dict[str, Any]:
    """Predict a cell, and measure it."""
    try:
        found = predicted(cell, cell.data, factors)
    except BudgetError as error:
        return {**vars(cell), "name": cell.name, "refused": str(error)}
    result = measure(settled(cell, found))
    result |= {"predicted": found.rate, "predicted_hit": found.front_share}
    result["predicted_pages"] = found.pages_per_tuple
    result["predicted_iterations"] = 1.0 / found.tuples_per_iteration
    return {**result, "name": cell.name}


def best_of(
    cells: list[CostCell], always: CostCell, least: float, rounds: int = 1
) -> dict[CostCell, float]:
    """The rates of the best of these cells, and of ``always``: all are measured briefly, the best
    ones again, in turns. Of many brief measurements the highest one is too high. Turns go on while
    ``always`` is neither clearly above nor below ``least`` times the best one."""
    brief = {"warm_seconds": 0.35, "seconds": 0.15}
    every = list(dict.fromkeys([*cells, always]))
    if len(every) <= _FEW:
        near = every
    else:
        rates = {cell: measure(replace(cell, **brief)).get("rate", 0.0) for cell in every}
        best = max(rates.values())
        ranked = sorted(every, key=lambda cell: -rates[cell])
        near = [cell for cell in ranked if rates[cell] >= _NEAR * best][:_AGAIN]
    longer = {"warm_seconds": 0.7, "seconds": 0.15}
    again = {replace(cell, **longer): cell for cell in dict.fromkeys([*near, always])}
    judged = replace(always, **longer)
    rates = in_turns(again, _TURNS, lambda measured: is_clear(measured, judged, least), rounds)
    return {again[cell]: rate for cell, rate in rates.items()}


def is_clear(measured: Turns, judged: CostCell, least: float) -> bool:
    """Whether a cell's share of the best other one's rate is on one side of ``least`` by more than
    two standard errors. Turns must not end because the cell that is judged is ahead just then."""
    others = [cell for cell in measured if cell != judged]
    if not others:
        return True
    best = max(others, key=lambda cell: middle_rate(measured[cell]))
    pairs = zip(measured[judged], measured[best], strict=True)
    ratios = [rows / seconds * other / most for (rows, seconds), (most, other) in pairs]
    return is_decided(ratios, least)


def compare_all(cell: CostCell, factors: Machine, rounds: int = 1) -> dict[str, Any]:
    """What auto picks beside every join, each with memory where it comes to rest."""
    joins = {}
    for name in ss.ALGORITHMS:
        one = replace(cell, join=name)
        try:
            joins[name] = settled(one, predicted(one, one.data, factors))
        except BudgetError:
            continue
    picked = picked_join(cell)
    rates = best_of(list(joins.values()), joins[picked], cost_report.AUTO, rounds)
    best = max(rates, key=lambda one: rates[one])
    entry = {"name": cell.name, "picked": picked, "rate": rates[joins[picked]]}
    return {**entry, "best": rates[best], "best_join": best.join}


def picked_join(cell: CostCell) -> str:
    """The name of the join that auto takes after the first batch."""
    data = cell.data
    master, join = cell.open(data)
    with join.open(master, on="product_id") as run:
        for _ in run.push(cell.batches(data, 1, 0)[0]):
            break
        return str(run.join.name)


def grid_cells(cell: CostCell, factors: Machine) -> tuple[CostCell, list[CostCell]]:
    """The tuner's setting, and an exhaustive grid of settings; neither moves during a run."""
    case = case_of(cell, cell.data, factors)
    best = tuned(case)
    assert best is not None
    names, values = [], []
    for name, possible in settings_of(case):
        step = max(1, len(possible) // _GRID[name])
        names.append(name)
        values.append(list(possible)[step // 2 :: step])
    chosen = {name: getattr(best.join, name) for name in names} | dict(best.prediction.at_rest)
    fixed = ("adapt", False)
    grid = [
        replace(cell, options=(*zip(names, combination, strict=True), fixed))
        for combination in itertools.product(*values)
    ]
    return replace(cell, options=(*chosen.items(), fixed)), grid


def compare_grid(cell: CostCell, factors: Machine, rounds: int = 1) -> dict[str, Any]:
    chosen, grid = grid_cells(cell, factors)
    rates = best_of(grid, chosen, cost_report.TUNED, rounds)
    best = max(rates, key=lambda one: rates[one])
    entry = {"name": cell.name, "tuned": chosen.options, "rate": rates[chosen], "cells": len(grid)}
    return {**entry, "best": rates[best], "best_options": best.options}


def least_memory(name: str, rows: int, rate: float, factors: Machine) -> CostCell | None:
    """The smallest budget whose prediction reaches the rate, with the tuner's headroom, for the
    join's default settings."""
    low, high = 0.05, 60.0
    for _ in range(24):
        middle = (low * high) ** 0.5
        cell = CostCell(name, rows, middle)
        try:
            found = predicted(cell, cell.data, factors).rate
        except BudgetError:
            found = 0.0
        low, high = (middle, high) if found < rate else (low, middle)
    return None if high > 50 else CostCell(name, rows, HEADROOM * high)


def compare_least(name: str, rows: int, rate: float, seconds: float) -> dict[str, Any]:
    """With a calibration of now. If the host has become faster or slower until all is measured, as
    a second calibration tells, the comparison says nothing, and is repeated."""
    master = CostData(rows).opened()
    for tries in range(1, _LEAST_TRIES + 1):
        factors = calibrate(master, keep=False)
        entry: dict[str, Any] = {"name": f"{name}, {rows:,} rows, {rate:g}/s", "wanted": rate}
        cell = least_memory(name, rows, rate, factors)
        if cell is None:
            return {**entry, "out_of_reach": True}
        enough, less = (
            settled(one, predicted(one, one.data, factors))
            for one in (
                replace(cell, seconds=seconds, percent=part * cell.percent) for part in (1.0, 0.8)
            )
        )
        rates = in_turns([enough, less], _TURNS)
        speeds = [
            calibration.factors["tuple"] for calibration in (factors, calibrate(master, keep=False))
        ]
        entry |= {"percent": cell.percent, "rate": rates[enough], "rate_at_80": rates[less]}
        entry |= {"tries": tries, "host": speeds[0] / speeds[1]}
        if abs(entry["host"] - 1.0) <= _SAME_HOST:
            break
    return entry


@dataclass
class Task:
    """One entry of the results; ``work(factors)`` measures it."""

    part: str
    name: str
    rows: int
    kind: str
    work: Callable[[Machine], dict[str, Any]]


def tasks(
    size: Size, parts: list[str], joins: list[str], cells: str = "", rounds: int = 1
) -> list[Task]:
    """What to measure, in a fixed random order within each part; special tables last."""
    found: list[Task] = []
    for cell in rate_cells(size):
        found.append(_of_cell("rates", cell, lambda f, cell=cell: compare(cell, f)))
    for percent, name in itertools.product(size.grid_percents, TUNABLE):
        cell = CostCell(name, size.grid_rows, percent)
        found.append(_of_cell("grid", cell, lambda f, cell=cell: compare_grid(cell, f, rounds)))
    for cell in auto_cells(size):
        found.append(_of_cell("auto", cell, lambda f, cell=cell: compare_all(cell, f, rounds)))
    for name, rate in ((name, rate) for name, rates in _LEAST_RATES.items() for rate in rates):
        work = lambda _, name=name, rate=rate: compare_least(  # noqa: E731
            name, size.rows, rate, size.seconds
        )
        title = f"{name}, {size.rows:,} rows, {rate:g}/s"
        found.append(Task("least", title, size.rows, "plain", work))
    for what, name in itertools.product(cost_moved.CHANGES, cost_moved.JOINS):
        change = cost_moved.Change(what, name, size.moved_rows, 5, size.moved_seconds)
        work = lambda f, change=change: cost_moved.measure(change, f)  # noqa: E731
        found.append(Task("moved", change.name, size.moved_rows, "plain", work))
    random.Random(14).shuffle(found)
    names = [*joins, "auto"]
    chosen = [t for t in found if t.part in parts and t.name.split(",")[0] in names]
    chosen = [t for t in chosen if re.search(cells, t.name)]
    return sorted(chosen, key=lambda task: (parts.index(task.part), task.kind != "plain"))


def _of_cell(part: str, cell: CostCell, work: Callable[..., dict[str, Any]]) -> Task:
    return Task(part, cell.name, cell.rows, cell.kind, work)


@dataclass
class Results:
    """The report on disk, written after every entry."""

    path: Path
    fresh: bool
    log: Callable[[str], None]
    report: dict[str, Any] = field(default_factory=dict)
    # Tables, and when this process calibrated with them.
    prepared: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        commit = _commit()
        try:
            found = json.loads(self.path.read_text())
        except (OSError, ValueError):
            found = {}
        if self.fresh or found.get("commit") != commit or set(PARTS) - set(found):
            found = {"commit": commit, "machine": machine.describe(), "factors": {}}
            found |= {part: [] for part in PARTS}
        self.report = found

    def passes(self, task: Task) -> int:
        """How often this was measured."""
        known = self._entry(task)
        return 0 if known is None else len(known.get("passes", [None]))

    def _entry(self, task: Task) -> dict[str, Any] | None:
        found = (entry for entry in self.report[task.part] if entry["name"] == task.name)
        return next(found, None)

    def factors(self, task: Task) -> Machine:
        """Calibrated for each table, anew after some time, and kept with the results: the host may
        be a quarter slower or faster a few minutes later."""
        name, data = f"{task.rows} {task.kind}", CostData(task.rows, task.kind)
        began = time.perf_counter()
        if name not in self.prepared:
            data.prepare(self.log)
        if began - self.prepared.get(name, -_CALIBRATED) >= _CALIBRATED:
            self.prepared[name] = began = time.perf_counter()
            made = calibrate(ss.MasterTable.open(data.master), keep=False)
            self.log(f"calibrated for {name} in {time.perf_counter() - began:.1f} s")
            known = {"factors": dict(made.factors), "access": made.access, "disk": made.disk}
            self.report["factors"][name] = known
        known = self.report["factors"][name]
        pairs = {part: tuple(tuple(one) for one in known[part]) for part in ("access", "disk")}
        return Machine(known["factors"], **pairs)

    def add(self, task: Task, entry: dict[str, Any]) -> None:
        known = self._entry(task)
        if known is None:
            self.report[task.part].append(entry)
        else:
            rates = [*known.get("passes", [known.get("rate")]), entry.get("rate")]
            known |= {**_better(known, entry), "passes": rates}
        self.report["machine"]["load_after"] = machine.load()
        self.report["summary"] = cost_report.summary(self.report)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.report, indent=1) + "\n")
        part.replace(self.path)


def _better(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return other if other.get("rate", 0.0) > one.get("rate", 0.0) else one


def _commit() -> str:
    """The commit of the code; changed results do not make it another one."""
    commit, changed = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "src", "lab/*.py")
    return f"{commit or 'unknown'}{'-dirty' if changed else ''}"


def _git(*command: str) -> str:
    folder = Path(__file__).resolve().parent.parent
    found = subprocess.run(
        ["git", *command], cwd=folder, capture_output=True, text=True, check=False
    )
    return found.stdout.strip()


def run(
    todo: list[Task], results: Results, minutes: float, log: Callable[[str], None], passes: int = 1
) -> int:
    """Measure what is missing, as long as there is time; returns what is still missing."""
    until = time.perf_counter() + 60 * minutes
    missing = [
        task
        for number in range(passes)
        for task in todo
        if results.passes(task) <= number < (passes if task.part == "rates" else 1)
    ]
    while missing and time.perf_counter() < until:
        task = missing.pop(0)
        entry = task.work(results.factors(task))
        results.add(task, entry)
        log(cost_report.line(task.part, entry))
    return len(missing)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=sorted(SIZES), default="full")
    parser.add_argument("--parts", default=",".join(PARTS), help="rates, grid, auto, least, moved")
    parser.add_argument("--joins", help="names, comma-separated; default: all")
    parser.add_argument("--cells", default="", help="a regular expression: cells by name")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="time limit")
    parser.add_argument("--passes", type=int, default=1, help="of the rates; the best one counts")
    parser.add_argument("--rounds", type=int, default=1, help="of grid and auto: runs opened anew")
    parser.add_argument("--fresh", action="store_true", help="discard what is there")
    parser.add_argument("--out", help="path of the JSON results")
    options = parser.parse_args(arguments)
    size, console = SIZES[options.size], Console()
    parts = options.parts.split(",")
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"unknown part {unknown[0]!r}; choose from {', '.join(PARTS)}")
    joins = options.joins.split(",") if options.joins else list(ss.ALGORITHMS)

    def log(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    out = Path(options.out) if options.out else RESULTS / size.file
    results = Results(out, options.fresh, log)
    todo = tasks(size, parts, joins, options.cells, options.rounds)
    missing = run(todo, results, options.minutes, log, options.passes)
    report = results.report
    cost_report.show(report, console)
    if missing:
        log(f"{missing} cells are still to be measured: run it again")
    return (
        0
        if all(target["met"] for target in report.get("summary", {"targets": []})["targets"])
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
