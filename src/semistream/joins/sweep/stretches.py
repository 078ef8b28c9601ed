"""Stretches: neighbouring pages that are read with one request, and waited for together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.engine.rows.layout import Rows
from semistream.master.index import PageIndex

_BYTES = 8 + 8 + 8  # first page, first code; newest chunk and how full it is, in the window
_NO_STRETCHES = np.zeros(0, np.int32)


def first_pages(continues: Any, pages: int) -> Any:
    """The first page of every stretch, and the end of the last one. No key crosses a stretch's
    end; a stretch has at most ``pages`` pages, unless a single key runs through more."""
    ends = np.flatnonzero(~continues) + 1  # of pages whose last key goes no further
    bounds, before = [0], 0
    for end in ends.tolist():
        if end - bounds[-1] > pages and before > bounds[-1]:
            bounds.append(before)
        before = end
    return np.array([*bounds, len(continues)], np.int64)  # an empty master: one, of nothing


def stretches_bytes(count: int) -> int:
    """Bytes of so many stretches, with what a window keeps for each."""
    return _BYTES * count + 8


class Stretches:
    """The stretches of one version of a table."""

    def __init__(self, index: PageIndex, pages: int) -> None:
        self.first_page = first_pages(index.continues, pages)
        self.index = index
        self.exact = index.codec.exact
        self.firsts = np.zeros(1, np.int64)
        if self.exact and len(index.continues):
            self.firsts = index.firsts[self.first_page[:-1]].astype(np.int64)

    def __len__(self) -> int:
        return len(self.first_page) - 1

    @property
    def nbytes(self) -> int:
        return stretches_bytes(len(self))

    def of(self, rows: Rows, columns: Sequence[pa.Array]) -> Any:
        """The stretch of each of these tuples, where codes do not determine it."""
        if self.exact or not self.first_page[-1]:
            return _NO_STRETCHES
        taken = pa.array(rows)
        low, _ = self.index.locate([column.take(taken) for column in columns])
        return (np.searchsorted(self.first_page[:-1], low, side="right") - 1).astype(np.int32)
