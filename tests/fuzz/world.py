"""A master table on disk with a few versions, and the rows of each.

Building a table takes longer than joining with it, so many cases share a world. They do not modify
it: a case whose table changes uses a copy.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

import naive
import semistream as ss
from fuzz.shapes import Row, Shape, table_of


class Rows:
    """The expected rows of a version: the model of upsert, delete and rebuild."""

    def __init__(self, shape: Shape, rows: Iterable[Row]) -> None:
        self._shape = shape
        self.rows = list(rows)
        self._by_key: dict[tuple[str, ...], naive.RowsByKey] = {}

    def without(self, keys: set[Row]) -> Rows:
        width = len(self._shape.kinds)
        return Rows(self._shape, [row for row in self.rows if row[:width] not in keys])

    def upserted(self, rows: list[Row]) -> Rows:
        width = len(self._shape.kinds)
        left = self.without({row[:width] for row in rows})
        return Rows(self._shape, left.rows + rows)

    @property
    def table(self) -> pa.Table:
        return table_of(self.rows, self._shape.schema)

    def by_key(self, columns: Iterable[str]) -> naive.RowsByKey:
        """For the oracle; computed once for all cases."""
        chosen = tuple(columns)
        if chosen not in self._by_key:
            self._by_key[chosen] = naive.rows_by_key(self.table, self._shape.key, chosen)
        return self._by_key[chosen]


class Table:
    """A folder with a master table, changed together with its model."""

    def __init__(self, path: Path, shape: Shape, numbers: Iterator[int]) -> None:
        self.path = path
        self.shape = shape
        self.versions: dict[int, Rows] = {}
        self._numbers = numbers
        self._newest: Any = None

    @property
    def newest(self) -> int:
        return max(self.versions)

    def build(self, rng: Random, most: int, page_bytes: int) -> None:
        rows = Rows(self.shape, self.shape.rows(rng, most, self._numbers))
        self._newest = ss.MasterTable.build(
            rows.table,
            self.path,
            key=self.shape.key,
            unique=self.shape.unique,
            page_bytes=page_bytes,
            overwrite=True,
        )
        self.versions[self._newest.version] = rows

    def change(self, rng: Random, page_bytes: int) -> str:
        """Publish one more version. Returns a description of the change."""
        how = rng.choice(("upsert", "upsert", "upsert", "delete", "delete", "compact", "build"))
        before = self.versions[self.newest]
        table = self._newest or ss.MasterTable.open(self.path)
        if how == "build":
            self.build(rng, 100, page_bytes)
            return how
        if how == "upsert":
            rows = self.shape.rows(rng, rng.choice((1, 5, 40)), self._numbers)
            table, after = table.upsert(table_of(rows, self.shape.schema)), before.upserted(rows)
        elif how == "delete":
            most = min(len(self.shape.domain), rng.choice((1, 5, 40)))
            keys = rng.sample(self.shape.domain, most)
            schema = pa.schema([self.shape.schema.field(name) for name in self.shape.key])
            table, after = table.delete(table_of(keys, schema)), before.without(set(keys))
        else:
            table, after = table.compact(), before
        self._newest = table
        self.versions[table.version] = after
        return how

    def copied(self, path: Path) -> Table:
        """A copy in another folder, by hard links, because files never change."""
        shutil.copytree(self.path, path, copy_function=os.link)
        other = Table(path, self.shape, itertools.count(1_000_000))
        other.versions = dict(self.versions)
        return other


class World:
    """One table, drawn from its seed alone."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed = seed
        self.folder = folder
        rng = Random(seed)
        self.shape = Shape.draw(rng)
        self.page_bytes = rng.choice((256, 512, 1024, 1024, 2048, 4096))
        self.table = Table(folder / "table", self.shape, itertools.count())
        self.table.build(rng, rng.choice((0, 3, 30, 80, 200)), self.page_bytes)
        self.history = [self.table.change(rng, self.page_bytes) for _ in range(rng.randrange(6))]
        self._opened: dict[tuple[int, bool | str], Any] = {}
        self._copies = itertools.count()

    def open(self, version: int | None, mapped: bool | str) -> Any:
        """A version of the table, pinned; or the newest, for a run that follows."""
        if version is None:
            return ss.MasterTable.open(self.table.path, mapped=mapped)
        if (version, mapped) not in self._opened:
            opened = ss.MasterTable.open(self.table.path, version, mapped=mapped)
            self._opened[version, mapped] = opened
        return self._opened[version, mapped]

    def scratch(self) -> Path:
        """The path of a new folder."""
        return self.folder / f"scratch-{next(self._copies)}"

    def copy(self) -> Table:
        return self.table.copied(self.folder / f"copy-{next(self._copies)}")

    def __str__(self) -> str:
        rows = {version: len(rows.rows) for version, rows in self.table.versions.items()}
        return (
            f"key {', '.join(self.shape.kinds)}; {'unique' if self.shape.unique else 'repeated'}; "
            f"columns {[str(c.kind) for c in self.shape.payloads]}; page_bytes={self.page_bytes}; "
            f"rows by version {rows}; changes {self.history}"
        )
