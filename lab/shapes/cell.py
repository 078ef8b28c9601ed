"""One cell of the shapes benchmark: a shape, a join (or the alternative) and a budget.

It runs in its own process, pinned to one core. The whole answer to a short stream is checked, then
a second run is warmed up and measured. Of everything that it returns the rows are counted, and one
batch of every chunk is checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import semistream as ss
from lab.build_once import DATA
from lab.command import measured
from lab.shapes.data import ShapeData
from lab.shapes.lmdb_rows import LruLmdbRows
from lab.warm_up import Pusher, Subject

RIVAL = "lru+lmdb"
SLOW = ("inlj", "cinlj")  # one page per tuple


@dataclass(frozen=True)
class Cell:
    """What to measure, with sizes and time limits."""

    shape: str
    join: str
    rows: int
    percent: float
    seed: int
    push: int
    chunk: int
    check_tuples: int
    warm_seconds: float
    seconds: float
    is_reference: bool = False  # int64 again, measured just before another shape
    beside: str = ""  # that shape
    root: str = str(DATA)

    @property
    def name(self) -> str:
        return f"{self.shape}, {self.join}, {self.percent:g} % of {self.rows:,} rows"

    @property
    def data(self) -> ShapeData:
        return ShapeData.named(self.shape, self.rows, self.seed, Path(self.root))


def measure(cell: Cell) -> dict[str, Any]:
    """Measure one cell. Never raises: a failure is part of the result."""
    return measured(
        cell, lambda: _measure_rival(cell) if cell.join == RIVAL else _measure_join(cell)
    )


def _measure_join(cell: Cell) -> dict[str, Any]:
    data = cell.data
    master, budget = ss.MasterTable.open(data.master), int(data.nbytes * cell.percent / 100)
    join, on = ss.join(cell.join, memory=budget), data.shape.key.names

    sent = data.stream(cell.check_tuples, cell.push)
    with join.open(master, on=on) as run:
        trouble = data.wrong(_all_rows(run, sent), sent)
        if trouble is None and (run.stats.waiting or run.stats.matched != cell.check_tuples):
            trouble = f"the counters do not add up: {run.stats}"
    if trouble is not None:
        return {"wrong": trouble}

    with join.open(master, on=on) as run:
        subject = Subject(run.push, lambda: run.stats.front_stage_hits, lambda: run.stats.waiting)
        pusher = _pusher(cell, data, subject)
        warm_up = pusher.settle(cell.warm_seconds)
        pages = run.stats.pages_read
        timing = pusher.measure(cell.seconds)
        facts = {
            "pages_read": run.stats.pages_read - pages,
            "waiting": run.stats.waiting,
            "memory": sum(run.memory.values()),
        }
        returned = pusher.returned + sum(rows.num_rows for rows in run.flush())
    expected = pusher.position * data.shape.copies
    if returned != expected:
        return {"wrong": f"{returned:,} rows returned instead of {expected:,}"}
    return _result(data, budget, pusher, {**warm_up, **timing, **facts})


def _measure_rival(cell: Cell) -> dict[str, Any]:
    data = cell.data
    budget = int(data.nbytes * cell.percent / 100)
    peer = LruLmdbRows(data.shape, data.lmdb, budget)
    sent = data.stream(cell.check_tuples, cell.push)
    trouble = data.wrong((peer.push(batch) for batch in sent), sent)
    if trouble is not None:
        return {"wrong": trouble}
    subject = Subject(
        lambda batch: iter((peer.push(batch),)),
        lambda: peer.hits,
        lambda: 0,
        lambda: peer.full,
    )
    pusher = _pusher(cell, data, subject)
    pusher.position = cell.check_tuples
    warm_up = pusher.settle(cell.warm_seconds)
    timing = pusher.measure(cell.seconds)
    peer.close()
    expected = (pusher.position - cell.check_tuples) * data.shape.copies
    if pusher.returned != expected:
        return {"wrong": f"{pusher.returned:,} rows returned instead of {expected:,}"}
    facts = {"cached_keys": peer.capacity, "cached_row_bytes": peer.row_bytes}
    return _result(data, budget, pusher, {**warm_up, **timing, **facts})


def _pusher(cell: Cell, data: ShapeData, subject: Subject) -> Pusher:
    def stream(position: int, tuples: int) -> list[pa.RecordBatch]:
        return data.stream(tuples, cell.push, position)

    return Pusher(subject, stream, cell.chunk, check=data.wrong_rows)


def _result(
    data: ShapeData, budget: int, pusher: Pusher, figures: dict[str, Any]
) -> dict[str, Any]:
    if pusher.trouble is not None:
        return {"wrong": pusher.trouble}
    tuples = figures["rows_out"] / data.shape.copies
    rate = tuples / figures["measured_seconds"]
    return {"rate": rate, "budget": budget, "row_bytes": data.shape.row_bytes(), **figures}


def _all_rows(run: Any, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from run.push(batch)
    yield from run.flush()
