"""Which parked tuples have their key in a new version of the table."""

from __future__ import annotations

from typing import Any

import numpy as np

from semistream.engine.rows.layout import Rows
from semistream.keys import Codes
from semistream.master.changed import contains


def arrived_codes(source: Any, since: int) -> Codes | None:
    """Codes that were added or changed after version ``since``, sorted; None: unknown."""
    changed = source.changed_codes(since)
    if changed is None:
        return None
    codes = np.unique(np.concatenate([np.zeros(0, np.int64), *changed]))
    deleted = source.index.is_deleted(codes) if source.index is not None else None
    return codes if deleted is None else codes[~deleted]


def rows_with(column: Codes, codes: Codes | None) -> Rows:
    """Rows of a sorted code column that have one of these codes, which are sorted; None: all.

    >>> rows_with(np.array([1, 3, 3, 8]), np.array([3, 5])).tolist()
    [1, 2]
    """
    if codes is None:
        return np.arange(len(column))
    if len(codes) >= len(column):
        return np.flatnonzero(contains(codes, column))
    low, high = np.searchsorted(column, codes), np.searchsorted(column, codes, "right")
    hit = low < high
    found = [np.arange(a, b) for a, b in zip(low[hit], high[hit], strict=True)]
    return np.concatenate([np.zeros(0, np.int64), *found])
