"""Keys that a version of the master table does not have, as far as was found out lately."""

from __future__ import annotations

import numpy as np

from semistream import kernels
from semistream.engine.rows.layout import Rows
from semistream.keys import Codes, Mask

_WAYS = 8  # keys per set; a full set overwrites one


class AbsentKeys:
    """A bounded, set-associative memory of absent keys. Codes must be exact."""

    def __init__(self, nbytes: int) -> None:
        self._table = np.empty(nbytes // 9 // _WAYS * _WAYS, np.int64)
        self._used = np.zeros(len(self._table), np.bool_)
        self._empty = True

    @staticmethod
    def bytes_of(nbytes: int) -> int:
        """The bytes of it that will be used."""
        return nbytes // 9 // _WAYS * _WAYS * 9

    @property
    def nbytes(self) -> int:
        return int(self._table.nbytes + self._used.nbytes)

    def add(self, codes: Codes) -> None:
        if len(codes) and len(self._table):
            self._empty = False
            kernels.absent_keys.remember(codes, self._table, self._used)

    def among(self, codes: Codes, rows: Rows) -> Mask | None:
        """Which of the tuples ``codes[rows]`` are known to match nothing; None for none."""
        if self._empty:
            return None
        return kernels.absent_keys.remembered(codes, rows, self._table, self._used)  # type: ignore[no-any-return]

    def forget(self) -> None:
        """The master has changed: any key may be there now."""
        self._used[:] = False
        self._empty = True
