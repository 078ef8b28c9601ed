"""The PostgreSQL sink's ledger: the committed batches of each query and target table."""

from __future__ import annotations

from typing import Any

from semistream.errors import SemistreamError
from semistream.sinks.contract import Batch, Mark
from semistream.sinks.postgresql_server import Server

LEDGER = "semistream_ledger"
FORMAT = 1
_MARK = "-waiting"  # after a query's id
_KEEP = 100  # entries of a query; a replay needs only the newest


class Ledger:
    """The entries of one target; ``name`` is the ledger's table, quoted."""

    def __init__(self, server: Server, name: str, target: str) -> None:
        self._server = server
        self._name = name
        self._target = target

    def prepare(self, connection: Any) -> None:
        """Create the table if it does not exist, in a separate transaction.

        Under a lock, because concurrent CREATE TABLE IF NOT EXISTS statements can fail.
        """
        if not self._server.exists(connection, self._name):
            self._server.lock(connection, f"create {self._name}")
            self._server.execute(
                connection,
                f"CREATE TABLE IF NOT EXISTS {self._name} (target text, query text, batch bigint, "
                "row_count bigint, committed timestamptz DEFAULT now(), "
                "format integer NOT NULL, PRIMARY KEY (target, query, batch))",
            )
            connection.commit()
            self._server.limit(connection)
        columns = self._server.rows(
            connection,
            "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass($1::text) "
            "AND NOT attisdropped",
            self._name,
        )
        if ("format",) not in [tuple(row) for row in columns]:
            raise SemistreamError(
                f"the table {self._name} has no column format. If an early release of semistream "
                f"created it, ALTER TABLE {self._name} ADD COLUMN format integer NOT NULL DEFAULT "
                "1; "
                "otherwise rename it"
            )

    def newest(self, connection: Any, query: str) -> int | None:
        found = self._newest(connection, query)
        return None if found is None else found[0]

    def mark(self, connection: Any, query: str) -> Mark | None:
        found = self._newest(connection, query + _MARK)
        return None if found is None else Mark(query, *found)

    def enter_mark(self, connection: Any, mark: Mark) -> None:
        """An entry as of a batch, under another name: its number, and the rows that wait."""
        self.enter(connection, Batch(mark.query + _MARK, mark.number), mark.rows)

    def _newest(self, connection: Any, query: str) -> tuple[int, int] | None:
        """The newest entry: its batch and its rows."""
        found = self._server.rows(
            connection,
            f"SELECT batch, row_count, format FROM {self._name} WHERE target = $1 AND query = $2 "
            "ORDER BY batch DESC LIMIT 1",
            self._target,
            query,
        )
        if not found:
            return None
        batch, rows, version = found[0]
        if version != FORMAT:
            raise SemistreamError(
                f"the table {self._name} has an entry of the format version {version}, this "
                f"release reads {FORMAT}; use the release of semistream that wrote it, or a newer "
                "one"
            )
        return int(batch), int(rows)

    def enter(self, connection: Any, batch: Batch, rows: int) -> None:
        self._server.execute(
            connection,
            f"INSERT INTO {self._name} (target, query, batch, row_count, format) "
            "VALUES ($1, $2, $3, $4, $5)",
            *(self._target, batch.query, batch.number, rows, FORMAT),
        )
        self._server.execute(
            connection,
            f"DELETE FROM {self._name} WHERE target = $1 AND query = $2 AND batch < $3",
            *(self._target, batch.query, batch.number - _KEEP),
        )
