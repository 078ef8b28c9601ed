"""Stretches: adjacent pages that are read with one request and share a list of waiting tuples."""

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
    """The first page of every stretch, and the end of the last one. No key crosses the end of
    a stretch; a stretch has at most ``pages`` pages, unless a single key spans more."""
    ends = np.flatnonzero(~continues) + 1  # of pages whose last key does not continue
    bounds, before = [0], 0
    for end in ends.tolist():
        if end - bounds[-1] > pages and before > bounds[-1]:
            bounds.append(before)
        before = end
    return np.array([*bounds, len(continues)], np.int64)  # an empty master has one empty stretch


def stretches_bytes(count: int) -> int:
    """Bytes of ``count`` stretches, including the window's bytes per stretch."""
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
