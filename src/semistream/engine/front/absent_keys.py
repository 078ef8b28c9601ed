"""A cache of keys that were recently found to be absent from the master table."""

from __future__ import annotations

import numpy as np

from semistream import kernels
from semistream.engine.rows.layout import Rows
from semistream.keys import Codes, Mask

_WAYS = 8  # keys per set; a full set overwrites one


class AbsentKeys:
    """A bounded, set-associative cache of absent keys. Codes must be exact."""

    def __init__(self, nbytes: int) -> None:
        self._table = np.empty(nbytes // 9 // _WAYS * _WAYS, np.int64)
        self._used = np.zeros(len(self._table), np.bool_)
        self._empty = True

    @staticmethod
    def bytes_of(nbytes: int) -> int:
        """The bytes that a cache of at most ``nbytes`` uses."""
        return nbytes // 9 // _WAYS * _WAYS * 9

    @property
    def nbytes(self) -> int:
        return int(self._table.nbytes + self._used.nbytes)

    def add(self, codes: Codes) -> None:
        if len(codes) and len(self._table):
            self._empty = False
            kernels.absent_keys.insert(codes, self._table, self._used)

    def lookup(self, codes: Codes, rows: Rows) -> Mask | None:
        """Mask of the tuples ``codes[rows]`` whose key is known to be absent; None: no tuple."""
        if self._empty:
            return None
        return kernels.absent_keys.contains(codes, rows, self._table, self._used)  # type: ignore[no-any-return]

    def forget(self) -> None:
        """Empty the cache: the master has changed."""
        self._used[:] = False
        self._empty = True
