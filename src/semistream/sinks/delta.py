"""A Delta table, through delta-rs: no jar, no JVM.

Workers write data files into the table's folder; Delta readers ignore them until the log lists
them. The driver's commit adds all of them and the application transaction (query, batch) in one
log entry: a replayed batch finds its transaction and adds nothing. Uncommitted files are removed
by the next commit of the same query, and by Delta's own vacuum.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from semistream.errors import ConfigError, InternalError, SchemaError
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
from semistream.sinks.delta_log import check_log_complete
from semistream.sinks.delta_table import check_features, check_nulls
from semistream.sinks.disk import Unsynced, names, remove, writing
from semistream.sinks.files import check_complete, check_writable, write_parquet
from semistream.sinks.parquet import _COMPRESSIONS, _one_schema

_PREFIX = "semistream-"
_MARK = ("-waiting", "-waiting-rows")  # application ids after the query's: number and rows


class DeltaSink:
    """Exactly-once writes to a Delta table in a local or mounted folder.

    The first batch creates the table. A commit syncs the rows and the log; ``durable`` as in
    :class:`~semistream.sinks.parquet.ParquetSink`.
    """

    def __init__(
        self, path: str | os.PathLike[str], compression: str = "snappy", durable: bool = True
    ) -> None:
        try:
            import deltalake  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                "output='delta' needs delta-rs; pip install 'semistream[delta]'"
            ) from error
        if not os.fspath(path) or "://" in os.fspath(path):
            raise ConfigError(f"path={os.fspath(path)!r} is a URL; use a local or mounted folder")
        if compression not in _COMPRESSIONS:
            raise ConfigError(
                f"compression={compression!r}; choose one of {', '.join(_COMPRESSIONS)}"
            )
        self.path = Path(os.path.abspath(path))
        self.compression = compression
        self.disk = Files() if durable else Unsynced()

    @property
    def target(self) -> str:
        return os.path.realpath(self.path)

    def check(self, schema: pa.Schema | None = None) -> None:
        check_writable(self.path)
        table = self._open()
        # Staged files of a first batch that crashed are ours, not foreign data.
        foreign = self.path.exists() and any(
            not file.name.startswith(_PREFIX) and file.name not in ("_delta_log", "_semistream")
            for file in self.path.iterdir()
        )
        if table is None and foreign:
            raise ConfigError(
                f"path={str(self.path)!r} has files but is not a Delta table; use another folder"
            )
        if table is not None:
            check_features(table, self.path)
        if schema is not None:
            delta = self._delta_schema(schema)
            if table is not None:
                self._check_columns(table, delta)

    def stage(
        self, rows: Iterable[pa.RecordBatch], schema: pa.Schema | None, batch: Batch, partition: int
    ) -> Staged:
        schema, rows = peek(rows, schema)
        if rows == () or schema is None:
            return Staged.of(batch, partition, schema)
        name = f"{self._prefix(batch)}{partition:05d}-{uuid.uuid4().hex}.parquet"
        count, nbytes = write_parquet(rows, schema, self.path / name, self.compression, self.disk)
        return Staged.of(batch, partition, schema, count, nbytes, name)

    def commit(self, staged: Sequence[Staged], batch: Batch, mark: Mark | None = None) -> bool:
        with writing(self.path):
            return self._commit(staged, batch, mark)

    def mark(self, query: str) -> Mark | None:
        table = self._open()
        return None if table is None else self._mark(table, query)

    def _mark(self, table: Any, query: str) -> Mark | None:
        number, rows = (table.transaction_version(query + end) for end in _MARK)
        return None if number is None else Mark(query, number, rows or 0)

    def _commit(self, staged: Sequence[Staged], batch: Batch, mark: Mark | None) -> bool:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction

        table = self._open()
        if table is not None and self._has(table, batch):
            self._sync_log(0)  # the driver that wrote the entry may have crashed before the sync
            self._remove(staged, spare=self._committed(table))
            return False
        serialized = _one_schema(staged)
        serialized = serialized or next((s.schema for s in staged if s.schema), None)
        arrow = None if serialized is None else pa.ipc.read_schema(pa.py_buffer(serialized))
        if table is None:
            if arrow is None and mark is not None and mark.rows:
                raise InternalError(f"{mark.rows} rows wait, but no task knows their columns")
            if arrow is None:
                return True  # no rows and no schema yet: nothing to create a table from
            table = self._create(arrow)
        check_mark(self._mark(table, batch.query), mark, f"the Delta table {self.path}")
        check_features(table, self.path)
        if arrow is not None:
            self._check_columns(table, self._delta_schema(arrow))
        parts = [s for s in staged if s.name]
        check_complete(self.disk, {self.path / s.name: s.nbytes for s in parts})
        check_nulls(table, [self.path / s.name for s in parts])
        self.disk.sync_folder(self.path)
        now = int(time.time() * 1000)
        actions: Any = [
            AddAction(s.name, s.nbytes, {}, now, True, json.dumps({"numRecords": s.rows}))
            for s in parts
        ]
        transactions = {batch.query: batch.number}
        if mark is not None:
            transactions |= dict(
                zip((mark.query + end for end in _MARK), (mark.number, mark.rows), strict=True)
            )
        properties = CommitProperties(
            app_transactions=[Transaction(name, n, now) for name, n in transactions.items()],
            custom_metadata={"query": batch.query, "batch": str(batch.number)},
        )
        before = table.version()
        try:
            table.create_write_transaction(
                actions, "append", table.schema(), commit_properties=properties
            )
        except CommitFailedError:
            if self._has(self._open(), batch):  # another driver committed first
                return self._commit(staged, batch, mark)
            raise
        self._sync_log(before)
        self._sweep(batch, keep={s.name for s in staged})
        return True

    def abort(self, staged: Sequence[Staged], batch: Batch) -> None:
        """A batch that is in the log keeps its files, even if the commit failed later."""
        table = self._open()
        newest = None if table is None else table.transaction_version(batch.query)
        if newest is None or newest < batch.number:
            self._remove(staged, spare=set())

    def _has(self, table: Any, batch: Batch) -> bool:
        newest = table.transaction_version(batch.query)
        return batch.is_in(newest, f"the Delta table {self.path}")

    def _create(self, schema: pa.Schema) -> Any:
        from deltalake import DeltaTable

        # Columns are nullable: a later batch may have nulls.
        relaxed = pa.schema([field.with_nullable(True) for field in schema])
        delta = self._delta_schema(relaxed)
        table = DeltaTable.create(str(self.path), schema=delta, mode="ignore")
        self._sync_log(0)
        return table

    def _sync_log(self, version: int) -> None:
        """Sync the log from a version on; delta-rs does not."""
        log = self.path / "_delta_log"
        for name in names(self.disk, log):
            number = name.partition(".")[0]
            if name == "_last_checkpoint" or (number.isdigit() and int(number) >= version):
                with open(log / name, "rb") as file:
                    self.disk.sync(file)
        self.disk.sync_folder(log)
        self.disk.sync_folder(self.path)

    def _open(self) -> Any:
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(str(self.path)):
            return None
        check_log_complete(self.path)
        return DeltaTable(str(self.path))

    def _delta_schema(self, schema: pa.Schema) -> Any:
        from deltalake import Schema

        try:
            return Schema.from_arrow(schema.remove_metadata())
        except Exception as error:  # delta-rs raises bare exceptions for unsupported types
            raise SchemaError(f"a Delta table cannot store these columns: {error}") from error

    def _check_columns(self, table: Any, delta: Any) -> None:
        ours = {field.name: str(field.type) for field in delta.fields}
        theirs = {field.name: str(field.type) for field in table.schema().fields}
        if ours != theirs:
            raise SchemaError(
                f"the Delta table {self.path} has the columns {theirs}, the rows have {ours}; "
                "select and cast the columns, or use another table"
            )

    def _remove(self, staged: Sequence[Staged], spare: set[str]) -> None:
        for part in staged:
            if part.name and part.name not in spare:
                remove(self.disk, self.path / part.name)

    def _sweep(self, batch: Batch, keep: set[str]) -> None:
        """Remove files of this batch's dead tasks; periodically those of abandoned queries."""
        for name in names(self.disk, self.path):
            if name.startswith(self._prefix(batch)) and name not in keep:
                remove(self.disk, self.path / name)
        if batch.number % SWEEP_EVERY == 0:
            with contextlib.suppress(OSError):  # the next sweep tries again
                self._sweep_abandoned()

    def _sweep_abandoned(self) -> None:
        """Remove old staged files that no version of the table lists."""
        now = time.time()
        for name in self._open().vacuum(dry_run=True, full=True):
            file = self.path / name
            is_ours = file.parent == self.path and file.name.startswith(_PREFIX)
            if is_ours and now - self.disk.stat(file).st_mtime > ABANDONED:
                remove(self.disk, file)

    def _committed(self, table: Any) -> set[str]:
        return {os.path.basename(uri) for uri in table.file_uris()}

    def _prefix(self, batch: Batch) -> str:
        return f"{_PREFIX}{safe_name(batch.query)}-{batch.number:08d}-"
