"""Syncs master tables in the driver while a query runs, and watches the age of their data.

A failed sync is reported and tried again after the interval; the query goes on with the rows that
the table has. How old they may become is ``max_age``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from semistream.durations import format_duration, parse_duration
from semistream.errors import ConfigError, MasterTableError, SchemaError, SemistreamError
from semistream.master import MasterTable
from semistream.master.manifest import read_manifest
from semistream.master.store import LocalStore
from semistream.master.sync import DeltaSource, KafkaSource, ParquetSource, SqlSource
from semistream.master.sync.freshness import age_of

if TYPE_CHECKING:
    from semistream.pipeline.model import Lookup, Pipeline, Sync

_CHECK_SECONDS = 1.0  # between two looks at the age
_LAST_SYNC_SECONDS = 10.0  # for a sync that runs at the end; it may be killed at any point


def source_of(sync: Sync) -> Any:
    """The source that a pipeline file names."""
    if sync.sql is not None:
        sql = sync.sql
        return SqlSource(
            sql.url,
            sql.table,
            version=sql.version,
            overlap=sql.overlap,
            find_deletes=sql.find_deletes,
        )
    if sync.kafka is not None:
        topic = sync.kafka
        return KafkaSource(topic.servers, topic.topic, value=topic.value, options=topic.options)
    if sync.delta is not None:
        return DeltaSource(sync.delta)
    assert sync.parquet is not None
    return ParquetSource(sync.parquet)


def check_source(sync: Sync, master: MasterTable) -> None:
    """Raise if the table cannot follow the source; what is unreachable now is tried again later."""
    source = source_of(sync)
    before = master.synced
    if not master.distinct:
        raise MasterTableError("the master table has several rows for a key; it cannot be synced")
    if before is not None and before.source != source.name:
        raise MasterTableError(
            f"{master.path} follows {before.source}; run `semistream master sync` with --full once "
            "to follow another source"
        )


class Following:
    """A context manager: the first sync of every table is done when it is entered.

    ``report`` is called with problems that do not stop the query.
    """

    def __init__(self, pipeline: Pipeline, report: Callable[[str], None]) -> None:
        self._report = report
        self._stop = threading.Event()
        self._tables = [
            _Followed(lookup, report)
            for lookup in pipeline.lookups
            if lookup.sync is not None or lookup.max_age is not None
        ]
        self._threads = [
            threading.Thread(target=one.keep_syncing, args=(self._stop,), daemon=True)
            for one in self._tables
            if one.every is not None
        ]

    def __enter__(self) -> Following:
        for one in self._tables:
            one.first_sync()
        self.check()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(_LAST_SYNC_SECONDS)

    def check(self) -> None:
        """Report tables that are too old; raises for those with ``too_old: raise``."""
        for one in self._tables:
            one.check_age()


class _Followed:
    """One table, its source and the limit of its age."""

    def __init__(self, lookup: Lookup, report: Callable[[str], None]) -> None:
        assert lookup.master is not None
        self._path = lookup.master
        self._source = None if lookup.sync is None else source_of(lookup.sync)
        self.every = None if lookup.sync is None else parse_duration(lookup.sync.every, "every")
        self._most = None if lookup.max_age is None else parse_duration(lookup.max_age, "max_age")
        self._raises = lookup.too_old == "raise"
        self._report = report
        self._failed: str | None = None
        self._was_old = False
        self._checked = -_CHECK_SECONDS

    def first_sync(self) -> None:
        """Raises if an option is wrong: trying again would not help."""
        try:
            if self._source is not None:
                self._sync()
        except (ConfigError, SchemaError):
            raise
        except (SemistreamError, OSError) as error:
            self._sync_failed(error)

    def keep_syncing(self, stop: threading.Event) -> None:
        assert self.every is not None
        while not stop.wait(self.every):
            try:
                self._sync()
            except Exception as error:  # of any kind: the next sync may succeed
                self._sync_failed(error)

    def _sync(self) -> None:
        MasterTable.open(self._path).sync(self._source)
        self._failed = None

    def _sync_failed(self, error: Exception) -> None:
        assert self.every is not None
        is_ours = isinstance(error, (SemistreamError, OSError))
        why = self._failed = str(error) if is_ours else f"{type(error).__name__}: {error}"
        self._report(
            f"sync of {self._path} failed: {why}; trying again in {format_duration(self.every)}"
        )

    def check_age(self) -> None:
        now = time.monotonic()
        if self._most is None or now - self._checked < _CHECK_SECONDS:
            return
        self._checked = now
        store = LocalStore(self._path)
        try:
            age = age_of(store, read_manifest(store))
        except (SemistreamError, OSError) as error:  # for a moment, perhaps
            if self._raises:
                raise
            if not self._was_old:
                self._report(f"the age of the data of {self._path} is unknown: {error}")
            self._was_old = True
            return
        is_old = age is None or age > self._most
        if is_old and (self._raises or not self._was_old):
            self._too_old(age)
        self._was_old = is_old

    def _too_old(self, age: float | None) -> None:
        assert self._most is not None
        known = "of unknown age: it has never been synced" if age is None else (
            f"{format_duration(age)} old"
        )  # fmt: skip
        why = "" if self._failed is None else f"; the last sync failed: {self._failed}"
        text = (
            f"the data of {self._path} is {known}, and max_age is {format_duration(self._most)}"
            f"{why}"
        )
        if self._raises:
            raise MasterTableError(f"{text}. The query was stopped, as too_old says")
        self._report(text)
