"""Connections of the PostgreSQL sink: retries with a time limit, and lock timeouts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, TypeVar

from semistream.errors import ConfigError, SchemaError, SemistreamError
from semistream.master.sql_redact import without_secrets

T = TypeVar("T")
Lock = tuple[str, str]
_PAUSE = 0.5
_TRANSIENT = ("08", "53", "57")  # SQLSTATE classes: connection, resources, operator intervention
_LOCK_TIMEOUT = "55P03"
# Sessions that hold the advisory lock of this name, or a lock on this table that blocks writers.
_HOLDERS = """
SELECT DISTINCT l.pid, coalesce(a.application_name, ''), coalesce(a.state, 'unknown'),
    coalesce(date_trunc('second', a.state_change)::text, 'unknown')
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.granted AND l.pid <> pg_backend_pid() AND (
    l.locktype = 'advisory'
        AND ((l.classid::bigint << 32) | l.objid::bigint) = hashtext($1)::bigint
    OR l.relation = to_regclass(nullif($2, '')) AND l.mode IN
        ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'))
"""


class Server:
    """The server of one sink.

    ``patience``: seconds to wait for an unreachable server, and for a lock.
    """

    def __init__(self, uri: str, shown: str, patience: float | str) -> None:
        from semistream.master.sql_dialects import PostgreSql

        try:
            self.patience = float(patience)
        except ValueError:
            raise ConfigError(f"patience={patience!r} is not a number of seconds") from None
        self.dialect = PostgreSql(uri)
        self._uri = uri
        self._shown = shown

    def with_retries(
        self, work: Callable[[Any], T], close: bool = True, lock: Lock = ("", "")
    ) -> T:
        """Run ``work`` in one connection; while the server is unreachable, wait and retry.

        ``lock`` names the lock that the work takes and the table that it writes to, to find the
        holder of a lock that times out.
        """
        deadline = time.monotonic() + self.patience
        while True:
            connection = None
            try:
                connection = self._connect()
                result = work(connection)
                if close:
                    self.close(connection)
                return result
            except self.dialect.errors as error:
                if connection is not None:
                    self.close(connection)
                state = getattr(error, "sqlstate", None) or "08"
                if state[:2] not in _TRANSIENT or time.monotonic() >= deadline:
                    raise self.readable_error(error, lock) from error
                time.sleep(_PAUSE)
            except BaseException:
                if connection is not None:
                    self.close(connection)
                raise

    def limit(self, connection: Any) -> None:
        """Set a transaction's lock timeout and idle timeout, and make its commit synchronous."""
        self.execute(
            connection,
            "SELECT set_config('lock_timeout', $1, true), "
            "set_config('idle_in_transaction_session_timeout', $2, true), "
            "set_config('synchronous_commit', replace(current_setting('synchronous_commit'), "
            "'off', 'on'), true)",
            # Zero would mean no timeout. The idle timeout is shorter, so that a hanging driver is
            # disconnected before its successor, which waits for its lock, gives up.
            f"{max(100, int(1000 * self.patience))}ms",
            f"{max(1000, int(500 * self.patience))}ms",
        )

    def lock(self, connection: Any, name: str) -> None:
        """Take the advisory lock of this name until the transaction ends."""
        self.execute(connection, "SELECT pg_advisory_xact_lock(hashtext($1))", name)

    def readable_error(self, error: Exception, lock: Lock = ("", "")) -> SemistreamError:
        state = getattr(error, "sqlstate", None) or ""
        if state == _LOCK_TIMEOUT:
            return SemistreamError(self._lock_timeout(lock))
        kind = SchemaError if state.startswith(("42", "22", "0A")) else SemistreamError
        words = without_secrets(str(error), self._uri).strip()
        return kind(f"{self._shown} cannot be written: {words}")

    def _lock_timeout(self, lock: Lock) -> str:
        waited = f"{self._shown} cannot be written: waited {self.patience:g} s for a lock"
        found: list[Any] = []
        with contextlib.suppress(*self.dialect.errors):  # only improves the message
            connection = self._connect()
            try:
                found = self.rows(connection, _HOLDERS, *lock)
            finally:
                self.close(connection)
        if not found:
            return f"{waited}; restart the query, with a larger patience if necessary"
        pid, program, state, since = found[0]
        return (
            f"{waited} that process {pid} of the server holds (application {program!r}, {state} "
            f"since {since}). If it is a driver that hangs or whose host died, end it with SELECT "
            f"pg_terminate_backend({pid}), and restart the query; if it is active, wait for "
            "it or raise patience"
        )

    def execute(self, connection: Any, sql: str, *params: Any) -> None:
        self.rows(connection, sql, *params, fetch=False)

    def rows(self, connection: Any, sql: str, *params: Any, fetch: bool = True) -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute(sql, list(params) or None)
            return list(cursor.fetchall()) if fetch else []

    def exists(self, connection: Any, table: str) -> bool:
        sql = "SELECT to_regclass($1::text) IS NOT NULL"
        return bool(self.rows(connection, sql, table)[0][0])

    def close(self, connection: Any) -> None:
        with contextlib.suppress(Exception):  # a broken connection need not be closed
            connection.close()

    def _connect(self) -> Any:
        import adbc_driver_postgresql.dbapi as driver

        return driver.connect(self._uri)
