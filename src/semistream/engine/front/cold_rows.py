"""How much the coldest rows of a front stage are used, from a sample of its slots."""

from __future__ import annotations

from typing import Any

import numpy as np

_SAMPLE = 512  # slots whose hits are counted


class ColdRows:
    """Counts the hits of every n-th slot over a round: a visit of as many pages as the table has.

    ``coldest`` is the average of the least used quarter in the last round; None before its end.
    """

    def __init__(self, capacity: int) -> None:
        self._stride = max(1, capacity // _SAMPLE)
        self._hits = np.zeros(-(-capacity // self._stride), np.int64)
        self._passed = 0.0  # of the round
        self.coldest: float | None = None

    def note(self, slots: Any) -> None:
        """These slots were hit."""
        sampled = slots[slots % self._stride == 0] // self._stride
        self._hits += np.bincount(sampled, minlength=len(self._hits))

    def age(self, share: float) -> None:
        """``share`` of the table was visited since the last call."""
        self._passed += share
        if self._passed >= 1.0 and len(self._hits):
            quarter = max(1, len(self._hits) // 4)
            self.coldest = float(np.sort(self._hits)[:quarter].mean() / self._passed)
            self._hits[:] = 0
            self._passed = 0.0
