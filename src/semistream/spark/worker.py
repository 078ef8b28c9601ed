"""The join inside Spark: what runs in the Python worker for every task.

    Spark -> coalesce -> run -> (run of the next look-up) -> rows in Spark's types -> Spark

The worker keeps runs from one task to the next, so that their front stages stay warm. A task
drains them before it ends, so no tuple ever waits outside Spark's own checkpoint.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Protocol

import pyarrow as pa

from semistream.engine.binding import On, Select
from semistream.engine.conditions import Given
from semistream.errors import BudgetError
from semistream.joins import Join, Run
from semistream.master import MasterTable
from semistream.master.mapped_reader import RESIDENT
from semistream.master.pages import PageSource
from semistream.memory import divide, format_size
from semistream.spark.batch_version import MicroBatch, keep_held, micro_batch, pinned_version
from semistream.spark.coalesce import coalesce, coalesce_bytes
from semistream.spark.metrics import Report, TaskMetrics
from semistream.spark.registry import REGISTRY
from semistream.spark.schema import to_spark_schema
from semistream.spark.worker_socket import acknowledge_at_once
from semistream.tuning.predicted import FEW, predicted_rate


def log_to_stderr(name: str) -> None:
    """Show this logger's lines in the executor's log; Spark configures no logging for Python."""
    logger = logging.getLogger(name)
    if not logger.hasHandlers():
        logger.addHandler(logging.StreamHandler())
        logger.setLevel(logging.INFO)


@dataclass(frozen=True)
class BoundLookup:
    """One look-up as sent to the workers.

    ``path`` and ``version`` for a master table; ``source`` for any other page source.
    ``follow``: micro-batches pin the newest version; otherwise all read ``version``. ``hold``: the
    driver's pin on ``version``. ``resident``: the table's pages stay mapped (``MasterTable.open``).
    ``tag`` identifies conditions with functions.
    """

    join: Join
    on: On
    select: Select | None
    path: str | None
    version: int
    follow: bool
    source: PageSource | None = None
    nbytes: int = 0
    hold: MicroBatch | None = None
    resident: bool = False
    conditions: tuple[Given, ...] = ()
    as_of: str | None = None
    max_age: float | str | None = None
    too_old: str = "warn"
    order: str | None = None
    tag: str = ""

    def version_for(self, batch: MicroBatch | None) -> int:
        if self.path is None:
            return self.version
        if batch is not None:
            return pinned_version(self.path, batch, None if self.follow else self.version)
        if self.hold is not None:
            keep_held(self.path, self.hold)
        return self.version

    def open(self, memory: int, version: int) -> Run:
        log_to_stderr("semistream.auto")
        source = self.source
        if source is None:
            assert self.path is not None
            mapped = RESIDENT if self.resident else True
            source = MasterTable.open(self.path, version, mapped=mapped)
        return replace(self.join, memory=memory).open(
            source, self.on, select=self.select, where=self.conditions or None, as_of=self.as_of,
            follow=False, max_age=self.max_age, too_old=self.too_old, order=self.order,
        )  # fmt: skip

    def predict(self, run: Run, batch: pa.RecordBatch) -> None:
        """Note the rate to expect, from the first batch; ``auto`` has done so itself."""
        if hasattr(run, "why") or self.conditions or self.as_of is not None:
            return
        rate = predicted_rate(run.join, run.source, batch, self.on, self.select, drained=True)
        run.stats.predicted_rate = rate

    @property
    def where(self) -> str:
        return self.path or str(getattr(self.source, "path", type(self.source).__name__))

    @property
    def identity(self) -> tuple[Any, ...]:
        found: tuple[Any, ...] = (
            self.where, repr(self.join), repr(self.on), repr(self.select), self.follow
        )  # fmt: skip
        if self.max_age is not None or self.order is not None:
            found = (*found, self.max_age, self.too_old, self.order)
        if self.resident:
            found = (*found, RESIDENT)
        if not self.conditions and self.as_of is None:
            return found
        return (*found, self.tag or repr(self.conditions), self.as_of)


class WaitingRows(Protocol):
    """Rows that wait outside of the runs: :class:`~semistream.overload.turn.TaskTurn`."""

    def late(self, lookup: int, run: Any) -> Iterator[pa.RecordBatch]: ...
    def park_unmatched(self, runs: Sequence[Any]) -> None: ...
    def release(self, runs: Sequence[Any]) -> None: ...


@dataclass(frozen=True)
class Enrichment:
    """The function that Spark maps over a partition's batches. Immutable and picklable."""

    name: str
    lookups: tuple[BoundLookup, ...]
    memory: int
    slots: int | None
    schema: pa.Schema
    metrics: TaskMetrics | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        acknowledge_at_once()
        batches = iter(batches)
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is not None:
            yield from self.serve(chain([first], batches), first.schema)

    def serve(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        waiting: WaitingRows | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Join batches with this schema; ``waiting``: the rows that wait before and behind them."""
        batch = micro_batch()
        versions = [lookup.version_for(batch) for lookup in self.lookups]
        slots = self.slots or os.cpu_count() or 1
        report = Report(batch, self.name, [lookup.where for lookup in self.lookups])
        with REGISTRY.checkout(
            self._budget_name(batch, schema),
            self.memory,
            slots,
            lambda memory: Star(self.lookups, memory, versions),
        ) as (star, warm):
            report.begin(star.runs, warm)
            star.use(versions)
            for rows in star.serve(batches, waiting):
                yield to_spark_schema(rows, self.schema)
            if self.metrics is not None:
                self.metrics.add(report.end(star.runs))

    def _budget_name(self, batch: MicroBatch | None, schema: pa.Schema) -> str:
        """Tasks that may use the same run have the same name, in every worker of an executor.

        A streaming query is identified by its id, which survives a restart; other tasks share a
        name if they come from the same call of ``enrich``.
        """
        owner = self.name if batch is None else batch.query
        parts = (owner, self.memory, schema.to_string(), *(one.identity for one in self.lookups))
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


class Star:
    """The runs of all look-ups in sequence: the last one emits the rows."""

    def __init__(self, lookups: tuple[BoundLookup, ...], memory: int, versions: list[int]) -> None:
        self.runs: list[Run] = []
        self._lookups = lookups
        self._predicted: set[int] = set()  # runs whose rate was predicted, or cannot be
        self._memory = memory
        self._coalesce_bytes = coalesce_bytes(memory)
        # Batches are coalesced before and after every run; concatenating them takes as much again.
        held = 2 * self._coalesce_bytes * (len(lookups) + 1)
        shares = divide(memory - held, [lookup.nbytes for lookup in lookups])
        try:
            for lookup, share, version in zip(lookups, shares, versions, strict=True):
                self.runs.append(lookup.open(share, version))
        except BudgetError as error:
            self.close()
            raise self._explained(error) from error
        except BaseException:
            self.close()
            raise

    def use(self, versions: list[int]) -> None:
        for run, version in zip(self.runs, versions, strict=True):
            run.use(version)

    def serve(
        self, batches: Iterable[pa.RecordBatch], waiting: WaitingRows | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Join these batches and drain the runs; nothing waits in them afterwards."""
        rows = coalesce(batches, self._coalesce_bytes)
        for number, run in enumerate(self.runs):
            late = waiting.late(number, run) if waiting is not None else ()
            rows = coalesce(self._through(number, chain(late, rows)), self._coalesce_bytes)
        if waiting is not None:
            waiting.park_unmatched(self.runs)
        try:
            yield from rows
        except BudgetError as error:
            raise self._explained(error) from error
        finally:
            if waiting is not None:
                waiting.release(self.runs)

    def _through(self, number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        run = self.runs[number]
        for batch in batches:
            if number not in self._predicted and batch.num_rows >= FEW:
                self._predicted.add(number)
                self._lookups[number].predict(run, batch)
            yield from run.push(batch)
        yield from run.flush()

    def close(self) -> None:
        for run in self.runs:
            run.close()

    def _explained(self, error: BudgetError) -> BudgetError:
        return BudgetError(
            f"{error}. This worker's share of the executor's memory is "
            f"{format_size(self._memory)}, for {max(1, len(self.runs))} look-up(s); raise memory"
        )
