"""LMDB, the fastest embedded store for point reads on PyPI, behind an LRU of packed rows.

Its own memory is the page cache: it maps its file, so it has no other.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from lab.rivals.contract import Rival
from lab.rivals.data import RivalData
from lab.rivals.lookups import Lru


class Lmdb(Rival):
    """The whole budget is the LRU's."""

    name = "LMDB + LRU"
    packages = ("lmdb",)
    variants = ("one by one", "in batches")

    @classmethod
    def store(cls, variant: str, data: RivalData) -> Path:
        return data.lmdb

    @classmethod
    def build(cls, variant: str, data: RivalData, path: Path) -> None:
        data.write_lmdb(path)

    def open(self) -> None:
        import lmdb

        self._env = lmdb.open(str(self.data.lmdb), readonly=True, lock=False, readahead=False)
        self._txn = self._env.begin()
        self._cursor = self._txn.cursor()
        self.lru = Lru(self.grant.budget, self.data.rows, self._txn.get, self._many)
        one_by_one = self.variant == "one by one"
        self._join = self.lru.one_by_one if one_by_one else self.lru.in_batches

    def _many(self, keys: list[bytes]) -> list[bytes]:
        return [value for _, value in self._cursor.getmulti(keys)]

    def rows(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        yield self._join(batch)

    @property
    def warm(self) -> bool:
        return self.lru.full

    def facts(self) -> dict[str, Any]:
        return self.lru.facts()

    def close(self) -> None:
        self._cursor.close()
        self._txn.abort()
        self._env.close()
