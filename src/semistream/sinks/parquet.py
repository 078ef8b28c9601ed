"""A folder of Parquet files that any reader may read at any time.

    <path>/part-<query>-<batch>-<partition>.parquet      committed rows
    <path>/_semistream/staging/<query>/<batch>/...       rows of tasks that run, or died
    <path>/_semistream/log/<query>/<batch>.json          the commit: staged name -> final name

Readers pass over names that begin with an underscore. Publishing the log entry is the commit;
the renames that follow it can be repeated by whoever finds them unfinished: that is what a
replayed batch does, instead of adding its rows again.

A reader that lists the folder during the renames sees a part of the batch, never an uncommitted
row and never a row twice. :meth:`ParquetSink.files` lists whole batches only.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from semistream.errors import ConfigError, SchemaError, SemistreamError
from semistream.sinks.contract import Batch, Staged, peek
from semistream.sinks.files import publish, refuse_unwritable, sync_file, sync_folder, write_parquet

_KEEP_LOG = 100  # entries of a query; a replay only ever asks for its newest batch
_COMPRESSIONS = ("snappy", "zstd", "lz4", "gzip", "none")


class ParquetSink:
    """Exactly once into a folder of a local or mounted file system that workers share.

    ``durable`` makes the commit wait until the disk has the rows: then it outlives the power as
    well as every process.
    """

    def __init__(
        self, path: str | os.PathLike[str], compression: str = "snappy", durable: bool = False
    ) -> None:
        if not os.fspath(path):
            raise ConfigError("path='': name the folder that the files go to")
        if "://" in os.fspath(path):
            raise ConfigError(
                f"path={os.fspath(path)!r}: the sink writes to a local or mounted folder"
            )
        if compression not in _COMPRESSIONS:
            raise ConfigError(
                f"compression={compression!r}; choose one of {', '.join(_COMPRESSIONS)}"
            )
        self.path = Path(os.path.abspath(path))
        self.compression = compression
        self.durable = durable
        self._own = self.path / "_semistream"

    def check(self, schema: pa.Schema | None = None) -> None:
        refuse_unwritable(self.path)
        if (self.path / "_delta_log").exists():
            raise ConfigError(
                f"path={str(self.path)!r} is a Delta table; write to it with output='delta'"
            )

    def stage(
        self, rows: Iterable[pa.RecordBatch], schema: pa.Schema | None, batch: Batch, partition: int
    ) -> Staged:
        schema, rows = peek(rows, schema)
        serialized = b"" if schema is None else schema.serialize().to_pybytes()
        if rows == () or schema is None:
            return Staged(batch, partition, 0, 0, "", serialized)
        file = self._staging(batch) / f"{partition:05d}-{uuid.uuid4().hex}.parquet"
        count, nbytes = write_parquet(rows, schema, file, self.compression)
        if self.durable:
            sync_file(file)
        return Staged(batch, partition, count, nbytes, file.name, serialized)

    def commit(self, staged: Sequence[Staged], batch: Batch) -> bool:
        entry = self._entry(batch)
        known = self._newest(batch.query)
        if known is not None and batch.number <= known:
            if entry.exists():
                self._roll_forward(batch, json.loads(entry.read_bytes())["files"])
            self._sweep(batch)
            return False
        _one_schema(staged)
        files = {
            s.place: f"part-{_safe(batch.query)}-{batch.number:08d}-{s.partition:05d}.parquet"
            for s in staged
            if s.place
        }
        content = {
            "query": batch.query,
            "batch": batch.number,
            "rows": sum(s.rows for s in staged),
            "files": files,
        }
        if self.durable and self._staging(batch).is_dir():
            sync_folder(self._staging(batch))
        if not publish(entry, json.dumps(content).encode()):
            return self.commit(staged, batch)  # another driver was faster: theirs counts
        self._roll_forward(batch, files)
        self._sweep(batch)
        return True

    def abort(self, staged: Sequence[Staged], batch: Batch) -> None:
        for part in staged:
            if part.place:
                (self._staging(batch) / part.place).unlink(missing_ok=True)

    def files(self) -> list[Path]:
        """The files of committed batches whose renames are done: a consistent view."""
        unfinished: set[str] = set()
        for entry in self._own.glob("log/*/*.json"):
            finals = json.loads(entry.read_bytes())["files"].values()
            if not all((self.path / name).exists() for name in finals):
                unfinished.update(finals)
        found = sorted(self.path.glob("part-*.parquet"))
        return [file for file in found if file.name not in unfinished]

    def _roll_forward(self, batch: Batch, files: dict[str, str]) -> None:
        staging = self._staging(batch)
        for staged, final in files.items():
            try:
                os.replace(staging / staged, self.path / final)
            except FileNotFoundError as error:
                if not (self.path / final).exists():
                    raise SemistreamError(
                        f"batch {batch.number} of query {batch.query} is committed, but its file "
                        f"{staging / staged} is gone; restore it, or delete the log entry "
                        f"{self._entry(batch)} to write the batch again"
                    ) from error
        if self.durable and files:
            sync_folder(self.path)

    def _sweep(self, batch: Batch) -> None:
        """Remove what dead tasks left in this batch and the ones before, and old log entries."""
        for folder in self._staging(batch).parent.glob("*"):
            if folder.name.isdigit() and int(folder.name) <= batch.number:
                shutil.rmtree(folder, ignore_errors=True)
        for old in self._log(batch.query)[:-_KEEP_LOG]:
            (self._entry(Batch(batch.query, old))).unlink(missing_ok=True)

    def _newest(self, query: str) -> int | None:
        numbers = self._log(query)
        return numbers[-1] if numbers else None

    def _log(self, query: str) -> list[int]:
        folder = self._own / "log" / _safe(query)
        return sorted(int(entry.stem) for entry in folder.glob("*.json") if entry.stem.isdigit())

    def _entry(self, batch: Batch) -> Path:
        return self._own / "log" / _safe(batch.query) / f"{batch.number:08d}.json"

    def _staging(self, batch: Batch) -> Path:
        return self._own / "staging" / _safe(batch.query) / str(batch.number)


def _safe(query: str) -> str:
    """A query's id as a part of a file name; Spark's ids are UUIDs and stay as they are."""
    if re.fullmatch(r"[A-Za-z0-9-]{1,64}", query):
        return query
    return uuid.uuid5(uuid.NAMESPACE_OID, query).hex


def _one_schema(staged: Sequence[Staged]) -> Any:
    """The schema that all tasks wrote; they cannot differ unless something is very wrong."""
    schemas = {s.schema for s in staged if s.rows}
    if len({pa.ipc.read_schema(pa.py_buffer(s)).remove_metadata() for s in schemas}) > 1:
        raise SchemaError("tasks of one batch staged rows of different schemas; cast them first")
    return next(iter(schemas), None)
