"""A set of row numbers of one file, one bit each."""

from __future__ import annotations

import numpy as np

from semistream.engine.rows.layout import Rows
from semistream.keys import Mask


class RowSet:
    """Numbers below ``size``.

    >>> rows = RowSet(20)
    >>> rows.add(np.array([3, 17]))
    >>> rows.mask(np.array([2, 3])).tolist(), len(rows)
    ([False, True], 2)
    >>> RowSet.from_text(20, rows.to_text()).numbers().tolist()
    [3, 17]
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._bits = np.zeros((size + 7) // 8, np.uint8)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        return int(self._bits.nbytes)

    def add(self, rows: Rows) -> None:
        """Rows that are not in the set yet, each once."""
        bits = np.left_shift(1, np.asarray(rows) & 7).astype(np.uint8)
        np.bitwise_or.at(self._bits, np.asarray(rows) >> 3, bits)
        self._count += len(rows)

    def mask(self, rows: Rows) -> Mask:
        """For each row, whether it is in the set."""
        return np.asarray((self._bits[rows >> 3] >> (rows & 7)) & 1, np.bool_)

    def numbers(self) -> Rows:
        return np.flatnonzero(self._unpacked())

    def others(self) -> Rows:
        """The rows that are not in the set."""
        return np.flatnonzero(~self._unpacked())

    def _unpacked(self) -> Mask:
        bits = np.unpackbits(self._bits, count=self._size, bitorder="little")
        return np.asarray(bits, np.bool_)

    def to_text(self) -> str:
        return self._bits.tobytes().hex()

    @classmethod
    def from_text(cls, size: int, text: str) -> RowSet:
        found = cls(size)
        found._bits[:] = np.frombuffer(bytes.fromhex(text), np.uint8)
        found._count = len(found.numbers())
        return found
