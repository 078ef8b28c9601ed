"""One sync: read the changes, compare, publish rows and position as one version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

from semistream.errors import ConfigError, MasterTableError
from semistream.master.changes import publish_position, publish_sync
from semistream.master.manifest import SyncInfo
from semistream.master.progress import Progress, Report, reporting
from semistream.master.sync.contract import ChangeSource, Position, is_source
from semistream.master.sync.entries import Entries
from semistream.master.sync.freshness import note_check, timestamp
from semistream.master.sync.net_changes import NetChanges
from semistream.master.workspace import Workspace
from semistream.memory import parse_size

if TYPE_CHECKING:
    from semistream.master.table import MasterTable


def sync(table: MasterTable, source: Any, full: bool, memory: int | str, progress: Progress) -> int:
    """Bring the table in step. Returns the version that is: a new one if anything changed."""
    with _reading(table, source, full, memory, progress) as found:
        return found.publish()


def pending(
    table: MasterTable, source: Any, full: bool, memory: int | str, progress: Progress
) -> SyncInfo:
    """What :func:`sync` would change. Nothing is published."""
    with _reading(table, source, full, memory, progress) as found:
        return found.count()


@contextmanager
def _reading(
    table: MasterTable, data: Any, full: bool, memory: int | str, progress: Progress
) -> Iterator[_Found]:
    source = as_source(data)
    _check(table, source, full)
    half = parse_size(memory) // 2  # for the entries; the other half is for what is published
    began = timestamp()
    before = table.manifest.sync
    with Workspace(table.store) as workspace, reporting(progress) as report:
        entries = Entries(table, workspace, half, report)
        if before is None or full:
            position = source.read_first(table, entries)
        else:
            position = source.read(table, before.position, entries)
        yield _Found(table, source, entries, position, began, half, report)


class _Found:
    """What a source reported, still to be compared with the table."""

    def __init__(
        self, table: MasterTable, source: ChangeSource, entries: Entries, position: Position,
        began: str, memory: int, report: Report,
    ) -> None:  # fmt: skip
        self._table = table
        self._net = NetChanges(table, entries, source.name)
        self._entries = entries
        self._source = source.name
        self._position = position
        self._began = began
        self._memory = memory
        self._report = report

    def count(self) -> SyncInfo:
        for _ in self._net.of(self._entries.sorted()):
            pass
        return self._info()

    def publish(self) -> int:
        changes = self._net.of(self._entries.sorted())
        first = next(changes, None)
        if first is not None:
            rows = chain([first], changes)
            return publish_sync(self._table, rows, self._memory, self._info)
        before = self._table.manifest.sync
        info = self._info()
        if before is not None and (before.source, before.position) == (
            info.source,
            info.position,
        ):
            note_check(self._table.store, self._table.manifest, self._began)
            return self._table.version
        return publish_position(self._table, info)

    def _info(self) -> SyncInfo:
        net = self._net
        return SyncInfo(
            self._source, self._position, self._began, net.inserted, net.updated, net.deleted,
            self._entries.rows_read,
        )  # fmt: skip


def as_source(data: Any) -> ChangeSource:
    """A source, or the path of a Delta table or of Parquet files."""
    if is_source(data):
        source: ChangeSource = data
        return source
    import os
    from pathlib import Path

    if isinstance(data, (str, os.PathLike)) and "://" not in str(data):
        from semistream.master.sync.delta_versions import DeltaSource
        from semistream.master.sync.parquet_list import ParquetSource

        if (Path(data) / "_delta_log").is_dir():
            return DeltaSource(data)
        return ParquetSource(data)
    raise ConfigError(
        f"source of type {type(data).__name__} cannot be followed; give the path of Parquet files "
        "or of a Delta table, or an ss.ParquetSource, DeltaSource, SqlSource or KafkaSource"
    )


def _check(table: MasterTable, source: ChangeSource, full: bool) -> None:
    if table.history is not None:
        raise MasterTableError(
            f"{table.path} has history, which a sync does not keep; upsert the new rows instead"
        )
    if not table.distinct:
        raise MasterTableError(
            f"{table.path} has several rows for a key, and a table that follows a source has one; "
            "build it again with unique=True"
        )
    before = table.manifest.sync
    if before is not None and before.source != source.name and not full:
        raise ConfigError(
            f"{table.path} follows {before.source}, not {source.name}; use full=True (--full) to "
            "compare it with the new source in full, and to follow that from now on"
        )
