"""A PostgreSQL table: rows by COPY through ADBC, one transaction per batch.

Each task copies its rows into a separate unlogged staging table. The driver's commit is one
transaction: it inserts (query, batch) into the ledger and moves the rows of all tasks into the
target; afterwards the staging tables are dropped. A batch that is in the ledger already is not
moved again. A server crash truncates unlogged tables; the commit compares their row counts, so
such a batch fails and is replayed, and no row is lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from semistream.errors import ConfigError, SchemaError, SemistreamError, existing
from semistream.sinks.contract import Batch, Mark, Staged, check_mark, peek
from semistream.sinks.postgresql_ledger import LEDGER, Ledger
from semistream.sinks.postgresql_server import Server
from semistream.sinks.postgresql_stage import Stages


class PostgresWarehouse:
    """Exactly-once writes to one table, which the first batch creates if it does not exist.

    Parameters
    ----------
    uri
        ``postgresql://user:password@host/database``.
    table, schema
        Names are quoted. Without a schema, the server's search path applies.
    patience
        Seconds to wait for an unreachable server, or for a lock that another connection holds,
        before the batch fails.
    """

    def __init__(
        self, uri: str, table: str, schema: str | None = None, patience: float | str = 30.0
    ) -> None:
        from semistream.master.sql_dialects import redact

        if not str(uri).startswith(("postgresql://", "postgres://")):
            raise ConfigError(f"uri={redact(str(uri))!r} does not start with postgresql://")
        self.uri = uri
        self.table = table
        self.schema = schema or None
        self._shown = f"table {table!r} of {redact(uri)}"
        url = urlsplit(redact(uri))
        server = f"{url.netloc.rpartition('@')[2]}{url.path}?{url.query}"
        self.target = f"{server} {self.schema or 'public'}.{table}"
        self._server = Server(uri, self._shown, patience)
        self._target = self._named(table)
        self._ledger = Ledger(self._server, self._named(LEDGER), table)
        self._stages = Stages(self._server, self.schema, table)

    def __reduce__(self) -> tuple[Any, ...]:
        return PostgresWarehouse, (self.uri, self.table, self.schema, self._server.patience)

    def check(self, schema: pa.Schema | None = None) -> None:
        def columns_of(connection: Any) -> list[str]:
            if not self._server.exists(connection, self._target):
                return []
            place = [self.schema, self.table] if self.schema else [self.table]
            return [column.name for column in self._server.dialect.columns(connection, place)]

        columns = self._server.with_retries(columns_of)
        if columns and schema is not None:
            absent = [name for name in schema.names if name not in columns]
            if absent:
                raise SchemaError(
                    f"{self._shown} has no column {absent[0]!r}; {existing(absent[0], columns)}"
                )

    def stage(
        self, rows: Iterable[pa.RecordBatch], schema: pa.Schema | None, batch: Batch, partition: int
    ) -> Staged:
        schema, rows = peek(rows, schema)
        if rows == () or schema is None:
            return Staged.of(batch, partition, schema)
        counted = _Counted(rows)
        connection = self._server.with_retries(lambda c: c, close=False)
        try:
            name = self._stages.name(connection, batch, partition)
            with connection.cursor() as cursor:
                # Created empty first: only then is SET UNLOGGED free.
                options = {"db_schema_name": self.schema} if self.schema else {}
                cursor.adbc_ingest(name, schema.empty_table(), mode="create", **options)
                cursor.execute(f"ALTER TABLE {self._named(name)} SET UNLOGGED")
                reader = pa.RecordBatchReader.from_batches(schema, counted)
                cursor.adbc_ingest(name, reader, mode="append", **options)
            connection.commit()
        except self._server.dialect.errors as error:
            if counted.failure is not None:  # the row iterator failed, not the database
                raise counted.failure from error
            raise self._server.readable_error(error) from error
        finally:
            self._server.close(connection)
        return Staged.of(batch, partition, schema, counted.rows, counted.nbytes, name)

    def commit(self, staged: Sequence[Staged], batch: Batch, mark: Mark | None = None) -> bool:
        lock = self.table + batch.query

        def work(connection: Any) -> bool:
            self._server.limit(connection)
            self._ledger.prepare(connection)
            # The lock serializes two drivers of one query (one of them a zombie).
            self._server.lock(connection, lock)
            is_new = self._enter(connection, staged, batch, mark)
            connection.commit()
            with contextlib.suppress(*self._server.dialect.errors):  # the next commit sweeps again
                self._stages.sweep(connection, batch)
            return is_new

        return self._server.with_retries(work, lock=(lock, self._target))

    def mark(self, query: str) -> Mark | None:
        def work(connection: Any) -> Mark | None:
            exists = self._server.exists(connection, self._named(LEDGER))
            return self._ledger.mark(connection, query) if exists else None

        return self._server.with_retries(work)

    def _enter(
        self, connection: Any, staged: Sequence[Staged], batch: Batch, mark: Mark | None
    ) -> bool:
        if batch.is_in(self._ledger.newest(connection, batch.query), self._shown):
            return False
        check_mark(self._ledger.mark(connection, batch.query), mark, self._shown)
        self._ledger.enter(connection, batch, sum(part.rows for part in staged))
        if mark is not None:
            self._ledger.enter_mark(connection, mark)
        for part in staged:
            if part.name:
                self._move(connection, part)
        return True

    def abort(self, staged: Sequence[Staged], batch: Batch) -> None:
        names = [part.name for part in staged if part.name]
        if names:
            self._server.with_retries(lambda connection: self._stages.drop(connection, names))

    def _move(self, connection: Any, part: Staged) -> None:
        stage = self._named(part.name)
        found = self._server.rows(connection, f"SELECT count(*) FROM {stage}")[0][0]
        if found != part.rows:
            raise SemistreamError(
                f"a task staged {part.rows} rows for {self._shown}, but only {found} are left: "
                "the server crashed in between; the batch must be replayed"
            )
        if not self._server.exists(connection, self._target):
            self._server.lock(
                connection, f"create {self._target}"
            )  # another query may create it, too
            self._server.execute(
                connection, f"CREATE TABLE IF NOT EXISTS {self._target} (LIKE {stage})"
            )
        columns = ", ".join(self._server.dialect.quote(name) for name in part.arrow_schema.names)
        self._server.execute(
            connection, f"INSERT INTO {self._target} ({columns}) SELECT {columns} FROM {stage}"
        )

    def _named(self, table: str) -> str:
        return self._server.dialect.qualified([self.schema, table] if self.schema else [table])


class _Counted:
    """Counts rows, and keeps an error of the iterator that the database driver would wrap."""

    def __init__(self, rows: Iterable[pa.RecordBatch]) -> None:
        self._source = rows
        self.rows = 0
        self.nbytes = 0
        self.failure: Exception | None = None

    def __iter__(self) -> Any:
        try:
            for batch in self._source:
                self.rows += batch.num_rows
                self.nbytes += batch.nbytes
                yield batch
        except Exception as error:
            self.failure = error
            raise
