"""Metrics of enriched queries: Spark's progress and the runs' counters in one record per batch."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from semistream.errors import ConfigError, SemistreamError
from semistream.live.feed import Feed
from semistream.master import manifest as manifests
from semistream.master.store import LocalStore
from semistream.master.sync.freshness import age_of
from semistream.spark.errors import original
from semistream.spark.metrics import collect, waiting_after
from semistream.spark.prometheus import Endpoint, exposition

_LOG = logging.getLogger(__name__)


class Metrics:
    """Collects a record per micro-batch of every enriched query of a session.

    >>> with Metrics(spark, json_lines="metrics.jsonl", prometheus_port=9400):  # doctest: +SKIP
    ...     query.awaitTermination()

    Parameters
    ----------
    session
        A classic session. Spark Connect clients have no accumulators.
    json_lines
        A file to which one line of JSON per micro-batch is appended.
    prometheus_port
        Serve the newest figures on ``http://127.0.0.1:<port>/metrics``; 0 picks a free port,
        see :attr:`url`.
    redact
        Removes secrets from the message of a query that failed, which the live page shows.
    """

    def __init__(
        self,
        session: SparkSession,
        json_lines: str | os.PathLike[str] | None = None,
        prometheus_port: int | None = None,
        redact: Callable[[str], str] = str,
    ) -> None:
        if getattr(session, "_sc", None) is None:
            raise ConfigError("metrics need a classic session; Spark Connect has no accumulators")
        self._session = session
        self._redact = redact
        self._lock = threading.Lock()
        self._file = None if json_lines is None else _appending(json_lines)
        self.feed = Feed()  # what the live page reads
        self._last: dict[str, tuple[str, int]] = {}  # query -> run and batch
        self.latest: dict[str, dict[str, Any]] = {}
        self.totals: dict[tuple[str, str, str], int] = {}
        self._endpoint: Endpoint | None = None
        if prometheus_port is not None:
            self._endpoint = Endpoint(prometheus_port, self._exposition)
        self._listener = _Listener(self)
        session.streams.addListener(self._listener)

    @property
    def url(self) -> str | None:
        """The URL that Prometheus scrapes."""
        return self._endpoint.url if self._endpoint else None

    @property
    def records(self) -> list[dict[str, Any]]:
        """The newest records, of all queries."""
        return self.feed.records

    def close(self) -> None:
        """Stop listening, after the batches that have ended are recorded."""
        _deliver_events(self._session)
        self._session.streams.removeListener(self._listener)
        if self._endpoint is not None:
            self._endpoint.close()
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Metrics:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def progressed(self, progress: Any) -> None:
        """Called by the listener after each micro-batch."""
        counted = collect(self._session.sparkContext, str(progress.id), progress.batchId)
        if counted is None:
            return  # no rows to join in this batch, or not an enriched query
        record = batch_record(progress, counted)
        run_and_batch = (record["run"], record["batch"])
        with self._lock:
            if self._last.get(record["query"]) == run_and_batch:
                return  # Spark has reported it before
            self._last[record["query"]] = run_and_batch
            self.feed.add(record)
            self.latest[record["query"]] = record
            for lookup in record["lookups"]:
                for name, count in lookup["counters"].items():
                    key = (record["query"], lookup["master"], name)
                    self.totals[key] = self.totals.get(key, 0) + count
            if self._file is not None and not self._file.closed:
                self._file.write(json.dumps(record) + "\n")

    def ended(self, query: str, error: str | None) -> None:
        with self._lock:
            self.latest.pop(query, None)
        message = original(error or "")
        why = str(message) if message else (error or "").strip().split("\n")[0]
        self.feed.set_state(query, "failed" if error else "stopped", self._redact(why) or None)

    def _exposition(self) -> str:
        with self._lock:
            return exposition(list(self.latest.values()), self.totals)


def _deliver_events(session: SparkSession, seconds: float = 10.0) -> None:
    """Wait until the listeners have seen what happened so far: Spark reports a batch, and the end
    of a query, some time after it."""
    bus = session.sparkContext._jsc.sc().listenerBus()
    try:
        bus.waitUntilEmpty(int(seconds * 1000))
    except Exception as error:  # a busy bus, a stopped context: what has arrived is recorded
        _LOG.warning("the records of the last batches may be missing: %s", error)


def _appending(path: str | os.PathLike[str]) -> TextIO:
    try:
        return Path(path).open("a", buffering=1)
    except OSError as error:
        raise ConfigError(f"json_lines={path!r} cannot be written: {error.strerror}") from error


class _Listener(StreamingQueryListener):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        self._metrics.feed.set_state(str(event.id), "running")

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self._metrics.progressed(event.progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing was joined."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self._metrics.ended(str(event.id), event.exception)


def batch_record(progress: Any, counted: dict[str, Any]) -> dict[str, Any]:
    """The record of one micro-batch, JSON-serializable."""
    seconds = progress.batchDuration / 1000
    return {
        "time": progress.timestamp,
        "query": str(progress.id),
        "run": str(progress.runId),
        "name": progress.name,
        "batch": progress.batchId,
        "rows_in": progress.numInputRows,
        "seconds": seconds,
        "rows_per_second": progress.numInputRows / seconds if seconds else None,
        **_lag(progress, seconds),
        "tasks": counted["tasks"],
        "warm_tasks": counted["warm_tasks"],
        **waiting_after(str(progress.id), progress.batchId),
        "lookups": [_lookup_record(lookup) for lookup in counted["lookups"]],
    }


def _lag(progress: Any, seconds: float) -> dict[str, Any]:
    """Messages in Kafka that the query has not read; for other sources, the batch's duration."""
    behind = [
        int(float(source.metrics["maxOffsetsBehindLatest"]))
        for source in progress.sources
        if "maxOffsetsBehindLatest" in (source.metrics or {})
    ]
    if behind:
        return {"lag": max(behind), "lag_unit": "messages"}
    return {"lag": seconds, "lag_unit": "seconds"}


def _lookup_record(lookup: dict[str, Any]) -> dict[str, Any]:
    counters = lookup["counters"]
    served = counters["tuples_in"]
    memory: dict[str, int] = {}
    for components in lookup["memory"].values():
        for name, nbytes in components.items():
            memory[name] = memory.get(name, 0) + nbytes
    return {
        "master": lookup["master"],
        "join": lookup["join"],
        "version": lookup["version"],
        "age_seconds": version_age(lookup["master"], lookup["version"]),
        "data_age_seconds": data_age(lookup["master"], lookup["version"]),
        "counters": counters,
        "hit_rate": counters["front_stage_hits"] / served if served else None,
        "match_rate": counters["matched"] / served if served else None,
        # Per second that a worker spent in the join, as the cost models predict it.
        "rate": served / lookup["join_seconds"] if lookup["join_seconds"] else None,
        "predicted_rate": lookup["predicted_rate"],
        "why": lookup["why"],
        "workers": len(lookup["memory"]),
        "memory": memory,
    }


def data_age(path: str, version: int) -> float | None:
    """Seconds since this version was last known to be in step with the source that it follows."""
    try:
        store = LocalStore(path)
        return age_of(store, manifests.read_manifest(store, version))
    except (SemistreamError, OSError):
        return None


def version_age(path: str, version: int) -> float | None:
    """Seconds since this version of a table was published; None if it is unknown."""
    try:
        created = manifests.read_manifest(LocalStore(path), version).created
    except (SemistreamError, OSError):
        return None
    published = datetime.fromisoformat(created)
    return max(0.0, (datetime.now(timezone.utc) - published).total_seconds())
