"""A relation that stays in its database, read as pages.

    database  --cut points-->  page index        (once, when it is opened)
    database  --WHERE key >= ... AND key < ...-->  page        (each read)

The database itself cuts the key range into pages of about ``page_bytes``; all rows of one key are
in one page. The first page has no lower bound and the last no upper bound, so a row that is
inserted later is found when its page is read.

A database table has no versions. A replayed batch may therefore read other rows than it read the
first time, and a cached row may be stale. Where that matters, import the table:
``MasterTable.build(SqlMaster(...).batches(), path, key=...)``.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from semistream.errors import ConfigError, MasterTableError, SchemaError, existing
from semistream.keys import Codes, KeyCodec
from semistream.master.index import PageIndex
from semistream.master.sql_dialects import Column, Dialect, dialect_of
from semistream.master.sql_reader import SqlReader
from semistream.master.sql_redact import redact, without_secrets
from semistream.memory import format_size, parse_size

Answer = TypeVar("Answer")
_GROWTH = 2  # a page may grow by this factor before the cut points must be recomputed


class SqlMaster:
    """A table of PostgreSQL, MySQL, MariaDB or SQLite, read by key range.

    Parameters
    ----------
    uri
        ``postgresql://...``, ``mysql://...``, ``mariadb://...`` or ``sqlite:///file``.
    table
        Its name, or ``(schema, name)``. Any character is allowed: names are quoted.
    key
        The column(s) to join on. Reads are fast if they are indexed; for text keys in PostgreSQL
        this must be an index with ``COLLATE "C"``.
    columns
        The columns to read besides the key. Default: all columns.
    types
        Arrow types for columns whose database type is not specific enough.
    unique
        Keys are unique; checked when the table is opened.
    page_bytes
        The size of a page; larger only if the rows of one key are.

    >>> import sqlite3, tempfile
    >>> file = tempfile.mkdtemp() + "/shop.db"
    >>> with sqlite3.connect(file) as database:
    ...     _ = database.execute("create table product (id integer, price real)")
    ...     _ = database.execute("insert into product values (2, 2.5), (1, 1.5)")
    >>> SqlMaster(f"sqlite:///{file}", "product", key="id").to_table()["price"].to_pylist()
    [1.5, 2.5]
    """

    ordered = True
    pinned = True
    version = 0
    mapped = False
    can_address = False
    can_copy_rows = False
    column_bytes = None
    code_column = None

    def __init__(
        self,
        uri: str,
        table: str | Sequence[str],
        key: str | Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        types: Mapping[str, pa.DataType] | None = None,
        unique: bool = False,
        page_bytes: int | str = "256KiB",
    ) -> None:
        self.uri = uri
        self.table = (table,) if isinstance(table, str) else tuple(table)
        self.key = (key,) if isinstance(key, str) else tuple(key)
        self.unique = unique
        self.page_size = parse_size(page_bytes, "page_bytes")
        self._open_dialect()
        self._columns = self._choose(columns, dict(types or {}))
        self.schema = pa.schema([pa.field(c.name, c.type) for c in self._columns])
        by_name = {column.name: column for column in self._columns}
        self._keys = [by_name[name] for name in self.key]
        self.codec = KeyCodec.for_types([c.type for c in self._keys], list(self.key))
        if unique:
            self._check_duplicates()
        self._cut()

    def _open_dialect(self) -> None:
        self._dialect: Dialect = dialect_of(self.uri)
        self._connection: Any = None
        self._lock = threading.RLock()
        self._from = self._dialect.qualified(self.table)

    # -- columns and pages -----------------------------------------------------------------

    def _choose(self, wanted: Sequence[str] | None, types: dict[str, Any]) -> list[Column]:
        found = self._run_query(lambda c: self._dialect.columns(c, self.table))
        if not found:
            raise MasterTableError(f"{self._label} does not exist, or has no columns")
        names = [column.name for column in found]
        for what, given in (("key", self.key), ("columns", wanted or ()), ("types", types)):
            absent = [name for name in given if name not in names]
            if absent:
                raise SchemaError(
                    f"{what}: {self._label} has no column {absent[0]!r}; "
                    f"{existing(absent[0], names)}"
                )
        if typed := [name for name in self.key if name in types]:
            raise ConfigError(
                f"types[{typed[0]!r}]: a key column keeps the database's type, whose order "
                "determines the pages"
            )
        if nested := [n for n, t in types.items() if pa.types.is_nested(t)]:
            raise ConfigError(f"types[{nested[0]!r}]={types[nested[0]]}: use a non-nested type")
        keep = set(names if wanted is None else (*self.key, *wanted))
        return [
            Column(c.name, types.get(c.name, c.type), c.declared) for c in found if c.name in keep
        ]

    def _check_duplicates(self) -> None:
        keys = ", ".join(self._dialect.ordered(column) for column in self._keys)
        twice = self._rows(
            f"SELECT 1 FROM {self._from} WHERE {self._keys_not_null()} "
            f"GROUP BY {keys} HAVING count(*) > 1 LIMIT 1"
        )
        if twice:
            raise MasterTableError(f"unique=True, but {self._label} has duplicate keys")

    def _cut(self) -> None:
        """Let the database compute the cut points and the size of each page."""
        varying = [c for c in self._columns if c.varies]
        lengths = " + ".join(self._dialect.length(c) for c in varying) or "0"
        count, total = self._rows(
            f"SELECT count(*), coalesce(sum({lengths}), 0) FROM {self._from} "
            f"WHERE {self._keys_not_null()}"
        )[0]
        self._fixed = sum((c.type.bit_width + 7) // 8 for c in self._columns if not c.varies)
        self._fixed += 4 * len(varying) + (len(self._columns) + 7) // 8
        self.num_rows = int(count)
        self.row_bytes = float(total) / max(1, self.num_rows) + self._fixed
        self.nbytes = int(self.row_bytes * self.num_rows)
        step = max(1, int(self.page_size // self.row_bytes))
        names = [f"k{i}" for i in range(len(self._keys))]
        keys = ", ".join(
            f"{self._dialect.selected(c)} AS {n}" for c, n in zip(self._keys, names, strict=True)
        )
        order = ", ".join(self._dialect.ordered(c) for c in self._keys)
        # rank() gives all rows of a key one number, so they share a page.
        sql = (
            f"SELECT {', '.join(names)}, c, b, w FROM (SELECT {', '.join(names)}, p, "
            "count(*) OVER page AS c, sum(l) OVER page AS b, max(l) OVER page AS w, "
            "row_number() OVER (PARTITION BY p ORDER BY r) AS i FROM ("
            f"SELECT {keys}, {lengths} AS l, rank() OVER (ORDER BY {order}) AS r, "
            f"(rank() OVER (ORDER BY {order}) - 1) {self._dialect.floor_divide} {step} AS p "
            f"FROM {self._from} WHERE {self._keys_not_null()}) numbered "
            "WINDOW page AS (PARTITION BY p)) cut WHERE i = 1 ORDER BY p"
        )
        fields = [pa.field(n, c.type) for n, c in zip(names, self._keys, strict=True)]
        fields += [pa.field(name, pa.int64()) for name in "cbw"]
        cuts = self._run_query(lambda c: self._dialect.batch(c, sql, (), fields))
        rows, nbytes, longest = (cuts.column(n).to_numpy() for n in "cbw")
        self._firsts = cuts.select(names)
        self.max_page_bytes = _GROWTH * int((rows * self._fixed + nbytes).max(initial=0)) + 1024
        self.max_row_bytes = self._fixed + int(longest.max(initial=0))
        self._most_rows = self.max_page_bytes // max(1, self._fixed)
        self._make_index()

    def _make_index(self) -> None:
        firsts = self.codec.sortable(self._firsts.columns)
        flat = np.zeros(len(firsts), dtype=np.bool_)
        self.index = PageIndex(
            self.codec, firsts, flat, int(self._firsts.nbytes), by_code=self.codec.exact
        )

    @property
    def distinct(self) -> bool:
        return self.unique

    @property
    def num_pages(self) -> int:
        return int(self._firsts.num_rows)

    @property
    def _label(self) -> str:
        return f"table {'.'.join(self.table)!r} of {redact(self.uri)}"

    def __repr__(self) -> str:
        return f"SqlMaster({self._label}, rows={self.num_rows}, pages={self.num_pages})"

    def __getstate__(self) -> dict[str, Any]:
        """All but the connection, so that workers do not compute the cut points again."""
        left = ("_dialect", "_connection", "_lock", "index")
        return {name: value for name, value in self.__dict__.items() if name not in left}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open_dialect()
        self._make_index()

    # -- the PageSource interface ----------------------------------------------------------

    @property
    def page_schema(self) -> pa.Schema:
        return self.schema

    def can_prefetch(self, direct: bool) -> bool:
        return False

    def buffer_bytes(self, pages_at_once: int, direct: bool) -> int:
        return pages_at_once * self.max_page_bytes

    def at_version(self, version: int, awaited: int = 0) -> SqlMaster:
        """Itself: there are no versions."""
        return self

    def reader(self, pages_at_once: int = 1, direct: bool = False) -> SqlReader:
        if direct:
            raise ConfigError("direct=True is not possible in a database; build a master table")
        if pages_at_once < 1:
            raise ConfigError(f"pages_at_once={pages_at_once}; a reader holds at least one page")
        return SqlReader(self, pages_at_once)

    def newest_version(self) -> int:
        """Always 0: a database table has no versions."""
        return 0

    def pages_shared_with(self, other: Any) -> int:
        return 0

    def changed_codes(self, since: int) -> Iterator[Codes] | None:
        return None

    def changed_since(self, other: Any) -> Iterator[Codes] | None:
        return None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows in key order, page by page; also used to import the table."""
        for page in range(self.num_pages):
            yield self.page(page)

    def to_table(self) -> pa.Table:
        """All rows in memory. For small tables, and for tests."""
        return pa.Table.from_batches(self.batches(), schema=self.schema)

    def refresh(self) -> SqlMaster:
        """The same table with recomputed cut points, for a table that has grown."""
        types = {c.name: c.type for c in self._columns if c.name not in self.key}
        return SqlMaster(
            self.uri,
            self.table,
            self.key,
            columns=self.schema.names,
            types=types,
            unique=self.unique,
            page_bytes=self.page_size,
        )

    def described(self) -> dict[str, Any]:
        """The parameters besides the URI to open the same table, JSON-serializable."""
        return {
            "table": list(self.table),
            "key": list(self.key),
            "columns": self.schema.names,
            "unique": self.unique,
            "page_bytes": self.page_size,
        }

    def close(self) -> None:
        """Close the connection; the next read opens another."""
        with self._lock:
            if self._connection is not None:
                connection, self._connection = self._connection, None
                with contextlib.suppress(*self._dialect.errors):
                    connection.close()

    # -- SQL -------------------------------------------------------------------------------

    def page(self, number: int) -> pa.RecordBatch:
        """The rows of one page, in key order."""
        dialect = self._dialect
        conditions, params = [self._keys_not_null()], []
        keys = ", ".join(dialect.ordered(column) for column in self._keys)
        for cut, sign in ((number, ">="), (number + 1, "<")):
            if not 0 < cut < self.num_pages:
                continue
            marks = []
            for first, column in zip(self._firsts.columns, self._keys, strict=True):
                params.append(dialect.parameter(first[cut].as_py()))
                marks.append(dialect.placeholder(len(params), column))
            conditions.append(f"({keys}) {sign} ({', '.join(marks)})")
        sql = (
            f"SELECT {', '.join(dialect.selected(column) for column in self._columns)} "
            f"FROM {self._from} WHERE {' AND '.join(conditions)} ORDER BY {keys} "
            f"LIMIT {self._most_rows + 1}"
        )
        batch = self._run_query(lambda c: dialect.batch(c, sql, params, list(self.schema)))
        if batch.num_rows > self._most_rows or batch.nbytes > self.max_page_bytes:
            raise MasterTableError(
                f"page {number} of {self._label} has grown beyond "
                f"{format_size(self.max_page_bytes)}, the size in the memory plan; "
                "open the table again"
            )
        return batch

    def _keys_not_null(self) -> str:
        """The condition that excludes null keys, which never match."""
        return " AND ".join(f"{self._dialect.quote(name)} IS NOT NULL" for name in self.key)

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._run_query(lambda connection: self._dialect.rows(connection, sql))

    def _run_query(self, query: Callable[[Any], Answer]) -> Answer:
        """Run one query at a time; after an error the next one opens a new connection."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._dialect.connect()
                return query(self._connection)
            except self._dialect.errors as error:
                self.close()
                words = without_secrets(str(error), self.uri)
                raise MasterTableError(
                    f"{self._label} cannot be read: {words.strip()}; "
                    "check that the server is running and the table exists, then try again"
                ) from (error if words == str(error) else None)
