"""A table of PostgreSQL: rows by COPY through ADBC, one transaction per batch.

Each task copies its rows into an unlogged table of its own (nobody's query reads it). The
driver's commit is one transaction: it enters (query, batch) into the ledger, moves the rows of
all tasks into the target, and drops their tables. A batch whose entry is there already is not
moved again. A server that crashes empties unlogged tables; the commit counts their rows, so that
such a batch fails and is replayed, and no row is lost.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from semistream.errors import ConfigError, SchemaError, SemistreamError
from semistream.master.sql_redact import without_secrets
from semistream.sinks.contract import Batch, Staged, peek

T = TypeVar("T")
LEDGER = "semistream_ledger"
_STAGE = "semistream_stage_"
_KEEP_LEDGER = 100
_PAUSE = 0.5
_PASSING = ("08", "53", "57")  # SQLSTATE classes: connection, resources, operator intervention


class PostgresWarehouse:
    """Exactly once into one table, which the first batch makes if it is not there.

    Parameters
    ----------
    uri
        ``postgresql://user:password@host/database``.
    table, schema
        Any names: they are quoted. Without a schema the server's search path decides.
    patience
        Seconds to wait for a server that is away before the batch fails.
    """

    def __init__(
        self, uri: str, table: str, schema: str | None = None, patience: float | str = 30.0
    ) -> None:
        from semistream.master.sql_dialects import PostgreSql, redact

        if not str(uri).startswith(("postgresql://", "postgres://")):
            raise ConfigError(f"uri={redact(str(uri))!r} does not start with postgresql://")
        self.uri = uri
        self.table = table
        self.schema = schema or None
        try:
            self.patience = float(patience)
        except ValueError:
            raise ConfigError(f"patience={patience!r} is not a number of seconds") from None
        self._dialect = PostgreSql(uri)
        self._target = self._named(table)
        self._shown = f"table {table!r} of {redact(uri)}"

    def __reduce__(self) -> tuple[Any, ...]:
        return PostgresWarehouse, (self.uri, self.table, self.schema, self.patience)

    def check(self, schema: pa.Schema | None = None) -> None:
        def look(connection: Any) -> list[str]:
            exists = self._rows(
                connection, "SELECT to_regclass($1::text) IS NOT NULL", self._target
            )
            place = [self.schema, self.table] if self.schema else [self.table]
            found = self._dialect.columns(connection, place) if exists[0][0] else []
            return [column.name for column in found]

        columns = self._patiently(look)
        if columns and schema is not None:
            absent = [name for name in schema.names if name not in columns]
            if absent:
                raise SchemaError(
                    f"{self._shown} has no column {absent[0]!r}; it has {', '.join(columns)}"
                )

    def stage(
        self, rows: Iterable[pa.RecordBatch], schema: pa.Schema | None, batch: Batch, partition: int
    ) -> Staged:
        schema, rows = peek(rows, schema)
        serialized = b"" if schema is None else schema.serialize().to_pybytes()
        if rows == () or schema is None:
            return Staged(batch, partition, 0, 0, "", serialized)
        name = f"{self._prefix(batch)}{partition}_{uuid.uuid4().hex[:8]}"
        counted = _Counted(rows)
        connection = self._patiently(lambda c: c, close=False)
        try:
            with connection.cursor() as cursor:
                # Made empty first: only a table without rows becomes unlogged for nothing.
                options = {"db_schema_name": self.schema} if self.schema else {}
                cursor.adbc_ingest(name, schema.empty_table(), mode="create", **options)
                cursor.execute(f"ALTER TABLE {self._named(name)} SET UNLOGGED")
                reader = pa.RecordBatchReader.from_batches(schema, counted)
                cursor.adbc_ingest(name, reader, mode="append", **options)
            connection.commit()
        except self._dialect.errors as error:
            if counted.failure is not None:  # the rows themselves failed, not the database
                raise counted.failure from error
            raise self._refusal(error) from error
        finally:
            _close(connection)
        return Staged(batch, partition, counted.rows, counted.nbytes, name, serialized)

    def commit(self, staged: Sequence[Staged], batch: Batch) -> bool:
        return self._patiently(lambda connection: self._commit(connection, staged, batch))

    def _commit(self, connection: Any, staged: Sequence[Staged], batch: Batch) -> bool:
        ledger = self._named(LEDGER)
        self._execute(
            connection,
            f"CREATE TABLE IF NOT EXISTS {ledger} (target text, query text, batch bigint, "
            "row_count bigint, committed timestamptz DEFAULT now(), "
            "PRIMARY KEY (target, query, batch))",
        )
        who = (self.table, batch.query)
        where = f"FROM {ledger} WHERE target = $1 AND query = $2"
        # Two drivers of one query (one of them a ghost) come through here one after the other.
        self._execute(connection, "SELECT pg_advisory_xact_lock(hashtext($1 || $2))", *who)
        newest = self._rows(connection, f"SELECT max(batch) {where}", *who)[0][0]
        fresh = newest is None or newest < batch.number
        if fresh:
            total = sum(part.rows for part in staged)
            self._execute(
                connection,
                f"INSERT INTO {ledger} (target, query, batch, row_count) VALUES ($1, $2, $3, $4)",
                *(*who, batch.number, total),
            )
            for part in staged:
                if part.place:
                    self._move(connection, part)
            oldest = batch.number - _KEEP_LEDGER
            self._execute(connection, f"DELETE {where} AND batch < $3", *who, oldest)
        self._sweep(connection, batch)
        connection.commit()
        return fresh

    def abort(self, staged: Sequence[Staged], batch: Batch) -> None:
        def drop(connection: Any) -> None:
            for part in staged:
                if part.place:
                    self._execute(connection, f"DROP TABLE IF EXISTS {self._named(part.place)}")
            connection.commit()

        if any(part.place for part in staged):
            self._patiently(drop)

    def _move(self, connection: Any, part: Staged) -> None:
        stage = self._named(part.place)
        found = self._rows(connection, f"SELECT count(*) FROM {stage}")[0][0]
        if found != part.rows:
            raise SemistreamError(
                f"a task staged {part.rows} rows for {self._shown}, of which {found} are there: "
                "the server crashed in between; the batch has to run again"
            )
        columns = ", ".join(self._dialect.quote(name) for name in part.arrow_schema.names)
        self._execute(connection, f"CREATE TABLE IF NOT EXISTS {self._target} (LIKE {stage})")
        self._execute(
            connection, f"INSERT INTO {self._target} ({columns}) SELECT {columns} FROM {stage}"
        )

    def _sweep(self, connection: Any, batch: Batch) -> None:
        """Drop the tables of this batch's tasks and of dead tasks before."""
        prefix = self._prefix(Batch(batch.query, 0)).rsplit("_", 2)[0] + "_"
        names = self._rows(
            connection,
            "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relkind = 'r' AND starts_with(c.relname, $1) AND "
            "n.nspname = coalesce($2, current_schema())",
            prefix,
            self.schema,
        )
        for (name,) in names:
            if int(name[len(prefix) :].split("_")[0]) <= batch.number:
                self._execute(connection, f"DROP TABLE IF EXISTS {self._named(name)}")

    # -- the connection --------------------------------------------------------------------

    def _patiently(self, work: Callable[[Any], T], close: bool = True) -> T:
        """Do it in one connection; while the server is away, wait and begin again."""
        deadline = time.monotonic() + self.patience
        while True:
            connection = None
            try:
                connection = self._connect()
                result = work(connection)
                if close:
                    _close(connection)
                return result
            except self._dialect.errors as error:
                if connection is not None:
                    _close(connection)
                state = getattr(error, "sqlstate", None) or "08"
                if state[:2] not in _PASSING or time.monotonic() >= deadline:
                    raise self._refusal(error) from error
                time.sleep(_PAUSE)
            except BaseException:
                if connection is not None:
                    _close(connection)
                raise

    def _connect(self) -> Any:
        import adbc_driver_postgresql.dbapi as driver

        return driver.connect(self.uri)

    def _refusal(self, error: Exception) -> SemistreamError:
        state = getattr(error, "sqlstate", None) or ""
        kind = SchemaError if state.startswith(("42", "22", "0A")) else SemistreamError
        words = without_secrets(str(error), self.uri).strip()
        return kind(f"{self._shown} cannot be written: {words}")

    def _execute(self, connection: Any, sql: str, *params: Any) -> None:
        self._rows(connection, sql, *params, fetch=False)

    def _rows(self, connection: Any, sql: str, *params: Any, fetch: bool = True) -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute(sql, list(params) or None)
            return list(cursor.fetchall()) if fetch else []

    def _named(self, table: str) -> str:
        return self._dialect.qualified([self.schema, table] if self.schema else [table])

    def _prefix(self, batch: Batch) -> str:
        who = uuid.uuid5(uuid.NAMESPACE_OID, f"{batch.query} {self.table}").hex[:12]
        return f"{_STAGE}{who}_{batch.number}_"


class _Counted:
    """Counts rows on their way, and remembers an error that the driver would rename."""

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


def _close(connection: Any) -> None:
    import contextlib

    with contextlib.suppress(Exception):  # what is broken cannot be closed, and need not be
        connection.close()
