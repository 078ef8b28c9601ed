"""What a Spark task costs besides joining: ``python -m lab.bench_task``.

Runs the worker's function in this process for many micro-batches of one row, without Spark: every
batch binds its look-ups as the warehouse sink does, pins its version, takes its run from the
registry, joins, and reports its counters. Prints
the milliseconds of each step, the median and the 95th percentile.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

import semistream as ss
from semistream.master import pins
from semistream.master.store import LocalStore
from semistream.spark import metrics, registry, worker
from semistream.spark.batch_version import MicroBatch
from semistream.spark.enrich import Lookup, bound_lookup
from semistream.spark.sink import bind
from semistream.spark.sink_options import options_of, plan_of
from semistream.spark.worker import Enrichment, Star

ROWS = 100_000


class Clock:
    """Times of calls, by step; a step within another is not counted twice."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = defaultdict(list)
        self._inner: list[float] = []

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            self._inner.append(0.0)
            try:
                return function(*arguments, **options)
            finally:
                spent = time.perf_counter() - start
                self.times[name].append(spent - self._inner.pop())
                if self._inner:
                    self._inner[-1] += spent

        return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--folder", type=Path, help="where the table is; default: temporary")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="semistream-task-", dir=options.folder) as folder:
        show(run(Path(folder), options.batches), options.batches)


def run(folder: Path, batches: int) -> Clock:
    """The times of the steps of this many micro-batches, one row each."""
    clock, now = Clock(), [0]
    table = pa.table({"id": np.arange(ROWS), "price": np.arange(ROWS) * 1.5})
    master = ss.MasterTable.build(table, folder / "master", key="id", unique=True)
    lookup = bound_lookup(Lookup(str(folder / "master"), "id"), master, ss.join("sweepjoin"))
    stream = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    schema = pa.schema([*stream, ("price", pa.float64())])
    task = Enrichment("bench", (lookup,), 64_000_000, 2, schema, mock.Mock())
    options = options_of([Lookup(str(folder / "master"), "id")], path=str(folder / "warehouse"))
    bind_sink = clock.timed("sink: bind the look-ups", lambda: bind(plan_of(options), stream, at()))
    runs = registry.Registry(folder / "leases")

    def at() -> MicroBatch:
        return MicroBatch("bench", now[0])

    def one(number: int) -> None:
        now[0] = number
        bind_sink()
        batch = pa.record_batch([[number % ROWS], [number]], schema=stream)
        rows = sum(out.num_rows for out in task(iter([batch])))
        assert rows == 1, rows

    def patched(owner: Any, name: str, step: str) -> Any:
        return mock.patch.object(owner, name, clock.timed(step, getattr(owner, name)))

    def joined(star: Star, rows: Any) -> Iterator[pa.RecordBatch]:
        return iter(clock.timed("join", lambda: list(serve(star, rows)))())

    serve = Star.serve
    with (
        mock.patch.object(worker, "micro_batch", at),
        mock.patch.object(worker, "REGISTRY", runs),
        patched(worker, "pinned_version", "pin: the rest"),
        patched(LocalStore, "write", "pin: write the hold"),
        patched(LocalStore, "publish", "pin: write a new one, one fsync"),
        patched(LocalStore, "publish_link", "pin: link that of the batch before"),
        patched(LocalStore, "_sync_published", "pin: fsync of the folder"),
        patched(LocalStore, "delete", "pin: delete the hold"),
        patched(LocalStore, "list", "pin: list folders"),
        patched(pins, "keep_version", "pin: check that the version is kept"),
        patched(registry.Registry, "_take", "registry and lease"),
        patched(registry.Ledger, "fair_share", "registry and lease"),
        patched(metrics.Report, "begin", "metrics"),
        patched(metrics.Report, "end", "metrics"),
        patched(Enrichment, "_budget_name", "name of the budget"),
        patched(Star, "use", "open the pinned version"),
        mock.patch.object(Star, "serve", joined),
    ):
        for number in range(10):
            one(number)
        clock.times.clear()
        whole = clock.timed("all else", one)
        for number in range(10, 10 + batches):
            before = {step: len(times) for step, times in clock.times.items()}
            whole(number)
            _sum_up(clock, before)
    runs.close()
    return clock


def _sum_up(clock: Clock, before: dict[str, int]) -> None:
    """A step that ran several times in a micro-batch becomes one figure."""
    for step, times in clock.times.items():
        since = before.get(step, 0)
        times[since:] = [sum(times[since:])]


def show(clock: Clock, batches: int) -> None:
    print(f"{batches} micro-batches of one row; milliseconds per micro-batch\n")
    print("| step | median | 95 % |")
    print("|---|---|---|")
    total = 0.0
    for step, times in sorted(clock.times.items(), key=lambda item: -median(item[1])):
        middle, high = median(times) * 1e3, quantiles(times, n=20)[-1] * 1e3
        total += 0 if step == "join" else middle
        print(f"| {step} | {middle:.2f} | {high:.2f} |")
    print(f"| **all but the join** | **{total:.2f}** | |")


if __name__ == "__main__":
    main()
