"""SQLite from the standard library: a table by its integer primary key, rows one by one or joined
with the batch's keys as a JSON array. The budget is SQLite's own page cache.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lab.rivals.contract import Rival
from lab.rivals.data import RivalData
from lab.rivals.lookups import joined, put_to_sales

_ONE = "SELECT price, supplier_id, category, description FROM products WHERE product_id = ?"
_MANY = (
    "SELECT product_id, price, supplier_id, category, description "
    "FROM json_each(?) JOIN products ON product_id = value"
)
_TYPES = (pa.float64(), pa.int32(), pa.int32(), pa.string())


class Sqlite(Rival):
    name = "SQLite"
    packages = ("sqlite3",)
    variants = ("one by one", "in batches")

    @classmethod
    def store(cls, variant: str, data: RivalData) -> Path:
        return data.folder / "sqlite"

    @classmethod
    def build(cls, variant: str, data: RivalData, path: Path) -> None:
        path.mkdir(parents=True)
        with sqlite3.connect(path / "products.db") as connection:
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute(
                "CREATE TABLE products (product_id INTEGER PRIMARY KEY, price REAL, "
                "supplier_id INTEGER, category INTEGER, description TEXT)"
            )
            for batch in data.products(50_000):
                connection.executemany("INSERT INTO products VALUES (?, ?, ?, ?, ?)", _rows(batch))
        connection.close()

    @classmethod
    def largest_batch(cls, variant: str) -> int | None:
        return 10_000 if variant == "one by one" else None

    def open(self) -> None:
        file = self.store(self.variant, self.data) / "products.db"
        self._connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
        self._connection.execute(f"PRAGMA cache_size = -{max(1, self.grant.budget // 1024)}")
        self._connection.execute("PRAGMA mmap_size = 0")
        self._cursor = self._connection.cursor()

    def rows(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        keys = batch["product_id"].to_numpy()
        if self.variant == "one by one":
            ask = self._cursor.execute
            found = [ask(_ONE, (key,)).fetchone() for key in keys.tolist()]
            yield joined(batch, _columns(found, _TYPES))
        else:
            wanted = json.dumps(np.unique(keys).tolist())
            found = self._cursor.execute(_MANY, (wanted,)).fetchall()
            arrays = _columns(found, (pa.int64(), *_TYPES))
            names = ["product_id", "price", "supplier_id", "category", "description"]
            yield put_to_sales(batch, pa.table(arrays, names=names))

    def close(self) -> None:
        self._connection.close()


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _columns(rows: list[Any], types: tuple[pa.DataType, ...]) -> list[pa.Array]:
    return [
        pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), types, strict=True)
    ]
