"""The parts of the SweepJoin benchmark that are not plain engine cells."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

import numpy as np
import pyarrow as pa

import semistream as ss
from lab import machine, page_cache, sweep_limit
from lab.bench_engine import run_cell
from lab.engine_cell import Cell
from lab.engine_data import EngineData
from lab.settled import Settled, Turn
from semistream.workload import arrivals

BATCH = 100_000
PIECE = 200
TURNS = 12  # of a second each


def peers(data: EngineData, base: Cell) -> dict[str, Any]:
    """The alternatives that users choose; they may use the page cache and all memory."""
    page_cache.read(data.lmdb)
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
        pages.append(
            batch.take(pa.array(np.arange(batch.num_rows)))
        )  # a copy: the page is valid only until the next one is read
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
    """Runs and their lower bounds, measured alternately."""
    results = []
    for percent in percents:
        with get_context("spawn").Pool(1) as pool:
            results.append(pool.apply(_limited, (data, replace(base, percent=percent))))
    return results


def _limited(data: EngineData, cell: Cell) -> dict[str, Any]:
    machine.pin_to_one_core()
    settled, table = Settled(data, cell), sweep_limit.TableInMemory(data)
    run, floor, disk = Turn(), Turn(), Turn()
    for _ in range(TURNS):
        settled.prepare()
        floor += table.turn(0.3)
        run += settled.turn()
        disk += sweep_limit.read_disk(data.pages_file, 0.3)
    settled.close()
    reading = run.bytes_read / run.rows * disk.seconds / disk.bytes_read
    return {
        "percent": cell.percent,
        "rate": run.rate,
        "processor_floor": floor.rate,
        "disk_rate": disk.bytes_read / disk.seconds,
        "disk_floor": 1 / reading if reading else None,
        "share": run.rate * max(1 / floor.rate, reading),
        "load": machine.load(),
    }


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
            came[at : at + size] = run.stats.iterations  # when they were admitted
            at += size
            if stream == "trickling":
                for rows in run.step():
                    note(rows)
        for rows in run.flush():
            note(rows)
        bound = run.longest_wait if run.join.name == "sweepjoin" else None
    iterations, elapsed = np.concatenate(waits), np.concatenate(seconds)
    if len(iterations) != n:
        raise RuntimeError(f"{len(iterations)} of {n} tuples were returned")
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
    # A burst is pushed in small batches: time spent outside the window is not the join's wait.
    pieces = [[PIECE] * (size // PIECE) + [size % PIECE] for size in bursts.tolist()]
    return np.array([piece for burst in pieces for piece in burst if piece])


def cores(data: EngineData, base: Cell) -> dict[str, Any]:
    """Two processes on two cores compared with one; and one run on either core and on both."""
    several = get_context("spawn")
    barrier, results = several.Barrier(2), several.Queue()
    both_at = replace(base, percent=5.0)
    processes = [
        several.Process(target=_beside, args=(data, both_at, core, barrier, results))
        for core in (0, 1)
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    alone = statistics.mean(one for one, _ in found)
    # An I/O-bound cell: a small budget and no skew.
    with several.Pool(1) as pool:
        bound = pool.apply(_on_cores, (data, replace(base, percent=1.0, exponent=0.0)))
    one_core = (bound[(0,)] + bound[(1,)]) / 2
    return {
        "one_process": alone,
        "each_of_two": [both for _, both in found],
        "two_processes": sum(both for _, both in found) / alone,
        "io_bound_on_either_core": [bound[(0,)], bound[(1,)]],
        "io_bound_on_two_cores": bound[(0, 1)],
        "second_core": bound[(0, 1)] / one_core,
        "load": machine.load(),
    }


def _beside(data: EngineData, cell: Cell, core: int, barrier: Any, results: Any) -> None:
    """One of two processes: its rate alone, and its rate while the other one runs."""
    os.sched_setaffinity(0, {core})
    settled = Settled(data, cell)
    alone, both = Turn(), Turn()
    for turn in range(TURNS):
        settled.prepare()
        barrier.wait()
        if turn % 2 == core:
            alone += settled.turn()
        barrier.wait()
        both += settled.turn()
        barrier.wait()
    results.put((alone.rate, both.rate))
    settled.close()


def _on_cores(data: EngineData, cell: Cell) -> dict[tuple[int, ...], float]:
    """The rate of one run on the first core, on the second, and on both."""
    settled = Settled(data, cell)
    found = {(0,): Turn(), (1,): Turn(), (0, 1): Turn()}
    for _ in range(TURNS):
        for allowed in found:
            settled.prepare()
            os.sched_setaffinity(0, allowed)
            found[allowed] += settled.turn()
    settled.close()
    return {allowed: turn.rate for allowed, turn in found.items()}
