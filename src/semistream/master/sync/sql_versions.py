"""A table of PostgreSQL, MySQL, MariaDB or SQLite, followed by a column that grows with changes.

1. rows whose version is at least that of the last sync (rows read twice are found unchanged)
2. deleted keys: count and hash of the keys, range by range, in the database and here; ranges that
   differ are read (:mod:`semistream.master.sync.key_digests`)

Reads come one after the other, and each sees what was committed before it. A later one has
precedence, and the position is taken before the first, so what changes meanwhile is read next time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from semistream.durations import parse_duration
from semistream.errors import ConfigError, MasterTableError
from semistream.master.changed import contains
from semistream.master.sql import SqlMaster
from semistream.master.sql_dialects import Column, dialect_of
from semistream.master.sql_redact import redact, without_secrets
from semistream.master.sync.contract import Position, Snapshot, check_columns, compare_all
from semistream.master.sync.entries import Entries
from semistream.master.sync.key_digests import (
    Digests,
    can_digest,
    hash_sql,
    hashes,
    number_of_ranges,
)

if TYPE_CHECKING:
    from semistream.keys import Codes
    from semistream.master.table import MasterTable


class SqlSource:
    """A table in a database, with one row per key.

    Parameters
    ----------
    uri, table
        As for :class:`~semistream.master.sql.SqlMaster`.
    version
        A column whose value grows whenever a row is inserted or updated: a number from a sequence,
        or a timestamp. An index on it makes a sync cheap. Default: none, all rows are compared.
    overlap
        Rows are read again if their version is at most this much older than the newest one of the
        last sync: a duration for timestamps (default 10 s), a number otherwise (default 0). It
        covers transactions that commit later than others that began after them.
    find_deletes
        ``"always"``, ``"never"``, or a duration: at most that often. Deletes are found by comparing
        the keys, for which the database scans its table.
    types
        Arrow types for columns whose database type is not specific enough.
    """

    def __init__(
        self,
        uri: str,
        table: str | Sequence[str],
        *,
        version: str | None = None,
        overlap: str | int | None = None,
        find_deletes: str = "always",
        types: Mapping[str, pa.DataType] | None = None,
    ) -> None:
        self._uri = uri
        self.table = (table,) if isinstance(table, str) else tuple(table)
        self._version = version
        self._overlap = overlap
        self._types = dict(types or {})
        self._every = {"always": 0.0, "never": None}.get(find_deletes, -1.0)
        if self._every == -1.0:
            self._every = parse_duration(find_deletes, "find_deletes")
        self._dialect = dialect_of(uri)

    @property
    def name(self) -> str:
        return f"table {'.'.join(self.table)!r} of {redact(self._uri)}"

    def snapshot(self, key: Sequence[str], columns: Sequence[str] | None) -> Snapshot:
        position = self._start()
        rows = SqlMaster(self._uri, self.table, key, columns=columns, types=self._types)
        return Snapshot(rows.schema, rows.num_rows, rows.batches, position)

    def read_first(self, table: MasterTable, entries: Entries) -> Position:
        self._columns_of(table)  # names a missing column before anything is read
        return compare_all(self, table, entries)

    def read(self, table: MasterTable, position: Position, entries: Entries) -> Position:
        if self._version is None or position.get("version") is None:
            return self.read_first(table, entries)
        columns = self._columns_of(table)
        entries.allow_repeats()
        now = self._start()
        with self._connection() as connection:
            upserted = self._read_newer(connection, position["version"], table, columns, entries)
            if self._is_due(position.get("compared")):
                self._read_different(connection, table, columns, upserted, entries)
            elif self._every:
                now["compared"] = position.get("compared")
        return now

    # -- rows by version -------------------------------------------------------------------

    def _start(self) -> Position:
        """The position of what is read after this call."""
        position: Position = {"version": None}
        if self._every:  # otherwise it is not needed, and a position that is equal is not published
            began = datetime.now(timezone.utc)
            position["compared"] = began.isoformat(timespec="seconds")
        if self._version is None:
            return position
        column = self._version_column()
        with self._connection() as connection:
            sql = f"SELECT max({self._dialect.quote(column.name)}) AS v FROM {self._from}"
            field = pa.field("v", column.type)
            newest = self._dialect.batch(connection, sql, (), [field]).column(0)[0]
        return {**position, "version": _to_json(newest)}

    def _read_newer(
        self, connection: Any, since: Any, table: MasterTable, columns: list[Column],
        entries: Entries,
    ) -> tuple[Codes, Codes]:  # fmt: skip
        """Add the rows with a version since then; returns codes and hashes of their keys."""
        dialect, column = self._dialect, self._version_column()
        start = self._less_overlap(_from_json(since, column.type))
        sql = (
            f"{self._select(table, columns)} AND {dialect.quote(column.name)} >= "
            f"{dialect.placeholder(1, column)}"
        )
        keys = _keys(table, columns)
        codes, found = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        params = [dialect.parameter(start)]
        for batch in dialect.stream(connection, sql, params, _fields(columns)):
            entries.upsert(batch)
            values = [batch.column(name) for name in table.key]
            codes.append(table.codec.codes(values)[0])
            if can_digest(keys):
                found.append(hashes(values, keys))
        distinct, first = np.unique(np.concatenate(codes), return_index=True)
        return distinct, np.concatenate(found)[first if can_digest(keys) else first[:0]]

    def _less_overlap(self, value: Any) -> Any:
        if isinstance(value, datetime):
            seconds = parse_duration("10s" if self._overlap is None else self._overlap, "overlap")
            return value - timedelta(seconds=seconds)
        if not self._overlap:
            return value
        if isinstance(self._overlap, str) or isinstance(value, str):
            raise ConfigError(
                f"overlap={self._overlap!r}: the version column {self._version!r} has values like "
                f"{value!r}; give a number for a number, a duration for a timestamp, nothing else"
            )
        return value - self._overlap

    # -- deleted keys ----------------------------------------------------------------------

    def _is_due(self, compared: str | None) -> bool:
        if self._every is None:
            return False
        if compared is None or self._every == 0.0:
            return True
        since = datetime.now(timezone.utc) - datetime.fromisoformat(compared)
        return since.total_seconds() >= self._every

    def _read_different(
        self, connection: Any, table: MasterTable, columns: list[Column],
        upserted: tuple[Codes, Codes], entries: Entries,
    ) -> None:  # fmt: skip
        """Read the ranges of key hashes in which the database has other keys than the table."""
        keys = _keys(table, columns)
        dialect = self._dialect
        if not can_digest(keys):
            for batch in dialect.stream(connection, self._select(table, keys), (), _fields(keys)):
                entries.keep(batch)
            entries.delete_others()
            return
        ours = _own_digests(table, keys, upserted)
        theirs = Digests(ours.ranges)
        number = hash_sql(dialect, keys)
        total = dialect.as_integer("sum(h)")
        theirs.set(
            iter(
                dialect.rows(
                    connection,
                    f"SELECT h % {ours.ranges} AS r, count(*), {total} FROM (SELECT {number} AS h "
                    f"FROM {self._from} WHERE {self._not_null(table)}) hashed GROUP BY 1",
                )
            )
        )
        differ = theirs.different(ours)
        if not differ:
            return
        chosen = np.array(differ)
        sql = (
            f"{self._select(table, columns)} AND ({number}) % {ours.ranges} "
            f"IN ({', '.join(map(str, differ))})"
        )
        for batch in dialect.stream(connection, sql, (), _fields(columns)):
            entries.upsert(batch)

        def in_range(rows: pa.RecordBatch) -> Any:
            found = hashes([rows.column(name) for name in table.key], keys)
            return contains(chosen, found % ours.ranges)

        entries.delete_others(in_range)

    # -- SQL -------------------------------------------------------------------------------

    @property
    def _from(self) -> str:
        return self._dialect.qualified(self.table)

    def _not_null(self, table: MasterTable) -> str:
        return " AND ".join(f"{self._dialect.quote(name)} IS NOT NULL" for name in table.key)

    def _select(self, table: MasterTable, columns: Sequence[Column]) -> str:
        chosen = ", ".join(self._dialect.selected(column) for column in columns)
        return f"SELECT {chosen} FROM {self._from} WHERE {self._not_null(table)}"

    def _described(self) -> list[Column]:
        with self._connection() as connection:
            found = self._dialect.columns(connection, self.table)
        if not found:
            raise MasterTableError(f"{self.name} does not exist, or has no columns")
        return [Column(c.name, self._types.get(c.name, c.type), c.declared) for c in found]

    def _columns_of(self, table: MasterTable) -> list[Column]:
        found = {column.name: column for column in self._described()}
        check_columns(self.name, table.schema.names, list(found))
        return [found[name] for name in table.schema.names]

    def _version_column(self) -> Column:
        columns = {column.name: column for column in self._described()}
        column = columns.get(str(self._version))
        if column is None:
            raise ConfigError(
                f"version={self._version!r}: {self.name} has no such column; its columns are "
                f"{', '.join(columns)}"
            )
        kind, types = column.type, pa.types
        if not (types.is_integer(kind) or types.is_timestamp(kind) or types.is_date(kind)
                or types.is_decimal(kind) or types.is_string(kind)):  # fmt: skip
            raise ConfigError(
                f"version={self._version!r} is {kind}, which cannot be followed; use a column of "
                "integers or timestamps that grows with every change"
            )
        return column

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Any]:
        try:
            connection = self._dialect.connect()
            try:
                yield connection
            finally:
                with contextlib.suppress(*self._dialect.errors):
                    connection.close()
        except self._dialect.errors as error:
            words = without_secrets(str(error), self._uri)
            raise MasterTableError(
                f"{self.name} cannot be read: {words.strip()}; check that the server is running "
                "and the table exists, then try again"
            ) from (error if words == str(error) else None)


def _fields(columns: Sequence[Column]) -> list[pa.Field]:
    return [pa.field(column.name, column.type) for column in columns]


def _to_json(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None  # the table is empty, or has no versions yet
    if pa.types.is_integer(value.type):
        return value.as_py()
    return value.cast(pa.string()).as_py()


def _from_json(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, int):
        return value
    return pa.scalar(value).cast(kind).as_py()


def _keys(table: MasterTable, columns: Sequence[Column]) -> list[Column]:
    by_name = {column.name: column for column in columns}
    return [by_name[name] for name in table.key]


def _own_digests(
    table: MasterTable, keys: Sequence[Column], upserted: tuple[Codes, Codes]
) -> Digests:
    """Of the table's keys and of those just read, which it may not have yet."""
    digests = Digests(number_of_ranges(table.num_rows))
    added, their_hashes = upserted
    is_new = np.ones(len(added), np.bool_)
    for batch in table.coded_batches():
        codes = table.codes.stored(batch)
        digests.add(hashes([batch.column(name) for name in table.key], keys))
        is_new[np.searchsorted(added, codes[contains(added, codes)])] = False
    digests.add(their_hashes[is_new])
    return digests
