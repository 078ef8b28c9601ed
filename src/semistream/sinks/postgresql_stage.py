"""The staging tables of the PostgreSQL sink: their names, and when they are dropped.

    semistream_stage_<query and target>_<batch>_<partition>_<staged at>_<random>

The time is the server's, in hexadecimal seconds. PostgreSQL truncates names after 63 characters;
these stay below up to a billion batches.
"""

from __future__ import annotations

import re
import uuid
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from semistream.sinks.contract import ABANDONED, SWEEP_EVERY, Batch
from semistream.sinks.postgresql_server import Server

_PREFIX = "semistream_stage_"
_NAME = re.compile(_PREFIX + r"([0-9a-f]{12})_([0-9]+)_[0-9]+_([0-9a-f]+)_[0-9a-f]{6}")
_DROP_WAIT = "500ms"


class Stages:
    """Staging tables in one schema, for one target."""

    def __init__(self, server: Server, schema: str | None, target: str) -> None:
        self._server = server
        self._schema = schema
        self._target = target

    def name(self, connection: Any, batch: Batch, partition: int) -> str:
        parts = (self._owner(batch), batch.number, partition)
        return (
            f"{_PREFIX}{'_'.join(map(str, parts))}_{self._now(connection):08x}_"
            f"{uuid.uuid4().hex[:6]}"
        )

    def sweep(self, connection: Any, batch: Batch) -> None:
        """Drop the tables of this and earlier batches; periodically those of abandoned
        queries."""
        staged = self._staged(connection)
        ours = self._owner(batch)
        done = [name for number, _, name in staged.pop(ours, []) if number <= batch.number]
        if batch.number % SWEEP_EVERY == 0:
            now = self._now(connection)
            for tables in staged.values():
                if now - max(time for _, time, _ in tables) > ABANDONED:
                    done += [name for _, _, name in tables]
        self.drop(connection, done)

    def drop(self, connection: Any, names: Sequence[str]) -> None:
        """Skips tables that are locked (a backup may take hours); a later sweep drops them."""
        if not self._try_drop(connection, names):
            for name in names:
                self._try_drop(connection, [name])

    def _try_drop(self, connection: Any, names: Sequence[str]) -> bool:
        try:
            self._server.execute(connection, f"SET LOCAL lock_timeout = '{_DROP_WAIT}'")
            for name in names:
                place = [self._schema, name] if self._schema else [name]
                quoted = self._server.dialect.qualified(place)
                self._server.execute(connection, f"DROP TABLE IF EXISTS {quoted}")
            connection.commit()
        except self._server.dialect.errors:
            connection.rollback()
            return False
        return True

    def _staged(self, connection: Any) -> dict[str, list[tuple[int, int, str]]]:
        """Batch, time and name of every staging table, by query and target."""
        rows = self._server.rows(
            connection,
            "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relkind = 'r' AND starts_with(c.relname, $1) AND "
            "n.nspname = coalesce($2, current_schema())",
            _PREFIX,
            self._schema,
        )
        found: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        for (name,) in rows:
            parts = _NAME.fullmatch(name)
            if parts is not None:
                found[parts[1]].append((int(parts[2]), int(parts[3], 16), name))
        return found

    def _now(self, connection: Any) -> int:
        return int(self._server.rows(connection, "SELECT extract(epoch FROM now())::bigint")[0][0])

    def _owner(self, batch: Batch) -> str:
        return uuid.uuid5(uuid.NAMESPACE_OID, f"{batch.query} {self._target}").hex[:12]
