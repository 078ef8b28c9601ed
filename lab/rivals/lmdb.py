"""LMDB, the fastest embedded store for point reads on PyPI, behind an LRU of packed rows.

It maps its file, so its only cache is the page cache.
"""

from __future__ import annotations

from pathlib import Path

from lab.rivals.data import RivalData
from lab.rivals.lookups import BehindLru, Lru


class Lmdb(BehindLru):
    """The whole budget goes to the LRU."""

    name = "LMDB + LRU"
    packages = ("lmdb",)

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

    def _many(self, keys: list[bytes]) -> list[bytes]:
        return [value for _, value in self._cursor.getmulti(keys)]

    def close(self) -> None:
        self._cursor.close()
        self._txn.abort()
        self._env.close()
