"""The differences between the supported databases: drivers, types, quoting.

A dialect opens connections, describes a table's columns as Arrow fields, and generates the SQL to
select, compare and measure a column. Keys are always compared byte by byte (``COLLATE "C"`` and
the like), because that is the order of the page index, whatever the database's own collation.
"""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import unquote

import pyarrow as pa

from semistream.errors import ConfigError, SchemaError
from semistream.master.sql_redact import redact as redact  # re-exported

Params = Sequence[Any]
_FETCHED = 16_384  # rows at a time


@dataclass(frozen=True)
class Column:
    """One column of the relation: its name, its Arrow type, its type in the database."""

    name: str
    type: pa.DataType
    declared: str

    @property
    def varies(self) -> bool:
        """Whether the type has variable width."""
        kind = self.type
        return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


class Dialect(ABC):
    """The common parts of all databases; subclasses implement the rest."""

    quote_char: ClassVar[str] = '"'
    floor_divide: ClassVar[str] = "/"
    errors: tuple[type[Exception], ...] = ()

    def __init__(self, uri: str) -> None:
        self.uri = uri

    @abstractmethod
    def connect(self) -> Any:
        """A new connection."""

    def quote(self, name: str) -> str:
        """Quote an identifier; any character is allowed."""
        if not isinstance(name, str) or not name or "\0" in name:
            raise ConfigError(f"{name!r} is not a valid table or column name; use text without NUL")
        mark = self.quote_char
        return mark + name.replace(mark, 2 * mark) + mark

    def qualified(self, table: Sequence[str]) -> str:
        return ".".join(self.quote(part) for part in table)

    @abstractmethod
    def columns(self, connection: Any, table: Sequence[str]) -> list[Column]:
        """The table's columns, in order."""

    def rows(self, connection: Any, sql: str, params: Params = ()) -> list[tuple[Any, ...]]:
        cursor = connection.cursor()
        try:
            cursor.execute(sql, tuple(params))
            return [tuple(row) for row in cursor.fetchall()]
        finally:
            cursor.close()

    def batch(
        self, connection: Any, sql: str, params: Params, fields: Sequence[pa.Field]
    ) -> pa.RecordBatch:
        """The rows of a query as Arrow; raises if a value does not fit its column's type."""
        rows = self.rows(connection, sql, params)
        arrays = [_array([row[i] for row in rows], field) for i, field in enumerate(fields)]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def stream(
        self, connection: Any, sql: str, params: Params, fields: Sequence[pa.Field]
    ) -> Iterator[pa.RecordBatch]:
        """The same in batches, for results that do not fit in memory."""
        cursor = self.stream_cursor(connection)
        try:
            cursor.execute(sql, tuple(params))
            while rows := cursor.fetchmany(_FETCHED):
                arrays = [_array([row[i] for row in rows], field) for i, field in enumerate(fields)]
                yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
        finally:
            cursor.close()

    def stream_cursor(self, connection: Any) -> Any:
        return connection.cursor()

    def as_integer(self, expression: str) -> str:
        """A 64-bit integer: the database's own type may be narrower, or have decimals."""
        return expression

    def as_text(self, column: Column) -> str:
        """An integer or text as text, for :meth:`md5_number`."""
        return f"CAST({self.quote(column.name)} AS TEXT)"

    def concatenated(self, texts: Sequence[str], separator: int) -> str:
        """Texts with a character in between."""
        return f" || char({separator}) || ".join(texts)

    @abstractmethod
    def md5_number(self, text: str) -> str:
        """The first 28 bits of the MD5 of a text's UTF-8 bytes, as an integer."""

    def selected(self, column: Column) -> str:
        return self.quote(column.name)

    def ordered(self, column: Column) -> str:
        """The expression whose order is the order of our keys."""
        return self.quote(column.name)

    def placeholder(self, number: int, column: Column) -> str:
        return "?"

    def parameter(self, value: Any) -> Any:
        return value

    def length(self, column: Column) -> str:
        return f"coalesce(octet_length({self.quote(column.name)}), 0)"


def _array(values: list[Any], field: pa.Field) -> pa.Array:
    """A type given by the user may need a cast: dates in SQLite are text."""
    try:
        with contextlib.suppress(pa.ArrowException, TypeError):
            return pa.array(values, type=field.type)
        return pa.array(values).cast(field.type)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SchemaError(
            f"column {field.name!r} has a value that is not {field.type}: {error}; "
            "set its type with types={...}"
        ) from error


class Sqlite(Dialect):
    """A file; the driver is in Python's library. Types follow SQLite's affinity rules."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        import sqlite3

        self.errors = (sqlite3.Error,)
        self.path = unquote(re.sub(r"^sqlite:(//)?/?", "", uri)) if "://" in uri else uri[7:]

    def connect(self) -> Any:
        import sqlite3
        from pathlib import Path

        if not Path(self.path).is_file():
            raise sqlite3.OperationalError(f"the file {self.path} does not exist")
        address = f"{Path(self.path).absolute().as_uri()}?mode=ro"
        connection = sqlite3.connect(address, uri=True, check_same_thread=False, timeout=30)
        connection.create_function("semistream_md5", 1, _md5_number, deterministic=True)
        return connection

    def md5_number(self, text: str) -> str:
        return f"semistream_md5({text})"

    def columns(self, connection: Any, table: Sequence[str]) -> list[Column]:
        pragma = f"PRAGMA {self.quote(table[0])}." if len(table) > 1 else "PRAGMA "
        found = self.rows(connection, f"{pragma}table_info({self.quote(table[-1])})")
        return [Column(row[1], _affinity(str(row[2])), str(row[2])) for row in found]

    def ordered(self, column: Column) -> str:
        collate = " COLLATE BINARY" if pa.types.is_string(column.type) else ""
        return self.quote(column.name) + collate

    def length(self, column: Column) -> str:
        return f"coalesce(length(CAST({self.quote(column.name)} AS BLOB)), 0)"


def _md5_number(text: str) -> int:
    import hashlib

    return int(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:7], 16)


def _affinity(declared: str) -> pa.DataType:
    kind = declared.upper()
    if "INT" in kind:
        return pa.int64()
    if any(word in kind for word in ("CHAR", "CLOB", "TEXT", "DATE", "TIME")):
        return pa.string()
    if "BLOB" in kind or not kind:
        return pa.binary()
    return pa.float64()


class PostgreSql(Dialect):
    """Through ADBC: rows arrive as Arrow. Types without an Arrow equivalent are read as text."""

    _KINDS: ClassVar[dict[str, pa.DataType]] = {
        "int2": pa.int16(),
        "int4": pa.int32(),
        "int8": pa.int64(),
        "float4": pa.float32(),
        "float8": pa.float64(),
        "bool": pa.bool_(),
        "bytea": pa.binary(),
        "date": pa.date32(),
        "time": pa.time64("us"),
        "timestamp": pa.timestamp("us"),
        "timestamptz": pa.timestamp("us", "UTC"),
    }
    _DESCRIBE = (
        "SELECT a.attname::text, t.typname::text, a.atttypmod::bigint FROM pg_attribute a "
        "JOIN pg_type t ON t.oid = a.atttypid WHERE a.attrelid = $1::text::regclass "
        "AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
    )

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        try:
            import adbc_driver_manager
            import adbc_driver_postgresql  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                "PostgreSQL needs the ADBC driver; pip install 'semistream[postgres]'"
            ) from error
        self.errors = (adbc_driver_manager.Error,)

    def connect(self) -> Any:
        import adbc_driver_postgresql.dbapi as driver

        return driver.connect(self.uri, autocommit=True)

    def columns(self, connection: Any, table: Sequence[str]) -> list[Column]:
        found = self.rows(connection, self._DESCRIBE, [self.qualified(table)])
        return [Column(name, self._kind(kind, modifier), kind) for name, kind, modifier in found]

    def _kind(self, declared: str, modifier: int) -> pa.DataType:
        if declared == "numeric" and modifier >= 4:
            precision, scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
            if precision <= 38 and scale <= precision:
                return pa.decimal128(precision, scale)
        return self._KINDS.get(declared, pa.string())

    def batch(
        self, connection: Any, sql: str, params: Params, fields: Sequence[pa.Field]
    ) -> pa.RecordBatch:
        with connection.cursor() as cursor:
            cursor.execute(sql, list(params) or None)
            table = cursor.fetch_arrow_table().combine_chunks()
        arrays = []
        for field, column in zip(fields, table.columns, strict=True):
            chunks = column.chunks
            arrays.append((chunks[0] if chunks else pa.array([], column.type)).cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def stream(
        self, connection: Any, sql: str, params: Params, fields: Sequence[pa.Field]
    ) -> Iterator[pa.RecordBatch]:
        schema = pa.schema(fields)
        with connection.cursor() as cursor:
            cursor.execute(sql, list(params) or None)
            for batch in cursor.fetch_record_batch():
                columns = [c.cast(f.type) for c, f in zip(batch.columns, fields, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def as_integer(self, expression: str) -> str:
        return f"({expression})::bigint"

    def as_text(self, column: Column) -> str:
        return f"{self.quote(column.name)}::text"

    def concatenated(self, texts: Sequence[str], separator: int) -> str:
        return f" || chr({separator}) || ".join(texts)

    def md5_number(self, text: str) -> str:
        return f"('x' || lpad(substr(md5({text}), 1, 7), 8, '0'))::bit(32)::bigint"

    def rows(self, connection: Any, sql: str, params: Params = ()) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(sql, list(params) or None)
            return [tuple(row) for row in cursor.fetchall()]

    def selected(self, column: Column) -> str:
        as_text = column.declared not in self._KINDS
        return self.quote(column.name) + ("::text" if as_text else "")

    def ordered(self, column: Column) -> str:
        if pa.types.is_string(column.type):
            return f'{self.quote(column.name)}::text COLLATE "C"'
        return self.quote(column.name)

    def placeholder(self, number: int, column: Column) -> str:
        # A decimal is bound as text; the driver would bind it as an opaque type.
        return f"${number}::text::numeric" if column.declared == "numeric" else f"${number}"

    def parameter(self, value: Any) -> Any:
        from decimal import Decimal

        return str(value) if isinstance(value, Decimal) else value

    def length(self, column: Column) -> str:
        return f"coalesce(octet_length({self.selected(column)}), 0)"


_DIALECTS = ("sqlite", "postgresql", "postgres", "mysql", "mariadb")


def dialect_of(uri: str) -> Dialect:
    """The dialect of a URI such as ``postgresql://...``."""
    scheme = uri.split(":", 1)[0].split("+")[0].lower() if isinstance(uri, str) else ""
    if scheme not in _DIALECTS:
        raise ConfigError(
            f"uri={redact(str(uri))!r} is not a supported database; it must start with one of "
            + ", ".join(f"{name}://" for name in _DIALECTS)
        )
    if scheme in ("mysql", "mariadb"):
        from semistream.master.sql_mysql import MySql

        return MySql(uri)
    return Sqlite(uri) if scheme == "sqlite" else PostgreSql(uri)
