"""The parts of the SweepJoin benchmark that are not plain engine cells."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

import numpy as np
import pyarrow as pa

import semistream as ss
from lab import machine, sweep_limit
from lab.bench_engine import run_cell
from lab.engine_cell import Cell
from lab.engine_data import EngineData
from semistream.joins.sweepjoin import SweepRun
from semistream.workload import arrivals

BATCH = 100_000
PIECE = 200


def peers(data: EngineData, base: Cell) -> dict[str, Any]:
    """What users pick instead; the page cache and all memory are free for them."""
    found = {
        "sweepjoin": run_cell(replace(base, direct=True)),
        "lru+lmdb": run_cell(replace(base, join="lru+lmdb", warm_tuples=4_000_000)),
    }
    for name, measure in (("duckdb", _duckdb), ("polars", _polars)):
        context = get_context("spawn")
        with context.Pool(1) as pool:
            try:
                found[name] = pool.apply(measure, (data, base))
            except ImportError as error:
                found[name] = {"missing": str(error)}
    return {name: {k: v for k, v in one.items() if k != "memory"} for name, one in found.items()}


def _batch_by_batch(data: EngineData, base: Cell, join: Any) -> dict[str, Any]:
    batches = data.stream(20 * BATCH, BATCH)
    wrong = data.check(iter(join(batches[0]).to_batches()), batches[:1])
    if wrong:
        return {"wrong": wrong}
    join(batches[1])
    started, rows = time.perf_counter(), 0
    for batch in batches[2:]:
        rows += join(batch).num_rows
        if time.perf_counter() - started > 10:
            break
    elapsed = time.perf_counter() - started
    return {"rate": rows / elapsed, "rows_out": rows, "batch": BATCH, "load": machine.load()}


def _table(data: EngineData) -> pa.Table:
    master = ss.MasterTable.open(data.master)
    reader = master.reader(1)
    pages = []
    for page in range(master.num_pages):
        batch = reader.read(page)[0]
        pages.append(batch.take(pa.array(np.arange(batch.num_rows))))  # a copy that stays
    return pa.Table.from_batches(pages)


def _duckdb(data: EngineData, base: Cell) -> dict[str, Any]:
    import duckdb

    machine.pin_to_one_core()
    connection = duckdb.connect(config={"threads": 1})
    loaded = _table(data)  # DuckDB finds it by its name
    connection.execute("create table products as select * from loaded")
    del loaded

    def join(batch: pa.RecordBatch) -> pa.Table:
        sales = pa.Table.from_batches([batch])  # noqa: F841 - DuckDB finds it by its name
        columns = "sales.*, products.* exclude (product_id)"
        query = f"select {columns} from sales join products using (product_id)"
        return connection.execute(query).to_arrow_table()

    return _batch_by_batch(data, base, join)


def _polars(data: EngineData, base: Cell) -> dict[str, Any]:
    os.environ["POLARS_MAX_THREADS"] = "1"
    import polars

    machine.pin_to_one_core()
    products = polars.from_arrow(_table(data))

    def join(batch: pa.RecordBatch) -> pa.Table:
        sales = polars.from_arrow(pa.Table.from_batches([batch]))
        return sales.join(products, on="product_id", how="inner").to_arrow()  # type: ignore[union-attr,arg-type]

    return _batch_by_batch(data, base, join)


def limit(data: EngineData, base: Cell, percents: Sequence[float]) -> list[dict[str, Any]]:
    """Runs beside the floors that the machine sets for them.

    A shared machine is faster in one minute than in the next, so both floors are measured before
    and after every run, and their means count.
    """
    results = []
    before = _floors(data)
    for percent in percents:
        run = run_cell(replace(base, percent=percent))
        after = _floors(data)
        floor, disk = (statistics.mean(pair) for pair in zip(before, after, strict=True))
        results.append(_limited(run, floor, disk))
        before = after
    return results


def _floors(data: EngineData) -> tuple[float, float]:
    """Seconds per tuple of the processor's floor, and bytes per second of the disk."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(_floor, (data,)), sweep_limit.disk_rate(data.master)


def _limited(run: dict[str, Any], floor: float, disk: float) -> dict[str, Any]:
    reading = run["bytes_read"] / run["rows_out"] / disk
    least = max(floor, reading)
    return {
        "percent": run["percent"],
        "rate": run["rate"],
        "processor_floor": 1 / floor,
        "disk_rate": disk,
        "disk_floor": 1 / reading if reading else None,
        "share": run["rate"] * least,
        "load": machine.load(),
    }


def _floor(data: EngineData) -> float:
    machine.pin_to_one_core()
    pa.set_cpu_count(1)
    return sweep_limit.processor_seconds(data, data.stream(3_000_000, 50_000))


def wait(data: EngineData, base: Cell) -> dict[str, Any]:
    """How long tuples wait, in iterations and in seconds, on a bursty and a trickling stream."""
    found: dict[str, Any] = {}
    for stream in ("bursty", "trickling"):
        found[stream] = {}
        for name in ("sweepjoin", "meshjoin", "hybridjoin"):
            with get_context("spawn").Pool(1) as pool:
                found[stream][name] = pool.apply(_wait, (data, base, name, stream))
    return found


def _wait(data: EngineData, base: Cell, name: str, stream: str) -> dict[str, Any]:
    machine.pin_to_one_core()
    master = ss.MasterTable.open(data.master)
    join = ss.join(name, memory=int(data.nbytes * 0.01))
    sizes = _sizes(stream)
    n = int(sizes.sum())
    batch = pa.Table.from_batches(data.stream(n, n)).combine_chunks().to_batches()[0]
    came = np.zeros(n, np.int64)
    began = np.zeros(n)
    waits, seconds = [], []

    def note(rows: pa.RecordBatch) -> None:
        sale = rows["sale_id"].to_numpy()
        waits.append(run.stats.iterations - came[sale])
        seconds.append(time.perf_counter() - began[sale])

    with join.open(master, on="product_id", direct=True) as run:
        at = 0
        for size in sizes.tolist():
            came[at : at + size] = run.stats.iterations
            began[at : at + size] = time.perf_counter()
            for rows in run.push(batch.slice(at, size)):
                note(rows)
            came[at : at + size] = run.stats.iterations  # now they are taken in
            at += size
            if stream == "trickling":
                for rows in run.step():
                    note(rows)
        for rows in run.flush():
            note(rows)
        bound = run.longest_wait if isinstance(run, SweepRun) else None
    iterations, elapsed = np.concatenate(waits), np.concatenate(seconds)
    if len(iterations) != n:
        raise RuntimeError(f"{len(iterations)} of {n} tuples came out")
    quantiles = {f"p{q}_seconds": float(np.percentile(elapsed, q)) for q in (50, 99)}
    return {
        "tuples": n,
        **quantiles,
        "max_seconds": float(elapsed.max()),
        "p50_iterations": float(np.percentile(iterations, 50)),
        "max_iterations": int(iterations.max()),
        "bound": bound,
        "load": machine.load(),
    }


def _sizes(stream: str) -> Any:
    if stream == "trickling":
        return np.full(3_000, 20)
    counts = arrivals.bursty(2_000, seed=1)
    bursts = np.maximum(1, (counts / counts.mean() * 1_500)).astype(np.int64)
    # A burst comes in pushes that find room soon: what waits outside the window is not the join's.
    pieces = [[PIECE] * (size // PIECE) + [size % PIECE] for size in bursts.tolist()]
    return np.array([piece for burst in pieces for piece in burst if piece])


def cores(data: EngineData, base: Cell) -> dict[str, Any]:
    """Two processes on two cores beside one; and one run on one core and on two."""
    with get_context("spawn").Pool(2) as pool:
        alone = pool.apply(_rate, (data, replace(base, percent=5.0), (0,)))
        with ThreadPoolExecutor(2) as threads:
            both = list(
                threads.map(
                    lambda core: pool.apply(_rate, (data, replace(base, percent=5.0), (core,))),
                    (0, 1),
                )
            )
        one_core = pool.apply(_rate, (data, base_at(base), (0,)))
        two_cores = pool.apply(_rate, (data, base_at(base), (0, 1)))
    return {
        "one_process": alone,
        "each_of_two": both,
        "two_processes": sum(both) / alone,
        "io_bound_one_core": one_core,
        "io_bound_two_cores": two_cores,
        "second_core": two_cores / one_core,
        "load": machine.load(),
    }


def base_at(base: Cell) -> Cell:
    """A cell that is bound by the disk: a small budget and no skew."""
    return replace(base, percent=1.0, exponent=0.0)


def _rate(data: EngineData, cell: Cell, on: tuple[int, ...]) -> float:
    os.sched_setaffinity(0, set(on))
    pa.set_cpu_count(1)
    master = ss.MasterTable.open(data.master)
    join = ss.join("sweepjoin", memory=int(data.nbytes * cell.percent / 100))
    with join.open(master, on="product_id", direct=True) as run:
        pushed, began = 0, time.perf_counter()
        while time.perf_counter() - began < 8:
            for batch in data.stream(1_000_000, 50_000, pushed, cell.exponent):
                for _ in run.push(batch):
                    pass
            pushed += 1_000_000
        batches = data.stream(8_000_000, 50_000, pushed, cell.exponent)
        rows, began = 0, time.perf_counter()
        for batch in batches:
            rows += sum(out.num_rows for out in run.push(batch))
            if time.perf_counter() - began > 4:
                break
        return rows / (time.perf_counter() - began)
