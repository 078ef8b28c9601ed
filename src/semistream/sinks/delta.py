"""A Delta table, through delta-rs: no jar, no JVM.

Workers write data files into the table's folder, where no reader of Delta looks until the log
names them. The driver's commit adds all of them and the application transaction (query, batch)
in one log entry: a batch that is replayed finds its transaction and adds nothing. Files that
nobody committed are removed by Delta's own vacuum, and by the next commit of the same query.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from semistream.errors import ConfigError, SchemaError
from semistream.sinks.contract import Batch, Staged, peek
from semistream.sinks.files import refuse_unwritable, sync_file, write_parquet
from semistream.sinks.parquet import _COMPRESSIONS, _one_schema, _safe

_PREFIX = "semistream-"


class DeltaSink:
    """Exactly once into a Delta table in a local or mounted folder; made by its first batch."""

    def __init__(
        self, path: str | os.PathLike[str], compression: str = "snappy", durable: bool = False
    ) -> None:
        try:
            import deltalake  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                "output='delta' needs delta-rs; pip install 'semistream[delta]'"
            ) from error
        if not os.fspath(path) or "://" in os.fspath(path):
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

    def check(self, schema: pa.Schema | None = None) -> None:
        refuse_unwritable(self.path)
        table = self._open()
        # What a first batch staged before it died is ours, and no reason to refuse.
        foreign = self.path.exists() and any(
            not file.name.startswith(_PREFIX) for file in self.path.iterdir()
        )
        if table is None and foreign:
            raise ConfigError(
                f"path={str(self.path)!r} holds files but no Delta table; name another folder"
            )
        if schema is not None:
            delta = self._delta_schema(schema)
            if table is not None:
                self._refuse_other(table, delta)

    def stage(
        self, rows: Iterable[pa.RecordBatch], schema: pa.Schema | None, batch: Batch, partition: int
    ) -> Staged:
        schema, rows = peek(rows, schema)
        serialized = b"" if schema is None else schema.serialize().to_pybytes()
        if rows == () or schema is None:
            return Staged(batch, partition, 0, 0, "", serialized)
        name = f"{self._prefix(batch)}{partition:05d}-{uuid.uuid4().hex}.parquet"
        count, nbytes = write_parquet(rows, schema, self.path / name, self.compression)
        if self.durable:
            sync_file(self.path / name)
        return Staged(batch, partition, count, nbytes, name, serialized)

    def commit(self, staged: Sequence[Staged], batch: Batch) -> bool:
        from deltalake import CommitProperties, DeltaTable, Transaction
        from deltalake.transaction import AddAction

        table = self._open()
        if table is not None and self._done(table, batch):
            self.abort(staged, batch)
            return False
        serialized = _one_schema(staged)
        serialized = serialized or next((s.schema for s in staged if s.schema), None)
        if table is None:
            if serialized is None:
                return True  # no row and no column yet: nothing that a table could hold
            arrow = pa.ipc.read_schema(pa.py_buffer(serialized))
            delta = self._delta_schema(arrow)
            table = DeltaTable.create(str(self.path), schema=delta, mode="ignore")
        elif serialized is not None:
            arrow = pa.ipc.read_schema(pa.py_buffer(serialized))
            self._refuse_other(table, self._delta_schema(arrow))
        now = int(time.time() * 1000)
        actions: Any = [
            AddAction(s.place, s.nbytes, {}, now, True, json.dumps({"numRecords": s.rows}))
            for s in staged
            if s.place
        ]
        properties = CommitProperties(
            app_transactions=[Transaction(batch.query, batch.number, now)],
            custom_metadata={"query": batch.query, "batch": str(batch.number)},
        )
        table.create_write_transaction(
            actions, "append", table.schema(), commit_properties=properties
        )
        self._sweep(batch, keep=[s.place for s in staged])
        return True

    def abort(self, staged: Sequence[Staged], batch: Batch) -> None:
        committed = self._committed() if staged else set()
        for part in staged:
            if part.place and part.place not in committed:
                (self.path / part.place).unlink(missing_ok=True)

    def _done(self, table: Any, batch: Batch) -> bool:
        known = table.transaction_version(batch.query)
        return known is not None and known >= batch.number

    def _open(self) -> Any:
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(str(self.path)):
            return None
        return DeltaTable(str(self.path))

    def _delta_schema(self, schema: pa.Schema) -> Any:
        from deltalake import Schema

        try:
            return Schema.from_arrow(schema.remove_metadata())
        except Exception as error:  # delta-rs raises bare exceptions for types it does not have
            raise SchemaError(f"a Delta table cannot hold these columns: {error}") from error

    def _refuse_other(self, table: Any, delta: Any) -> None:
        ours = {field.name: str(field.type) for field in delta.fields}
        theirs = {field.name: str(field.type) for field in table.schema().fields}
        if ours != theirs:
            raise SchemaError(
                f"the Delta table {self.path} has the columns {theirs}, the rows have {ours}; "
                "select and cast the columns, or name another table"
            )

    def _sweep(self, batch: Batch, keep: Iterable[str]) -> None:
        """Remove files that dead tasks of this batch left."""
        left = {f.name for f in self.path.glob(f"{self._prefix(batch)}*")} - set(keep)
        if left:
            for name in left - self._committed():
                (self.path / name).unlink(missing_ok=True)

    def _committed(self) -> set[str]:
        table = self._open()
        if table is None:
            return set()
        return {os.path.basename(uri) for uri in table.file_uris()}

    def _prefix(self, batch: Batch) -> str:
        return f"{_PREFIX}{_safe(batch.query)}-{batch.number:08d}-"
