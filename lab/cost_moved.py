"""After the hot keys have moved, and after R has doubled: how soon a running query is as fast as
one that was tuned for the new state."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

import semistream as ss
from lab.build_once import DATA
from lab.engine_data import ROW_BYTES
from semistream import workload
from semistream.cost import Machine

CHANGES = ("hot keys", "rows")
JOINS = ("sweepjoin", "chybridjoin", "cmeshjoin", "x-hybridjoin")
_PUSH = 20_000
_STEP = 0.25  # seconds of processor time for one figure
_PAIRS = 8  # figures of both runs, in turn: the host is not equally fast all the time
_NEAR = 0.9  # of the tuned run's rate
_EXPONENT = 1.0


@dataclass(frozen=True)
class Change:
    """What changes for which join."""

    what: str
    join: str
    rows: int
    percent: float
    seconds: float  # before, and at most after it

    @property
    def name(self) -> str:
        return f"{self.join}, {self.rows:,} rows, {self.percent:g} %: {self.what}"


def stream(rows: int, seed: int) -> Iterator[pa.RecordBatch]:
    """The hot keys are others for another seed."""
    offset = 0
    while True:
        yield from workload.sales(
            20 * _PUSH, rows, _EXPONENT, seed, scattered=True, batch_rows=_PUSH, offset=offset
        )
        offset += 20 * _PUSH


def serve(run: Any, batches: Iterator[pa.RecordBatch], seconds: float) -> tuple[float, float]:
    """(tuples per second of processor time, processor time)."""
    served, spent = run.stats.matched, 0.0
    while spent < seconds:
        batch, began = next(batches), time.process_time()
        for _ in run.push(batch):
            pass
        spent += time.process_time() - began
    return (run.stats.matched - served) / spent, spent


def measure(change: Change, machine: Machine) -> dict[str, Any]:
    """The tuned run's rate in the new state, the running query's over time, and when it is near."""
    folder = DATA / "cost-moved"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        reader = workload.products(change.rows, ROW_BYTES, 0)
        master = ss.MasterTable.build(reader, folder / "master", key="product_id", unique=True)
        return {"name": change.name, **_measure(change, master, machine)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(change: Change, master: Any, machine: Machine) -> dict[str, Any]:
    """The running query was tuned for the old state, and adapts from there."""
    join = _tuned(change, master, machine, stream(change.rows, 0))
    with replace(join, adapt=True).open(master, on="product_id") as run:
        before, _ = serve(run, stream(change.rows, 0), change.seconds)
        rows, seed = change.rows, 1
        if change.what == "rows":
            more = workload.products(2 * change.rows, ROW_BYTES, 0).read_all()
            # In one version: of a delta, every changed key is kept in memory.
            master = master.upsert(more.slice(change.rows)).compact()
            rows, seed = 2 * change.rows, 0
        new, same = stream(rows, seed), stream(rows, seed)
        join = _tuned(change, master, machine, same)
        with join.open(master, on="product_id") as tuned_run:
            serve(tuned_run, same, change.seconds)
            spent, rates = 0.0, []
            while spent < change.seconds:
                rate, seconds = serve(run, new, _STEP)
                spent += seconds
                rates.append(rate)
            pairs = [
                (serve(run, new, _STEP)[0], serve(tuned_run, same, _STEP)[0]) for _ in range(_PAIRS)
            ]
            hits = [_hit_share(run, new), _hit_share(tuned_run, same)]
    last, tuned = (float(rate) for rate in np.median(pairs, axis=0))
    near = [i for i, rate in enumerate(rates) if rate >= _NEAR * tuned]
    soon = (near[0] + 1) * _STEP if near else None
    found = {"before": before, "tuned": tuned, "rates": rates, "last": last, "pairs": pairs}
    return {**found, "seconds_until": soon, "hits": hits}


def _hit_share(run: Any, batches: Iterator[pa.RecordBatch]) -> float:
    """The front stage's share: unlike a rate, it does not depend on what else the host does."""
    hits, served = run.stats.front_stage_hits, run.stats.matched
    serve(run, batches, _STEP)
    return (run.stats.front_stage_hits - hits) / max(1, run.stats.matched - served)  # type: ignore[no-any-return]


def _tuned(
    change: Change, master: Any, machine: Machine, batches: Iterator[pa.RecordBatch]
) -> ss.Join:
    memory = int(change.rows * ROW_BYTES * change.percent / 100)
    plan = ss.tune(
        master, sample=next(batches), on="product_id", memory=memory,
        joins=[change.join], push=_PUSH, machine=machine,
    )  # fmt: skip
    return plan.join  # type: ignore[no-any-return]
