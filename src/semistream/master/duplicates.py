"""Finds repeated keys in rows that come in the order of their codes.

Rows with equal codes are adjacent. Where codes are hashes, such a group may contain several keys,
in any order; then the keys are compared. A group may continue in the next batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from semistream.keys import Mask
from semistream.master.codes import KeyCodes


class RepeatedKeys:
    """Pass batches in order; :meth:`find` marks the rows whose key occurred before."""

    def __init__(self, codes: KeyCodes) -> None:
        self._codes = codes
        self._last_code: int | None = None
        self._last_row: pa.RecordBatch | None = None  # the only key of the last code,
        self._last_keys: set[Any] = set()  # or the keys of its rows

    def find(self, batch: pa.RecordBatch) -> Mask | None:
        """The rows that repeat a key; None if there are none."""
        codes = self._codes.stored(batch)
        if not len(codes):
            return None
        again = np.empty(len(codes), np.bool_)
        again[0] = self._last_code is not None and codes[0] == self._last_code
        np.equal(codes[1:], codes[:-1], out=again[1:])
        self._last_code = int(codes[-1])
        if not self._codes.codec.exact:
            again = self._compare(batch.select(self._codes.key), again)
        return again if again.any() else None

    def _compare(self, keys: pa.RecordBatch, again: Mask) -> Mask:
        """Of the rows that repeat a code, those that repeat a key."""
        repeated = np.zeros(len(again), np.bool_)
        seen = self._last_keys
        if again.any():
            if self._last_row is not None:
                seen = set(self._spelled(self._last_row))
            in_group = again.copy()
            in_group[:-1] |= again[1:]
            rows = np.flatnonzero(in_group)
            spelled = self._spelled(keys.take(pa.array(rows)))
            for row, key in zip(rows.tolist(), spelled, strict=True):
                if not again[row]:
                    seen = set()
                repeated[row] = key in seen
                seen.add(key)
        last = pa.array([keys.num_rows - 1])
        self._last_row = None if again[-1] else keys.take(last)
        self._last_keys = seen if again[-1] else set()
        return repeated

    def _spelled(self, keys: pa.RecordBatch) -> Any:
        return self._codes.codec.sortable(keys.columns)
