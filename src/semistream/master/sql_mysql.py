"""The dialect of MySQL and MariaDB; see :mod:`semistream.master.sql_dialects`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa

from semistream.errors import ConfigError
from semistream.master.sql_dialects import Column, Dialect
from semistream.master.sql_redact import redact


class MySql(Dialect):
    """MySQL and MariaDB, through PyMySQL."""

    quote_char = "`"
    floor_divide = "DIV"
    _KINDS: ClassVar[dict[str, pa.DataType]] = {
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "mediumint": pa.int32(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "date": pa.date32(),
        "datetime": pa.timestamp("us"),
        "timestamp": pa.timestamp("us"),
        **dict.fromkeys(("binary", "varbinary", "blob", "tinyblob"), pa.binary()),
        **dict.fromkeys(("mediumblob", "longblob"), pa.binary()),
    }
    _UNSIGNED: ClassVar[dict[pa.DataType, pa.DataType]] = {
        pa.int8(): pa.uint8(),
        pa.int16(): pa.uint16(),
        pa.int32(): pa.uint32(),
        pa.int64(): pa.uint64(),
    }

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        try:
            import pymysql
        except ImportError as error:
            raise ConfigError(
                "MySQL and MariaDB need PyMySQL; pip install 'semistream[mysql]'"
            ) from error
        self.errors = (pymysql.Error,)

    def connect(self) -> Any:
        import pymysql

        parts = urlsplit(self.uri)
        options = dict(parse_qsl(parts.query))
        try:
            port = parts.port or 3306
        except ValueError:
            raise ConfigError(
                f"uri={redact(self.uri)!r}: its port is not a number; in a user name or password, "
                "write / as %2F, # as %23, ? as %3F and @ as %40"
            ) from None
        return pymysql.connect(
            host=parts.hostname or "localhost",
            port=port,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            database=unquote(parts.path.lstrip("/")) or None,
            unix_socket=options.get("unix_socket"),
            charset="utf8mb4",
            autocommit=True,
        )

    def columns(self, connection: Any, table: Sequence[str]) -> list[Column]:
        schema = "%s" if len(table) > 1 else "database()"
        sql = (
            "SELECT column_name, data_type, column_type, numeric_precision, numeric_scale "
            f"FROM information_schema.columns WHERE table_schema = {schema} "
            "AND table_name = %s ORDER BY ordinal_position"
        )
        return [
            Column(row[0], self._kind(*row[1:]), row[1])
            for row in self.rows(connection, sql, list(table[-2:]))
        ]

    def _kind(self, kind: str, full: str, precision: Any, scale: Any) -> pa.DataType:
        if kind == "decimal" and int(precision) <= 38:
            return pa.decimal128(int(precision), int(scale))
        found = self._KINDS.get(kind, pa.string())
        return self._UNSIGNED.get(found, found) if "unsigned" in full else found

    def selected(self, column: Column) -> str:
        name = self.quote(column.name)
        plain = column.declared in self._KINDS or column.declared == "decimal"
        return name if plain else f"CONVERT({name} USING utf8mb4)"

    def stream_cursor(self, connection: Any) -> Any:
        from pymysql.cursors import SSCursor

        return connection.cursor(SSCursor)  # the usual one reads all rows into memory

    def as_integer(self, expression: str) -> str:
        return f"CAST({expression} AS SIGNED)"

    def as_text(self, column: Column) -> str:
        return f"CONVERT({self.quote(column.name)} USING utf8mb4)"

    def concatenated(self, texts: Sequence[str], separator: int) -> str:
        return f"CONCAT_WS(CHAR({separator}), {', '.join(texts)})"

    def md5_number(self, text: str) -> str:
        return f"CAST(CONV(SUBSTR(MD5({text}), 1, 7), 16, 10) AS SIGNED)"

    def ordered(self, column: Column) -> str:
        return self._bytes(self.quote(column.name), column)

    def placeholder(self, number: int, column: Column) -> str:
        return self._bytes("%s", column)

    def _bytes(self, expression: str, column: Column) -> str:
        if not pa.types.is_string(column.type):
            return expression
        return f"CAST(CONVERT({expression} USING utf8mb4) AS BINARY)"
