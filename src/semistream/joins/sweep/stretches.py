"""Stretches: adjacent pages that share a list of waiting tuples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.master.index import PageIndex

_BYTES = 8 + 8 + 8  # first page, first code; newest chunk and how full it is, in the window
_NO_STRETCHES = np.zeros(0, np.int32)


def first_pages(continues: Any, pages: int, boundaries: Sequence[int] = ()) -> Any:
    """The first page of every stretch, and the end of the last one. No key crosses the end of
    a stretch; a stretch has at most ``pages`` pages, unless a single key spans more. No stretch
    crosses a boundary, where a delta begins."""
    count = len(continues)
    if not boundaries and not continues.any():
        return np.r_[np.arange(0, max(1, count), pages), count]
    ends = np.flatnonzero(~continues) + 1  # of pages whose last key does not continue
    inner = {bound for bound in boundaries if 0 < bound < len(continues)}
    bounds, before = [0], 0
    for end in ends.tolist():
        if before > bounds[-1] and (end - bounds[-1] > pages or before in inner):
            bounds.append(before)
        before = end
    return np.array([*bounds, count], np.int64)  # an empty master has one empty stretch


def stretches_bytes(count: int) -> int:
    """Bytes of ``count`` stretches, including the window's bytes per stretch."""
    return _BYTES * count + 8


class Stretches:
    """The stretches of one version of a table."""

    def __init__(self, index: PageIndex, pages: int) -> None:
        self.first_page = first_pages(index.continues, pages, index.boundaries)
        self.index = index
        self.by_code = index.by_code
        self.firsts = np.zeros(1, np.int64)  # codes at which the stretches of the base begin
        if self.by_code and index.base_pages:
            base = np.searchsorted(self.first_page[:-1], index.base_pages)
            self.firsts = index.firsts[self.first_page[:base]].astype(np.int64)
        # Codes that are not where the base would have them, and the page of each in a delta.
        self.changed = index.changed, index.changed_low
        # A visit stays in one segment: these are the stretches after the last of each.
        ends = np.searchsorted(self.first_page, [*index.boundaries, len(index.continues)])
        self.segment_ends: list[int] = np.unique(np.maximum(ends, 1)).tolist()

    def __len__(self) -> int:
        return len(self.first_page) - 1

    @property
    def nbytes(self) -> int:
        return stretches_bytes(len(self))

    def of(self, keys: Callable[[], Sequence[pa.Array]]) -> Any:
        """The stretch of each of these tuples; empty if it follows from the code alone."""
        if not self.first_page[-1] or self.by_code:
            return _NO_STRETCHES
        low, _ = self.index.locate(keys())
        return (np.searchsorted(self.first_page[:-1], low, side="right") - 1).astype(np.int32)
