"""One cell of the engine benchmark, measured in a separate process.

A cell is a join (or the alternative), a budget, an I/O mode and a push size. The process is
pinned to one core. It checks the answer on a short run, warms up a second run until its window
has been filled and turned over, then measures. Streams are generated before the clock starts.

The rate is output rows per second (here every tuple has exactly one), not tuples pushed: a join
that only collects tuples in its window has a rate of 0.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

import semistream as ss
from lab import machine
from lab.engine_data import EngineData
from lab.lru_lmdb import LruLmdb

ALTERNATIVES = {"lru+lmdb": "decoded", "lru+lmdb packed": "packed"}
DESCRIPTION_BYTES = 85
PUSH = 50_000


@dataclass(frozen=True)
class Cell:
    """What to measure, with sizes and time limits."""

    join: str
    rows: int
    seed: int
    percent: float
    direct: bool
    push: int
    check_tuples: int
    warm_tuples: int
    warm_seconds: float
    tuples: int
    seconds: float
    exponent: float = 1.0
    scattered: bool = True

    @property
    def name(self) -> str:
        mode = "direct" if self.direct else "warm"
        ranks = "" if self.scattered else ", clustered"
        skew = "" if self.exponent == 1.0 else f", exponent {self.exponent:g}"
        return f"{self.join}, {self.percent:g} %, {mode}, pushes of {self.push:,}{skew}{ranks}"

    def stream(self, data: EngineData, n: int, push: int, offset: int = 0) -> list[pa.RecordBatch]:
        return data.stream(n, push, offset, self.exponent, self.scattered)


def measure(cell: Cell) -> dict[str, Any]:
    """Measure one cell. Never raises: a failure is part of the result."""
    core = machine.pin_to_one_core()
    pa.set_cpu_count(1)
    result: dict[str, Any] = {**asdict(cell), "core": core, "load": machine.load()}
    data = EngineData(cell.rows, cell.seed)
    began = time.perf_counter()
    try:
        if cell.join in ALTERNATIVES:
            result |= _measure_alternative(cell, data)
        else:
            result |= _measure_join(cell, data)
    except ss.BudgetError as error:
        result["refused"] = str(error)
    except Exception as error:
        result["error"] = f"{type(error).__name__}: {error}"
    result["wall_seconds"] = round(time.perf_counter() - began, 2)
    return result


def _measure_join(cell: Cell, data: EngineData) -> dict[str, Any]:
    master = ss.MasterTable.open(data.master)
    budget = int(data.nbytes * cell.percent / 100)
    join = ss.join(cell.join, memory=budget)

    trouble = wrong(join, master, cell, data)
    if trouble is not None:
        return {"wrong": trouble}
    with join.open(master, on="product_id", direct=cell.direct) as run:
        pushed, warm_seconds = warm_up(run, cell, data)
        batches = cell.stream(data, cell.tuples, cell.push, offset=pushed)
        gc.collect()
        rows_before, pages_before = run.stats.rows_out, run.stats.pages_read
        bytes_before = run.stats.bytes_read
        hits_before, memory_before = run.stats.front_stage_hits, _anonymous_bytes()
        timing = timed(run.push, batches, cell.seconds)
        counted = run.stats.rows_out - rows_before
        if timing["rows_out"] != counted:
            return {"wrong": f"{timing['rows_out']} rows returned, but {counted} counted"}
        return {
            **timing,
            "budget": budget,
            "warm_up_tuples": pushed,
            "warm_up_seconds": warm_seconds,
            "pages_per_tuple": (run.stats.pages_read - pages_before) / timing["rows_out"],
            "bytes_read": run.stats.bytes_read - bytes_before,
            "hit_rate": (run.stats.front_stage_hits - hits_before) / timing["rows_out"],
            "waiting": run.stats.waiting,
            "memory": {**run.memory, "budget": run.memory.budget},
            "anonymous_growth": _anonymous_bytes() - memory_before,
        }


def wrong(join: ss.Join, master: ss.MasterTable, cell: Cell, data: EngineData) -> str | None:
    """The error in the join's answer to a short stream; None if it is correct."""
    sent = cell.stream(data, cell.check_tuples, cell.push)
    with join.open(master, on="product_id", direct=cell.direct) as run:
        trouble = data.check(_all_rows(run, sent), sent)
        accounted = run.stats.tuples_in == run.stats.matched and run.stats.waiting == 0
    if trouble is None and not accounted:
        trouble = f"the counters do not add up: {run.stats}"
    return trouble


def timed(
    push: Callable[[pa.RecordBatch], Iterator[pa.RecordBatch]],
    batches: list[pa.RecordBatch],
    seconds: float,
) -> dict[str, Any]:
    """Push until the stream ends or the time is up, even in the middle of a push."""
    rows_out, processor = 0, time.process_time()
    start = now = time.perf_counter()
    for batch in batches:
        for rows in push(batch):
            rows_out += rows.num_rows
            now = time.perf_counter()
            if now - start > seconds:
                break
        else:
            now = time.perf_counter()
        if now - start > seconds:
            break
    elapsed = now - start
    return {
        "rate": rows_out / elapsed,
        "rows_out": rows_out,
        "measured_seconds": elapsed,
        "processor_seconds": time.process_time() - processor,
    }


def _all_rows(run: Any, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from run.push(batch)
    yield from run.flush()


def warm_up(run: Any, cell: Cell, data: EngineData) -> tuple[int, float]:
    """Push until the window has been filled and turned over once, or until the time is up."""
    pushed, most_waiting = 0, 0
    size = min(PUSH, cell.warm_tuples)
    began = time.perf_counter()
    while True:
        for batch in cell.stream(data, 10 * size, size, offset=pushed):
            pushed += size
            for _ in run.push(batch):
                if time.perf_counter() - began > cell.warm_seconds:
                    break
            most_waiting = max(most_waiting, run.stats.waiting)
            seconds = time.perf_counter() - began
            turned_over = pushed >= cell.warm_tuples and pushed >= 2 * most_waiting
            if turned_over or seconds > cell.warm_seconds:
                return pushed, seconds


def _measure_alternative(cell: Cell, data: EngineData) -> dict[str, Any]:
    budget = int(data.nbytes * cell.percent / 100)
    memory_before = _anonymous_bytes()
    peer = LruLmdb(data.lmdb, budget, ALTERNATIVES[cell.join], DESCRIPTION_BYTES)
    sent = cell.stream(data, cell.check_tuples, cell.push)
    trouble = data.check((peer.push(batch) for batch in sent), sent)
    if trouble is not None:
        return {"wrong": trouble}
    pushed, began = cell.check_tuples, time.perf_counter()
    while time.perf_counter() - began < cell.warm_seconds and (
        pushed < cell.warm_tuples or not peer.full
    ):
        for batch in cell.stream(data, PUSH, cell.push, offset=pushed):
            peer.push(batch)
        pushed += PUSH
    warm_seconds, hits, growth = time.perf_counter() - began, peer.hits, _anonymous_bytes()
    batches = cell.stream(data, cell.tuples, cell.push, offset=pushed)
    gc.collect()
    timing = timed(lambda batch: iter((peer.push(batch),)), batches, cell.seconds)
    result = {
        **timing,
        "budget": budget,
        "warm_up_tuples": pushed,
        "warm_up_seconds": warm_seconds,
        "hit_rate": (peer.hits - hits) / timing["rows_out"],
        "cached_rows": peer.capacity,
        "cached_row_bytes": peer.row_bytes,
        "anonymous_growth": growth - memory_before,
    }
    peer.close()
    return result


def _anonymous_bytes() -> int:
    """Resident memory without mapped files, which the kernel can drop at any time."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("RssAnon"):
                return int(line.split()[1]) * 1024
    return 0
