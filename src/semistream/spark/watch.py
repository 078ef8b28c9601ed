"""Monitors a running query: a line of figures per batch, and a stop that waits for the batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from semistream.spark.errors import reraise_semistream_errors
from semistream.spark.interrupts import noted_interrupts
from semistream.spark.listener import Metrics

_POLL = 0.2
_PATIENCE = 2.0  # seconds to wait for a listener that lags behind
_IDLE = ("Waiting for data to arrive", "Waiting for next trigger")


@dataclass(frozen=True)
class Figures:
    """The newest micro-batch, and the rows of all since the start."""

    batch: int
    rows: int
    rows_per_second: float
    hit_rate: float | None
    seconds: float
    lag: str
    deferred: int = 0

    def __str__(self) -> str:
        hits = "-" if self.hit_rate is None else f"{self.hit_rate:.0%}"
        late = f" | {self.deferred:,} deferred" if self.deferred else ""
        return (
            f"batch {self.batch} | {self.rows:,} rows | {self.rows_per_second:,.0f} rows/s | "
            f"hit rate {hits} | batch time {self.seconds:.2f} s | lag {self.lag}{late}"
        )


def watch(
    query: Any,
    metrics: Metrics,
    show: Callable[[Figures], None],
    check: Callable[[], object] = lambda: None,
) -> int:
    """Watch until the query ends, fails (raises) or Ctrl-C. Returns the rows that it read.

    ``check`` is called all the time; what it raises stops the query.
    """
    watcher = _Watcher(query, metrics, show)
    with noted_interrupts() as stop:
        try:
            while not stop.is_set():
                with reraise_semistream_errors():
                    if query.awaitTermination(_POLL):
                        break
                watcher.poll()
                check()
            if stop.is_set():
                _finish_batch(query)
            watcher.poll_last()
        finally:
            query.stop()
    return watcher.rows


def _finish_batch(query: Any) -> None:
    """Wait for the end of the current batch, if there is one."""

    def done() -> int:
        progress = query.lastProgress
        return -1 if progress is None else int(progress["batchId"])

    began = done()
    while query.isActive and query.status["isTriggerActive"] and done() == began:
        if query.status["message"] in _IDLE:
            return
        time.sleep(_POLL / 4)


class _Watcher:
    """Shows each batch once, as soon as the runs' counters have arrived."""

    def __init__(self, query: Any, metrics: Metrics, show: Callable[[Figures], None]) -> None:
        self._query, self._metrics, self._show = query, metrics, show
        self._waiting: dict[int, tuple[Any, float]] = {}
        self._shown = -1
        self.rows = 0

    def poll(self, patience: float = _PATIENCE) -> None:
        now = time.monotonic()
        for progress in self._query.recentProgress:
            batch = int(progress["batchId"])
            if batch > self._shown and progress["numInputRows"]:
                self._waiting.setdefault(batch, (progress, now))
        for batch, (progress, since) in sorted(self._waiting.items()):
            record = self._record(batch)
            if record is None and now - since < patience:
                return
            del self._waiting[batch]
            self._shown = batch
            self._show_batch(progress, record)

    def poll_last(self) -> None:
        """The query has ended: wait a moment for the counters of its last batches."""
        deadline = time.monotonic() + _PATIENCE
        self.poll()
        while self._waiting and time.monotonic() < deadline:
            time.sleep(_POLL)
            self.poll()
        self.poll(patience=0)

    def _show_batch(self, progress: Any, record: dict[str, Any] | None) -> None:
        rows = int(progress["numInputRows"])
        seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
        self.rows += rows
        rates = [one["hit_rate"] for one in record["lookups"]] if record else []
        self._show(
            Figures(
                batch=int(progress["batchId"]),
                rows=self.rows,
                rows_per_second=rows / seconds if seconds else 0.0,
                # The lowest hit rate of several look-ups: its misses go to disk.
                hit_rate=min((rate for rate in rates if rate is not None), default=None),
                seconds=seconds,
                lag=_lag(progress),
                deferred=int((record or {}).get("deferred", 0)),
            )
        )

    def _record(self, batch: int) -> dict[str, Any] | None:
        record: dict[str, Any]
        for record in reversed(self._metrics.records):
            if record["batch"] == batch and record["query"] == str(self._query.id):
                return record
        return None


def _lag(progress: Any) -> str:
    """Messages in Kafka that the query has not read; for other sources, the batch's duration."""
    behind = [
        int(float(source["metrics"]["maxOffsetsBehindLatest"]))
        for source in progress["sources"]
        if "maxOffsetsBehindLatest" in (source.get("metrics") or {})
    ]
    if behind:
        return f"{max(behind):,} messages"
    return f"{progress['durationMs'].get('triggerExecution', 0) / 1000:.1f} s"
