"""Sources of truth for tests: the same changes made to Parquet files, Delta tables, databases."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

import semistream as ss

Row = tuple[Any, ...]
Rows = dict[Any, Row]
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64())])


class World(Protocol):
    """``change`` gets the rows to write, by key, and None for a deleted one."""

    source: Any

    def change(self, rows: dict[Any, Row | None]) -> None: ...


def table_of(rows: Rows, schema: pa.Schema = SCHEMA) -> pa.Table:
    columns = list(zip(*rows.values(), strict=True)) or [()] * len(schema)
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def rows_of(table: ss.MasterTable) -> Rows:
    data = table.to_table().to_pydict()
    rows = list(zip(*data.values(), strict=True))
    places = [table.schema.names.index(name) for name in table.key]
    keys = [tuple(row[i] for i in places) if len(places) > 1 else row[places[0]] for row in rows]
    return dict(zip(keys, rows, strict=True))


class ParquetWorld:
    """Rows are in one of four files, by the hash of their key; changed files are written again."""

    def __init__(self, folder: Path, rows: Rows, schema: pa.Schema = SCHEMA) -> None:
        self._folder = folder / "parquet"
        self._folder.mkdir()
        self._schema = schema
        self._files: list[Rows] = [{} for _ in range(4)]
        self._writes = 0
        self.source = ss.ParquetSource(self._folder)
        self.change(dict(rows))

    def change(self, rows: dict[Any, Row | None]) -> None:
        touched = set()
        for key, row in rows.items():
            number = hash(key) % len(self._files)
            touched.add(number)
            self._files[number].pop(key, None)
            if row is not None:
                self._files[number][key] = row
        for number in touched:
            for old in self._folder.glob(f"part-{number}-*.parquet"):
                old.unlink()
            self._writes += 1
            file = self._folder / f"part-{number}-{self._writes}.parquet"
            pq.write_table(table_of(self._files[number], self._schema), file)


class DeltaWorld:
    def __init__(
        self, folder: Path, rows: Rows, schema: pa.Schema = SCHEMA, feed: bool = True
    ) -> None:
        from deltalake import write_deltalake

        self.path = folder / "delta"
        self._schema = schema
        settings = {"delta.enableChangeDataFeed": "true"} if feed else {}
        write_deltalake(self.path, table_of(rows, schema), configuration=settings)
        self.source = ss.DeltaSource(self.path)

    def change(self, rows: dict[Any, Row | None]) -> None:
        from deltalake import DeltaTable

        gone = [key for key, row in rows.items() if row is None]
        written = {key: row for key, row in rows.items() if row is not None}
        key = self._schema.names[0]
        if gone:
            DeltaTable(self.path).delete(f"{key} in ({', '.join(map(repr, gone))})")
        if written:
            merge = DeltaTable(self.path).merge(
                table_of(written, self._schema), f"t.{key} = s.{key}", "s", "t"
            )
            merge.when_matched_update_all().when_not_matched_insert_all().execute()


class SqliteWorld:
    def __init__(self, folder: Path, rows: Rows) -> None:
        self.file = folder / "shop.db"
        self._database = sqlite3.connect(self.file)
        self._database.execute(
            "create table product (id integer primary key, name text, price real, v integer)"
        )
        self._last = 0
        self.source = ss.SqlSource(f"sqlite:///{self.file}", "product", version="v")
        self.change(dict(rows))

    def change(self, rows: dict[Any, Row | None]) -> None:
        for key, row in rows.items():
            if row is None:
                self._database.execute("delete from product where id = ?", (key,))
            else:
                self._last += 1
                self._database.execute(
                    "insert or replace into product values (?, ?, ?, ?)", (*row, self._last)
                )
        self._database.commit()

    def close(self) -> None:
        self._database.close()
