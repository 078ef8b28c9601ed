"""One cell of the drain benchmark: a join, a budget and an I/O mode, for all batch sizes.

A Spark task pushes its rows and flushes the run, so no tuple waits for the next batch. Here each
batch is pushed and flushed on its own, and the same batch is given to an LRU in front of LMDB in
the same process, in turns: both meet the same disk and the same neighbours. Beside joins that look
every tuple up on its own, LMDB is asked for every tuple, without an LRU. Both were warmed up
with drained batches before. All rows of every batch are checked, off the clock.

A join that reads with direct I/O gets nothing from the page cache, but LMDB does. So it is measured
twice: beside LMDB with all its pages in the page cache, and then beside LMDB whose pages with rows
are dropped from it before every batch, off the clock (``cold``).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import semistream as ss
from lab.build_once import DATA
from lab.command import measured
from lab.drain.report import ONE_BY_ONE
from lab.engine_cell import DESCRIPTION_BYTES
from lab.engine_data import EngineData
from lab.lru_lmdb import LruLmdb
from lab.warm_up import Pusher, Subject

MODES = ("resident", "mapped", "page cache", "direct")
_MAPPED: dict[str, bool | str] = {"mapped": True, "resident": "resident"}
FEWEST_BATCHES = 5
UNMEASURED = 3  # the first batches of a size: the run adapts to them
COLD_BATCHES = 40  # most batches of a size beside a cold LMDB: dropping its pages takes long
COLD_LEFT = 0.01  # share of LMDB's file that may stay in the page cache, beside inner pages


@dataclass(frozen=True)
class Cell:
    """What to measure, with sizes and time limits."""

    join: str
    rows: int
    percent: float
    mode: str
    batches: tuple[int, ...]
    seed: int
    push: int
    chunk: int
    warm_seconds: float
    seconds: float  # for each batch size, both sides together
    most_batches: int
    root: str = str(DATA)

    @property
    def name(self) -> str:
        return f"{self.join}, {self.percent:g} % of {self.rows:,} rows, {self.mode}"

    @property
    def data(self) -> EngineData:
        return EngineData(self.rows, self.seed, root=Path(self.root))


def measure(cell: Cell) -> dict[str, Any]:
    """Measure one cell. Never raises: a failure is part of the result."""
    return measured(cell, lambda: _measure(cell))


def _measure(cell: Cell) -> dict[str, Any]:
    data, budget = cell.data, int(cell.data.nbytes * cell.percent / 100)
    master = ss.MasterTable.open(data.master, mapped=_MAPPED.get(cell.mode, False))
    join = ss.join(cell.join, memory=budget)
    peer_budget = None if cell.join in ONE_BY_ONE else budget
    peer = LruLmdb(data.lmdb, peer_budget, "packed", DESCRIPTION_BYTES)
    with join.open(master, on="product_id", direct=cell.mode == "direct") as run:

        def drained(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
            return [*run.push(batch), *run.flush()]

        warm_ups = {}
        for name, subject in {
            "join": Subject(drained, lambda: run.stats.front_stage_hits, lambda: run.stats.waiting),
            "rival": Subject(
                lambda batch: [peer.push(batch)], lambda: peer.hits, lambda: 0, lambda: peer.full
            ),
        }.items():
            pusher = Pusher(
                subject,
                lambda position, tuples: data.stream(tuples, cell.push, position),
                cell.chunk,
            )
            warm_ups[name] = pusher.settle(cell.warm_seconds)

        sides: dict[str, Drain] = {"join": drained, "rival": lambda batch: [peer.push(batch)]}
        position = max(warm["warm_up_tuples"] for warm in warm_ups.values())
        sizes = []
        for size in cell.batches:
            timed = in_turns(sides, data, size, position, cell.seconds, cell.most_batches)
            if isinstance(timed, str):
                return {"wrong": timed}
            position += timed.pop("tuples")
            sizes.append({"batch": size, **timed})
        for timed in sizes if cell.mode == "direct" else ():
            most = min(cell.most_batches, COLD_BATCHES)
            cold = in_turns(
                sides, data, timed["batch"], position, cell.seconds, most, lambda: _drop(peer, data)
            )
            if isinstance(cold, str):
                return {"wrong": cold}
            position += cold.pop("tuples")
            timed["cold"] = cold
        if run.stats.waiting or run.stats.tuples_in != run.stats.matched:
            return {"wrong": f"the counters do not add up: {run.stats}"}
    peer.close()
    return {"budget": budget, "warm_up": warm_ups, "sizes": sizes}


def _drop(peer: LruLmdb, data: EngineData) -> None:
    left, size = peer.drop_rows(), (data.lmdb / "data.mdb").stat().st_size
    if left > COLD_LEFT * size:
        raise RuntimeError(f"{left:,} of {size:,} bytes of LMDB stay in the page cache")


Drain = Callable[[pa.RecordBatch], list[pa.RecordBatch]]


def in_turns(
    sides: dict[str, Drain],
    data: EngineData,
    size: int,
    position: int,
    seconds: float,
    most_batches: int,
    before_rival: Callable[[], None] = lambda: None,
) -> dict[str, Any] | str:
    """Give batches of one size to both sides, in alternating order, for ``seconds`` in all.

    ``before_rival`` is called before each batch of the rival, off the clock. Returns the times of a
    batch by side, or the error in an answer.
    """
    times: dict[str, list[float]] = {name: [] for name in sides}
    spent, number, start = 0.0, -UNMEASURED, position
    gc.collect()
    gc.disable()  # a collection would fall on one side by chance
    try:
        while number < FEWEST_BATCHES or (spent < seconds and number < most_batches):
            (batch,) = data.stream(size, size, position)
            position += size
            order = list(sides) if number % 2 else list(reversed(sides))
            for name in order:
                if name == "rival":
                    before_rival()
                began = time.perf_counter()
                rows = sides[name](batch)
                elapsed = time.perf_counter() - began
                trouble = data.check(iter(rows), [batch])
                if trouble is not None:
                    return f"{name}, batches of {size:,}: {trouble}"
                if number >= 0:
                    times[name].append(elapsed)
                    spent += elapsed
            number += 1
    finally:
        gc.enable()
    return {
        "count": number,
        "tuples": position - start,
        **{name: figures(taken, size) for name, taken in times.items()},
    }


def figures(taken: list[float], size: int) -> dict[str, float]:
    """Median and 99th percentile of a batch's time, and the rate over all batches."""
    return {
        "median": float(np.median(taken)),
        "p99": float(np.percentile(taken, 99)),
        "rate": size * len(taken) / sum(taken),
    }
