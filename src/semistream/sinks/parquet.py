"""A folder of Parquet files that any reader may read at any time.

    <path>/part-<query>-<batch>-<partition>.parquet      committed rows
    <path>/_semistream/staging/<query>/<batch>/...       rows of running or crashed tasks
    <path>/_semistream/log/<query>/<batch>.json          the commit: staged name -> final name

Readers skip names that begin with an underscore. Publishing the log entry is the commit. Giving
the staged files their final names is idempotent: a replayed batch completes it, instead of adding
its rows again. The order on disk is: staged files, log entry, final names; only then are the
staged names removed.

A reader that lists the folder meanwhile may see a part of the batch, but never an uncommitted row
and never a row twice. :meth:`ParquetSink.files` lists only complete batches.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from semistream.errors import ConfigError, SchemaError, SemistreamError
from semistream.master.files import Files
from semistream.sinks.contract import (
    ABANDONED,
    SWEEP_EVERY,
    Batch,
    Mark,
    Staged,
    check_mark,
    peek,
    safe_name,
)
from semistream.sinks.disk import Unsynced, names, remove, remove_folder, sync_folders, writing
from semistream.sinks.files import check_complete, check_writable, write_parquet
from semistream.sinks.parquet_log import Entry, Log

_COMPRESSIONS = ("snappy", "zstd", "lz4", "gzip", "none")


class ParquetSink:
    """Exactly-once writes to a folder of a local or mounted file system that workers share.

    A commit syncs the rows and the log entry, so that it survives a power failure. With
    ``durable=False`` nothing is synced: a commit then survives a crash of any process, but a power
    failure may lose or damage the newest batches, which Spark does not write again.
    """

    def __init__(
        self, path: str | os.PathLike[str], compression: str = "snappy", durable: bool = True
    ) -> None:
        if not os.fspath(path):
            raise ConfigError("path='' is empty; give the folder to write to")
        if "://" in os.fspath(path):
            raise ConfigError(f"path={os.fspath(path)!r} is a URL; use a local or mounted folder")
        if compression not in _COMPRESSIONS:
            raise ConfigError(
                f"compression={compression!r}; choose one of {', '.join(_COMPRESSIONS)}"
            )
        self.path = Path(os.path.abspath(path))
        self.compression = compression
        self.disk = Files() if durable else Unsynced()
        self._own = self.path / "_semistream"

    @property
    def target(self) -> str:
        return os.path.realpath(self.path)

    def check(self, schema: pa.Schema | None = None) -> None:
        check_writable(self.path)
        if (self.path / "_delta_log").exists():
            raise ConfigError(
                f"path={str(self.path)!r} is a Delta table; write to it with output='delta'"
            )

    def stage(
        self, rows: Iterable[pa.RecordBatch], schema: pa.Schema | None, batch: Batch, partition: int
    ) -> Staged:
        schema, rows = peek(rows, schema)
        if rows == () or schema is None:
            return Staged.of(batch, partition, schema)
        file = self._staging(batch) / f"{partition:05d}-{uuid.uuid4().hex}.parquet"
        count, nbytes = write_parquet(rows, schema, file, self.compression, self.disk)
        return Staged.of(batch, partition, schema, count, nbytes, file.name)

    def commit(self, staged: Sequence[Staged], batch: Batch, mark: Mark | None = None) -> bool:
        with writing(self.path):
            return self._commit(staged, batch, mark)

    def mark(self, query: str) -> Mark | None:
        found = []
        for name in (query, Mark(query, 0, 0).drains):
            newest = self._log(safe_name(name)).newest()
            if newest is not None and newest.waiting is not None:
                found.append(Mark(query, *newest.waiting))
        return max(found, key=lambda mark: mark.number, default=None)

    def _commit(self, staged: Sequence[Staged], batch: Batch, mark: Mark | None) -> bool:
        log = self._log(safe_name(batch.query))
        newest = log.newest()
        if newest is not None:
            done = batch.is_in(newest.batch, f"the folder {self.path}")
            # An unfinished newest batch is also completed when the next one arrives, because the
            # sweep below removes its staged files.
            if done or self._staging(Batch(batch.query, newest.batch)).exists():
                self._finish(newest, log)
            if done:
                self._sweep(batch, log)
                return False
        found = self.mark(batch.query)
        check_mark(found, mark, f"the folder {self.path}")
        _one_schema(staged)
        files = {
            s.name: f"part-{safe_name(batch.query)}-{batch.number:08d}-{s.partition:05d}.parquet"
            for s in staged
            if s.name
        }
        if files:
            sizes = {self._staging(batch) / s.name: s.nbytes for s in staged if s.name}
            check_complete(self.disk, sizes)
            sync_folders(self.disk, self._staging(batch), self.path)
        mark = mark or found  # the newest entry has the newest mark
        waiting = None if mark is None else (mark.number, mark.rows)
        entry = Entry(batch.query, batch.number, sum(s.rows for s in staged), files, waiting)
        if not log.publish(entry):
            return self._commit(staged, batch, mark)  # another driver committed first
        self._finish(entry, log)
        self._sweep(batch, log)
        return True

    def abort(self, staged: Sequence[Staged], batch: Batch) -> None:
        """If the commit failed after publishing its entry, the next commit completes it, so the
        files listed in the entry stay."""
        entry = self._log(safe_name(batch.query)).read(batch.number)
        kept = entry.files if entry is not None else {}
        for part in staged:
            if part.name and part.name not in kept:
                remove(self.disk, self._staging(batch) / part.name)

    def files(self) -> list[Path]:
        """The files of completely committed batches: a consistent view."""
        unfinished: set[str] = set()
        for query in names(self.disk, self._own / "log"):
            for entry in self._log(query).entries():
                finals = entry.files.values()
                if not all((self.path / name).exists() for name in finals):
                    unfinished.update(finals)
        found = sorted(self.path.glob("part-*.parquet"))
        return [file for file in found if file.name not in unfinished]

    def _finish(self, entry: Entry, log: Log) -> None:
        """Give the staged files of a published batch their final names, where still missing.

        Uses hard links: a staged name is removed only after the final one is synced.
        """
        log.sync()
        staging = self._staging(Batch(entry.query, entry.batch))
        for staged, final in entry.files.items():
            source, target = staging / staged, self.path / final
            try:
                self.disk.link(source, target)
            except FileExistsError:
                # Left by a commit whose entry a power failure lost, as durable=False allows.
                if source.exists() and not source.samefile(target):
                    self.disk.rename(source, target)
            except FileNotFoundError as error:
                if not target.exists():
                    raise self._lost(entry, source, log) from error
        if entry.files:
            self.disk.sync_folder(self.path)

    def _lost(self, entry: Entry, source: Path, log: Log) -> SemistreamError:
        there = [str(self.path / f) for f in entry.files.values() if (self.path / f).exists()]
        others = f"delete {', '.join(there)} and then" if there else "delete"
        path = log.path(entry.batch)
        return SemistreamError(
            f"batch {entry.batch} of query {entry.query} is committed, but its file {source} was "
            f"deleted from outside. Restore it; or, to write the batch again, {others} {path}; "
            f'or, if its rows were moved elsewhere, write "files": {{}} into {path}'
        )

    def _sweep(self, batch: Batch, log: Log) -> None:
        """Remove staged files of this and earlier batches, and old log entries."""
        staging = self._staging(batch).parent
        for name in names(self.disk, staging):
            if name.isdigit() and int(name) <= batch.number:
                remove_folder(self.disk, staging / name)
        log.trim()
        if batch.number % SWEEP_EVERY == 0:
            with contextlib.suppress(OSError):  # the next sweep tries again
                self._sweep_abandoned(self.disk.stat(log.path(batch.number)).st_mtime)

    def _sweep_abandoned(self, now: float) -> None:
        """Remove staged files of abandoned queries. ``now`` is the file system's clock."""
        for query in names(self.disk, self._own / "staging"):
            staging = self._own / "staging" / query
            folders = [staging / name for name in names(self.disk, staging)]
            files = [folder / name for folder in folders for name in names(self.disk, folder)]
            alive = max(self.disk.stat(path).st_mtime for path in (staging, *folders, *files))
            if now - alive > ABANDONED:
                newest = self._log(query).newest()
                spare = frozenset(newest.files if newest is not None else ())
                for folder in folders:
                    remove_folder(self.disk, folder, spare)
                remove_folder(self.disk, staging)

    def _log(self, query: str) -> Log:
        return Log(self._own / "log" / query, self.path, self.disk)

    def _staging(self, batch: Batch) -> Path:
        return self._own / "staging" / safe_name(batch.query) / str(batch.number)


def _one_schema(staged: Sequence[Staged]) -> Any:
    """The schema of all tasks; raises if they differ."""
    schemas = {s.schema for s in staged if s.rows}
    if len({pa.ipc.read_schema(pa.py_buffer(s)).remove_metadata() for s in schemas}) > 1:
        raise SchemaError("tasks of one batch staged rows of different schemas; cast them first")
    return next(iter(schemas), None)
