"""The counters of all tasks' runs, aggregated by micro-batch on the driver.

A task adds the counters of its runs to an accumulator when it ends, so a failed attempt adds
nothing. The driver sums the tasks of each (query, batch); :mod:`semistream.spark.listener`
combines the result with Spark's own progress.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any, TypeAlias

from pyspark import SparkContext
from pyspark.accumulators import Accumulator, AccumulatorParam

from semistream.joins import Run
from semistream.spark.batch_version import MicroBatch

Key: TypeAlias = tuple[str, int | None]
Totals: TypeAlias = dict[Key, dict[str, Any]]

MOST_KEPT = 1000  # uncollected micro-batches
_hubs: dict[str, Accumulator[Totals]] = {}
_collected: Totals = {}  # for a second listener of the same application
_waiting: dict[Key, dict[str, float]] = {}  # rows that wait outside of the runs


class FoldTotals(AccumulatorParam[Totals]):
    """Adds up records of the same key; drops the oldest if they are not collected."""

    def zero(self, value: Totals) -> Totals:
        return {}

    def addInPlace(self, value1: Totals, value2: Totals) -> Totals:  # noqa: N802
        for key, record in value2.items():
            value1[key] = fold(value1[key], record) if key in value1 else record
        while len(value1) > MOST_KEPT:
            del value1[next(iter(value1))]
        return value1


def fold(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Merge two records. Counters add up; a worker's memory is taken from its last task."""
    lookups = [dict(lookup) for lookup in one["lookups"]]
    for lookup in other["lookups"]:
        same = [mine for mine in lookups if mine["lookup"] == lookup["lookup"]]
        if not same:
            lookups.append(lookup)
            continue
        mine = same[0]
        mine["version"] = lookup["version"]
        mine["memory"] = {**mine["memory"], **lookup["memory"]}
        counters = {**mine["counters"]}
        for name, count in lookup["counters"].items():
            counters[name] = counters.get(name, 0) + count
        mine["counters"] = counters
        mine["join_seconds"] += lookup["join_seconds"]
        for name in ("predicted_rate", "why"):
            mine[name] = mine[name] if lookup[name] is None else lookup[name]
    return {
        "tasks": one["tasks"] + other["tasks"],
        "warm_tasks": one["warm_tasks"] + other["warm_tasks"],
        "lookups": lookups,
    }


class TaskMetrics:
    """Sends a task's record to the driver."""

    def __init__(self, accumulator: Accumulator[Totals]) -> None:
        self._accumulator = accumulator

    def add(self, totals: Totals) -> None:
        self._accumulator.add(totals)


class Report:
    """The counters of one task: its runs' counters at the end minus those at the start."""

    def __init__(self, batch: MicroBatch | None, enrichment: str, lookups: Sequence[str]) -> None:
        self._key: Key = (enrichment, None) if batch is None else (batch.query, batch.batch)
        self._enrichment = enrichment
        self._lookups = lookups
        self._before: list[dict[str, int]] = []
        self._seconds: list[float] = []
        self._warm = False

    def begin(self, runs: Sequence[Run], warm: bool) -> None:
        self._before = [run.stats.as_dict() for run in runs]
        self._seconds = [run.stats.seconds for run in runs]
        self._warm = warm

    def end(self, runs: Sequence[Run]) -> Totals:
        worker = f"{socket.gethostname()}:{os.getpid()}"
        lookups = []
        for number, (path, run) in enumerate(zip(self._lookups, runs, strict=True)):
            before, after = self._before[number], run.stats.as_dict()
            lookups.append(
                {
                    "lookup": f"{self._enrichment}/{number}",
                    "master": path,
                    "join": run.join.name,
                    "version": run.version,
                    "counters": {name: after[name] - before[name] for name in after},
                    "memory": {worker: {**run.memory, "budget": run.memory.budget}},
                    "join_seconds": run.stats.seconds - self._seconds[number],
                    "predicted_rate": run.stats.predicted_rate,
                    "why": getattr(run, "why", None),  # auto has chosen this join
                }
            )
        return {self._key: {"tasks": 1, "warm_tasks": int(self._warm), "lookups": lookups}}


def task_metrics(session: Any) -> TaskMetrics | None:
    """None under Spark Connect, whose clients have no accumulators."""
    context = getattr(session, "_sc", None)
    return TaskMetrics(hub(context)) if isinstance(context, SparkContext) else None


def hub(context: SparkContext) -> Accumulator[Totals]:
    """The one accumulator of this application."""
    name = str(context.applicationId)
    if name not in _hubs:
        _hubs.clear()  # a process has one SparkContext at a time
        _collected.clear()
        _waiting.clear()
        _hubs[name] = context.accumulator({}, FoldTotals())
    return _hubs[name]


def collect(context: SparkContext, query: str, batch: int | None) -> dict[str, Any] | None:
    """The record of a batch, which leaves the accumulator; None if there is none."""
    found = hub(context).value.pop((query, batch), None)
    if found is None:
        return _collected.get((query, batch))
    _collected[(query, batch)] = found
    while len(_collected) > MOST_KEPT:
        del _collected[next(iter(_collected))]
    return found


def note_waiting(query: str, batch: int, figures: dict[str, float]) -> None:
    """Keep how many rows wait after a batch, until its record is made."""
    _waiting[(query, batch)] = figures
    while len(_waiting) > MOST_KEPT:
        del _waiting[next(iter(_waiting))]


def waiting_after(query: str, batch: int) -> dict[str, float]:
    """Deferred and parked rows; empty if the query has neither."""
    return _waiting.get((query, batch), {})
