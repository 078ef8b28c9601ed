"""One cell of the cost benchmark: a join's rate as measured, beside its prediction.

A stream is measured in its steady state, which is what a model describes: every page was checked
when it was first read, and the front stage serves as much as before (``_warm_up``). Memory that
would move during the run is where the model expects it to come to rest (``settled``), so that a
cell takes seconds; how soon a run gets there is measured by ``lab/cost_moved.py``. What is compared
is measured in turns (``in_turns``), each run warmed up until its front stage has learned: CINLJ
needs millions of tuples for that, and a smaller front stage learns sooner.

The rate is taken over processor time where that is less than the time on the clock and nothing is
read from the disk: another process that uses the core must not look like an error of the model.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa

import semistream as ss
from lab.cost_data import CostData
from semistream.cost import Case, Machine, Prediction, Traffic, predict, uniform, zipf
from semistream.engine.binding import Binding
from semistream.engine.rows.layout import RowWidths
from semistream.engine.shape import StreamShape, TableShape
from semistream.engine.window.tuple_layout import TupleLayout

PUSH = 50_000
SLOW = ("inlj", "cinlj")
_LONGER = 4  # times the seconds of a cell, at most
_TURNS, _MOVING_TURNS = 1.5, 20.0  # windows that are served before it is measured
_LEARNING = 3.0  # times the seconds for it, while a front stage is learning
_SPAN, _LONGER_SPAN = 4, 1.5  # tuples per slot, and per tuple before: a front stage's hits by then
_STEADY = 0.005  # change of the share of hits from one span to the next
_LEARNING_SECONDS = 15.0  # for runs that are compared
_MORE_TURNS = 6  # times the turns of a comparison, at most, while it is in doubt
_APART = 4  # of the turns of a run, the slowest and the fastest one in four do not count


@dataclass(frozen=True)
class CostCell:
    """What to measure."""

    join: str
    rows: int
    percent: float
    exponent: float = 1.0
    scattered: bool = True
    drained: int = 0  # tuples in a batch that is drained; 0: a stream
    direct: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    kind: str = "plain"  # of table
    seed: int = 0
    warm_seconds: float = 3.0
    seconds: float = 0.7

    @property
    def name(self) -> str:
        parts = [f"{self.join}, {self.rows:,} rows, {self.percent:g} %"]
        parts += [f"exponent {self.exponent:g}"]
        parts += [self.kind] if self.kind != "plain" else []
        parts += ["clustered"] if not self.scattered else []
        parts += [f"drained by {self.drained:,}"] if self.drained else []
        parts += [f"{name}={value}" for name, value in self.options]
        return ", ".join(parts)

    @property
    def push(self) -> int:
        return self.drained or (PUSH if self.join not in SLOW else PUSH // 10)

    @property
    def data(self) -> CostData:
        return CostData(self.rows, self.kind, self.seed)

    def open(self, data: CostData) -> tuple[ss.MasterTable, ss.Join]:
        memory = int(data.nbytes * self.percent / 100)
        options = dict(self.options)
        if self.join == "auto":
            options["drained"] = bool(self.drained)
        return data.opened(), ss.join(self.join, memory=memory, **options)

    def batches(self, data: CostData, count: int, offset: int) -> list[pa.RecordBatch]:
        n = count * self.push
        return data.stream(n, self.push, offset, self.exponent, self.scattered)


Turns = dict[CostCell, list[tuple[int, float]]]
"""Tuples and seconds of each turn of the cells that are compared."""


def case_of(cell: CostCell, data: CostData, machine: Machine) -> Case:
    """The model's input: the true distribution, not a sample of it."""
    master, join = cell.open(data)
    batch = cell.batches(data, 1, 0)[0]
    binding = Binding(master, "product_id", None, join.how)
    binding.bind(batch.schema)
    layout = TupleLayout(binding, batch.schema)
    keys = zipf(cell.rows, cell.exponent) if cell.exponent else uniform(cell.rows)
    traffic = Traffic(keys, not cell.scattered, push=cell.push, drained=bool(cell.drained))
    widest = RowWidths(batch.schema.types).longest(batch, join.memory // 64)
    return Case(
        join,
        TableShape.of(master, binding, cell.direct),
        StreamShape.of(batch, layout).with_widest(widest),
        traffic,
        machine,
    )


def predicted(cell: CostCell, data: CostData, machine: Machine) -> Prediction:
    return predict(case_of(cell, data, machine))


def settled(cell: CostCell, found: Prediction) -> CostCell:
    """The same with memory where the model expects it to come to rest.

    A window that is mostly idle gives its memory to the front stage by itself, and soon.
    """
    if cell.drained and not found.at_rest:
        return cell
    options = {**dict(cell.options), **found.at_rest, "adapt": False}
    return replace(cell, options=tuple(options.items()))


def measure(cell: CostCell) -> dict[str, Any]:
    """Warm up, then measure. Never raises: a failure is part of the result."""
    pa.set_cpu_count(1)
    data = cell.data
    result: dict[str, Any] = asdict(cell)
    try:
        result |= _measure(cell, data)
    except ss.BudgetError as error:
        result["refused"] = str(error)
    return result


def _measure(cell: CostCell, data: CostData) -> dict[str, Any]:
    master, join = cell.open(data)
    with join.open(master, on="product_id", direct=cell.direct) as run:
        pushed = _warm_up(run, cell, data)
        gc.collect()
        before = run.stats.as_dict()
        # HYBRIDJOIN serves in waves until its window is mixed: count a whole turn of the window.
        least = 0 if cell.drained else run.stats.waiting
        pushed, rows, seconds, processor = _serve(run, cell, data, pushed, least)
        after = run.stats.as_dict()
        counts = {name: after[name] - before[name] for name in after}
        spent = seconds if cell.direct else processor
        return {
            "rate": rows / max(spent, 1e-9),
            "clock_rate": rows / max(seconds, 1e-9),
            "served": rows,
            "hit": counts["front_stage_hits"] / max(1, rows),
            "pages_per_tuple": counts["pages_read"] / max(1, rows),
            "iterations": counts["iterations"] / max(1, rows),
            "waiting": run.stats.waiting,
            "memory": dict(run.memory),
            "picked": run.join.name,
        }


def in_turns(
    cells: Iterable[CostCell],
    turns: int,
    is_decided: Callable[[Turns], bool] | None = None,
    rounds: int = 1,
) -> dict[CostCell, float]:
    """The rates of these cells. Their runs are open at the same time and are measured in turns: the
    host is not equally fast all the time. Slow seconds of it are outliers (``middle_rate``).
    A cell whose settings do not fit into its memory has none. Turns go on until the comparison
    ``is_decided``, up to some times as many. Each of the ``rounds`` opens all runs anew: where the
    kernel puts their memory makes a difference, too. The turns of all rounds count together."""
    pa.set_cpu_count(1)
    measured: Turns = {}
    every = list(cells)
    for _ in range(rounds):
        _measure_in_turns(every, turns, is_decided, measured)
    return {cell: middle_rate(found) for cell, found in measured.items()}


def _measure_in_turns(
    cells: list[CostCell],
    turns: int,
    is_decided: Callable[[Turns], bool] | None,
    measured: Turns,
) -> None:
    with ExitStack() as stack:
        runs, pushed = dict[CostCell, Any](), dict[CostCell, int]()
        for cell in cells:
            master, join = cell.open(cell.data)
            run = stack.enter_context(join.open(master, on="product_id", direct=cell.direct))
            with suppress(ss.BudgetError):
                pushed[cell] = _warm_up(run, cell, cell.data, _LEARNING_SECONDS)
                runs[cell] = run
        for turn in range(_MORE_TURNS * turns):
            if turn >= turns and (is_decided is None or is_decided(measured)):
                break
            order = list(runs) if turn % 2 == 0 else list(runs)[::-1]
            for cell in order:
                pushed[cell], served, _, spent = _serve(runs[cell], cell, cell.data, pushed[cell])
                measured.setdefault(cell, []).append((served, spent))


def middle_rate(turns: list[tuple[int, float]]) -> float:
    """Tuples per second of the middle half of the turns, which are (tuples, seconds)."""
    ranked = sorted(turns, key=lambda turn: turn[0] / turn[1])
    apart = len(ranked) // _APART
    middle = ranked[apart : len(ranked) - apart]
    return sum(rows for rows, _ in middle) / sum(seconds for _, seconds in middle)


def _warm_up(run: Any, cell: CostCell, data: CostData, learning_seconds: float = 0.0) -> int:
    """Until what waits has been served some times over, memory has come to rest, and the front
    stage has learned. Only seconds of the join count, not those of the stream's generator."""
    most = max(_LEARNING * cell.warm_seconds, learning_seconds)
    moves = run.join.moves_memory or run.join.moves_buffer
    turns = _MOVING_TURNS if moves else _TURNS
    pushed, spent, learning = 0, 0.0, Learning()
    step = replace(cell, seconds=min(0.1, cell.warm_seconds))
    while spent < most:
        pushed, _, _, seconds = _serve(run, step, data, pushed)
        spent += seconds
        if run.parts[3].front is not None and not learning.is_over(run):
            continue
        waiting = 0 if cell.drained else run.stats.waiting
        if spent > cell.warm_seconds or run.stats.rows_out > turns * waiting > 0:
            break
    return pushed


class Learning:
    """Compares the front stage's share of hits over longer and longer spans of the stream."""

    def __init__(self) -> None:
        self._began = self._hits = 0  # of this span: tuples served before it, and hits
        self._share = -1.0  # of the span before
        self._is_over = False

    def is_over(self, run: Any) -> bool:
        """Whether a span has had as many hits as the one before it."""
        front, stats = run.parts[3].front, run.stats
        served, hits = stats.rows_out, stats.front_stage_hits
        until = max(self._began + _SPAN * front.capacity, _LONGER_SPAN * self._began)
        if self._is_over or served < until:
            return self._is_over
        share, before = (hits - self._hits) / (served - self._began), self._share
        self._began, self._hits, self._share = served, hits, share
        self._is_over = abs(share - before) < _STEADY
        return self._is_over


def _serve(
    run: Any, cell: CostCell, data: CostData, offset: int, least: int = 0
) -> tuple[int, int, float, float]:
    """Push, and drain if wanted, for some seconds; streams are generated off the clock.

    ``least`` rows are served even if it takes some times as long.
    """
    rows, seconds, processor = 0, 0.0, 0.0

    def is_over(more: float = 0.0) -> bool:
        spent = seconds + more
        return spent > cell.seconds and (rows >= least or spent > _LONGER * cell.seconds)

    while not is_over():
        some = max(1, min(20, 400_000 // cell.push))
        for batch in cell.batches(data, some, offset):
            began, began_processor = time.perf_counter(), time.process_time()
            stopped = False
            for out in run.push(batch):
                rows += out.num_rows
                if not cell.drained and is_over(time.perf_counter() - began):
                    stopped = True
                    break
            if cell.drained:
                rows += sum(out.num_rows for out in run.flush())
            seconds += time.perf_counter() - began
            processor += time.process_time() - began_processor
            if stopped or is_over():
                break
        offset += some * cell.push
    return offset, rows, seconds, processor
