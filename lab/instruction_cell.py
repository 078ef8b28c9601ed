"""Cells of ``lab.bench_turns --measure instructions``: two runs that differ only in their length.

The process imports everything and generates the streams. It forks twice for every cell: both
children open the join and push the same batches, the second child some more. A tool that counts
the instructions of each process (see lab/instructions.py) counts those of the additional pushes as
the difference: imports, opening and warm-up cancel out. No clock is read to decide when to stop.

SweepJoin moves memory by the clock. Here its clock is a model of the work done so far, so that it
decides the same at any speed.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

import lab.engine_preload  # noqa: F401 (forked children need not import again)
import semistream as ss
from lab import engine_cell
from lab.engine_data import EngineData

COUNTED = (
    "tuples_in",
    "matched",
    "rows_out",
    "front_stage_hits",
    "pages_read",
    "bytes_read",
    "iterations",
)
_SECONDS_PER_TUPLE, _BYTES_PER_SECOND = 0.3e-6, 2.5e9  # of the modelled clock


@dataclass(frozen=True)
class Cell:
    """What to measure. The short run pushes ``warm_tuples``, the long one ``tuples`` more."""

    join: str
    rows: int
    seed: int
    percent: float
    direct: bool
    push: int
    warm_tuples: int
    tuples: int
    exponent: float = 1.0
    scattered: bool = True

    @property
    def name(self) -> str:
        mode = "direct" if self.direct else "warm"
        ranks = "scattered" if self.scattered else "clustered"
        return f"{self.join}, {self.percent:g} %, {mode}, exponent {self.exponent:g}, {ranks}"


class WorkClock:
    """Seconds that the work counted so far would take on some fixed machine."""

    def __init__(self) -> None:
        self.stats: Any = None

    def __call__(self) -> float:
        stats = self.stats
        if stats is None:
            return 0.0
        served = stats.matched + stats.unmatched
        return float(served * _SECONDS_PER_TUPLE + stats.bytes_read / _BYTES_PER_SECOND)


def run_cell(cell: Cell, data: EngineData, batches: list[pa.RecordBatch]) -> dict[str, int]:
    """Push these batches into a new run; returns its counters."""
    work = WorkClock()
    # The other joins only report seconds: they keep the clock that they have in production.
    clock: Callable[[], float] = work if cell.join == "sweepjoin" else time.perf_counter
    master = ss.MasterTable.open(data.master)
    join = ss.join(cell.join, memory=int(data.nbytes * cell.percent / 100))
    with join.open(master, on="product_id", direct=cell.direct, clock=clock) as run:
        work.stats = run.stats
        returned = 0
        for batch in batches:
            for rows in run.push(batch):
                returned += rows.num_rows
        counters = {name: int(getattr(run.stats, name)) for name in COUNTED}
    if returned != counters["rows_out"]:
        raise RuntimeError(f"{returned} rows returned, but {counters['rows_out']} counted")
    return counters


def check(cell: Cell, data: EngineData) -> None:
    """Raise if the join's answer to the warm-up's tuples is wrong."""
    full = engine_cell.Cell(
        **asdict(cell), check_tuples=cell.warm_tuples, warm_seconds=0.0, seconds=0.0
    )
    join = ss.join(cell.join, memory=int(data.nbytes * cell.percent / 100))
    trouble = engine_cell.wrong(join, ss.MasterTable.open(data.master), full, data)
    if trouble is not None:
        raise RuntimeError(f"wrong answer: {trouble}")


def in_a_fork(work: Callable[[], dict[str, int]]) -> dict[str, int]:
    """The result of ``work`` in a forked child, with the child's process id."""
    readable, writable = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.close(readable)
            with os.fdopen(writable, "w") as pipe:
                json.dump(work(), pipe)
            status = 0
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        finally:
            os._exit(status)
    os.close(writable)
    with os.fdopen(readable) as pipe:
        text = pipe.read()
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError("the child failed")
    return {"pid": pid, **json.loads(text)}


class Streams:
    """The cells' streams, each generated once."""

    def __init__(self) -> None:
        self._batches: dict[tuple[Any, ...], list[pa.RecordBatch]] = {}

    def batches(self, cell: Cell, data: EngineData) -> list[pa.RecordBatch]:
        n = cell.warm_tuples + cell.tuples
        key = (cell.rows, cell.seed, n, cell.push, cell.exponent, cell.scattered)
        if key not in self._batches:
            self._batches[key] = data.stream(n, cell.push, 0, cell.exponent, cell.scattered)
        return self._batches[key]


def two_runs(cell: Cell, streams: Streams) -> dict[str, dict[str, int]]:
    """The short and the long run of a cell: process ids and counters."""
    data = EngineData(cell.rows, cell.seed)
    batches = streams.batches(cell, data)
    warm = batches[: cell.warm_tuples // cell.push]
    run_cell(cell, data, batches[:1])  # loads kernels, so that the children need not
    gc.collect()
    gc.freeze()  # collections in the children do not traverse what was imported
    short = in_a_fork(lambda: run_cell(cell, data, warm))
    return {"short": short, "long": in_a_fork(lambda: run_cell(cell, data, batches))}


def main(arguments: list[str]) -> None:
    """Prints a line of JSON for each cell, when it is done; a failure is a line, too."""
    pa.set_cpu_count(1)
    streams = Streams()
    for each in json.loads(arguments[0]):
        cell = Cell(**each)
        result: dict[str, Any] = {}
        try:
            if "--check" in arguments:
                check(cell, EngineData(cell.rows, cell.seed))
            else:
                result = two_runs(cell, streams)
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
