"""``semistream master sync``: follow a source of truth, once or until stopped."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semistream.durations import format_duration, parse_duration
from semistream.errors import ConfigError, SemistreamError

if TYPE_CHECKING:
    from semistream.master import MasterTable


@dataclass(frozen=True)
class SyncOptions:
    """The options of the command that describe a source."""

    source: str | None = None
    table: str | None = None
    version_column: str | None = None
    overlap: str | None = None
    find_deletes: str = "always"
    topic: str | None = None
    value: str = "json"


@dataclass(frozen=True)
class Synced:
    """One line of output."""

    path: str
    version: int
    is_new: bool
    is_dry: bool
    inserted: int
    updated: int
    deleted: int
    rows_read: int
    seconds: float

    def __str__(self) -> str:
        counts = (
            f"{self.inserted:,} inserted, {self.updated:,} updated, {self.deleted:,} deleted; "
            f"{self.rows_read:,} rows read in {format_duration(self.seconds)}"
        )
        if self.is_dry:
            return f"{self.path}: would be {counts}; nothing was changed"
        if not self.is_new:
            return f"{self.path}: version {self.version} is in step with its source"
        return f"{self.path}: version {self.version}: {counts}"


def source_of(options: SyncOptions) -> Any:
    """The source that the options describe; raises if they do not fit together."""
    from semistream.master.sync import KafkaSource, SqlSource

    where = options.source
    if where is None:
        raise ConfigError(
            "a source is missing; give the path of Parquet files or of a Delta table, a database "
            "URL with --table, or kafka://host:9092 with --topic"
        )
    is_kafka = where.startswith("kafka://")
    is_database = "://" in where and not is_kafka and options.table is not None
    if options.topic is not None and not is_kafka:
        raise ConfigError("--topic is for a source such as kafka://host:9092")
    if (options.table or options.version_column) and not is_database:
        raise ConfigError("--table and --version-column are for a database URL, with --table")
    if (options.overlap or options.find_deletes != "always") and not is_database:
        raise ConfigError("--overlap and --find-deletes are for a database URL, with --table")
    if options.value != "json" and not is_kafka:
        raise ConfigError("--value is for a source such as kafka://host:9092")
    if is_kafka:
        if options.topic is None:
            raise ConfigError(f"{where} needs --topic")
        servers = where.removeprefix("kafka://").rstrip("/")
        return KafkaSource(servers, options.topic, value=options.value)
    if is_database:
        overlap: Any = options.overlap
        return SqlSource(
            where,
            str(options.table).split("."),
            version=options.version_column,
            overlap=int(overlap) if overlap is not None and overlap.isdigit() else overlap,
            find_deletes=options.find_deletes,
        )
    if where.split(":", 1)[0] in ("postgresql", "postgres", "mysql", "mariadb", "sqlite"):
        raise ConfigError("a database URL needs --table")
    if "://" in where:
        from semistream.master.sync import DeltaSource

        return DeltaSource(where)
    from semistream.master.sync.apply import as_source

    return as_source(where)


def sync_once(
    path: Path, source: Any, key: Sequence[str] = (), full: bool = False, dry_run: bool = False,
    memory: str = "512MB", progress: bool = False,
) -> Synced:  # fmt: skip
    """Sync a table, or build it if it does not exist and ``key`` is given."""
    from semistream.master import MasterTable
    from semistream.master.manifest import list_versions
    from semistream.master.store import LocalStore

    began = time.monotonic()

    def synced(table: MasterTable, info: Any, is_new: bool) -> Synced:
        return Synced(
            str(path), table.version, is_new, dry_run, info.inserted, info.updated, info.deleted,
            info.rows_read, time.monotonic() - began,
        )  # fmt: skip

    if not list_versions(LocalStore(path)) and key and not dry_run:
        table = MasterTable.build(
            source, path, key=list(key), unique=True, memory=memory, progress=progress
        )
        return synced(table, table.synced, True)
    if not path.exists():
        raise ConfigError(
            f"there is no master table at {path}; to build it from the source, give its key column "
            "with --key" + (", and leave --dry-run out" if dry_run else "")
        )
    table = MasterTable.open(path)
    if dry_run:
        found = table.pending(source, full=full, memory=memory, progress=progress)
        return synced(table, found, False)
    new = table.sync(source, full=full, memory=memory, progress=progress)
    return synced(new, new.synced, new.version != table.version)


def keep_syncing(
    once: Callable[[], Synced],
    every: str,
    show: Callable[[Synced], None],
    report: Callable[[str], None],
    wait: Callable[[float], object] = time.sleep,
) -> None:
    """Sync until interrupted. A failure is reported, and tried again after the interval."""
    seconds = parse_duration(every, "every")
    has_synced = False
    while True:
        began = time.monotonic()
        try:
            show(once())
            has_synced = True
        except Exception as error:
            is_expected = isinstance(error, SemistreamError) and not isinstance(error, ConfigError)
            if not has_synced and not is_expected:
                raise  # trying again does not help
            report(f"error: {error}; trying again in {format_duration(seconds)}")
        wait(max(0.0, seconds - (time.monotonic() - began)))


def run(once: Callable[[], Synced], every: str | None) -> int:
    """The command; returns its exit code."""

    def show(result: Synced) -> None:
        print(result, flush=True)

    try:
        if every is None:
            show(once())
        else:
            keep_syncing(once, every, show, lambda text: print(text, file=sys.stderr, flush=True))
    except KeyboardInterrupt:
        print("stopped; the next sync continues where the last one ended", flush=True)
    except SemistreamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
