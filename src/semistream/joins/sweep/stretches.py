"""Stretches: adjacent pages that share a list of waiting tuples."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.master.delta_codes import DeltaTable, table_of
from semistream.master.index import PageIndex

_BYTES = 8 + 8 + 8  # first page, first code; newest chunk and how full it is, in the window
_NO_STRETCHES = np.zeros(0, np.int32)


def first_pages(continues: Any, pages: int, boundaries: Sequence[int] = ()) -> Any:
    """The first page of every stretch, and the end of the last one. No key crosses the end of
    a stretch; a stretch has at most ``pages`` pages, unless a single key spans more. No stretch
    crosses a boundary, where a delta begins."""
    count = len(continues)
    cuts = sorted({0, *(bound for bound in boundaries if 0 < bound < count), max(1, count)})
    parts = [low + _first_pages(continues[low:high], pages) for low, high in pairwise(cuts)]
    return np.r_[(*parts, count)]  # an empty master has one empty stretch


def _first_pages(continues: Any, pages: int) -> Any:
    """The same within one segment."""
    if not continues.any():
        return np.arange(0, max(1, len(continues)), pages)
    ends = np.flatnonzero(~continues) + 1  # of pages whose last key does not continue
    bounds, before = [0], 0
    for end in ends.tolist():
        if before > bounds[-1] and end - bounds[-1] > pages:
            bounds.append(before)
        before = end
    return np.array(bounds, np.int64)


def stretches_bytes(count: int) -> int:
    """Bytes of ``count`` stretches, including the window's bytes per stretch."""
    return _BYTES * count + 8


class Stretches:
    """The stretches of one version of a table."""

    def __init__(self, index: PageIndex, pages: int) -> None:
        self.pages = pages  # of a stretch
        self.first_page = first_pages(index.continues, pages, index.boundaries)
        self.index = index
        self.by_code = index.by_code
        self.base = int(np.searchsorted(self.first_page[:-1], index.base_pages))  # their number
        # The number of those of this version; the others are of deltas that were folded since.
        self.own = max(1, int(np.searchsorted(self.first_page[:-1], index.own_pages)))
        self.firsts = np.zeros(len(self), np.int64)  # codes at which stretches begin
        if self.by_code and len(index.firsts):
            self.firsts = index.firsts[self.first_page[:-1]].astype(np.int64)
        self._deltas = self._table_of_deltas()
        # A visit stays in one segment: these are the stretches after the last of each.
        ends = np.searchsorted(self.first_page, [*index.boundaries, len(index.continues)])
        self.segment_ends: list[int] = np.unique(np.maximum(ends, 1)).tolist()

    def __len__(self) -> int:
        return len(self.first_page) - 1

    def shared_with(self, other: Stretches, pages: int) -> int:
        """How many of the first stretches are those of another version, which has the same first
        ``pages`` pages. A stretch ends where a delta begins."""
        count = int(np.searchsorted(self.first_page, pages))
        own, others = (one.first_page[: count + 1] for one in (self, other))
        return count if self.by_code and other.by_code and np.array_equal(own, others) else 0

    @property
    def folded(self) -> list[int]:
        """The first stretch of each delta that was folded."""
        ends = self.segment_ends
        return [self.own, *(end for end in ends if end > self.own)][:-1]

    def moved_to(self, other: Stretches, kept: int) -> int:
        """How many stretches of this version, after the first ``kept``, another one has at its
        end."""
        count = len(other) - other.own
        own, others = self.first_page[kept : kept + count + 1], other.first_page[other.own :]
        return count if np.array_equal(own - own[0], others - others[0]) else 0

    def pages_from(self, stretch: int) -> tuple[int, int]:
        """The pages of the base, or of the delta, that has this stretch: first, and end."""
        bounds = [0, *self.index.boundaries, len(self.index.continues)]
        delta = bisect_right(bounds, int(self.first_page[stretch]), hi=len(bounds) - 1)
        return bounds[delta - 1], bounds[delta]

    @property
    def deltas(self) -> DeltaTable:
        """For kernels: the changed codes and the stretches of each delta."""
        if self._lists != [delta.codes.lists for delta in self.index.deltas]:  # another run merged
            self._deltas = self._table_of_deltas()
        return self._deltas

    def extend_filters(self) -> bool:
        """Make a part of the filters in front of changed codes; returns whether any is missing."""
        if self._is_settled or not self.index.extend_filters():
            return False
        self._deltas = self._table_of_deltas()
        return True

    def merge_lists(self, room: int) -> None:
        """Merge a part of the lists of changed codes, which may take ``room`` bytes."""
        if not self._is_settled and self.index.merge_lists(room):
            self._deltas = self._table_of_deltas()

    def _table_of_deltas(self) -> DeltaTable:
        deltas, first_page = self.index.deltas, self.first_page[:-1]
        # The table has addresses: these keep the memory.
        self._lists = [delta.codes.lists for delta in deltas]
        self._is_settled = all(len(s) == 1 and s[0].is_filtered for s in self._lists)
        places = np.searchsorted(first_page, [(delta.first, delta.end) for delta in deltas])
        return table_of(
            [
                [one.row(*place) for one in lists]
                for lists, place in zip(self._lists, places.tolist(), strict=True)
            ]
        )

    @property
    def nbytes(self) -> int:
        return stretches_bytes(len(self))

    def of(self, keys: Callable[[], Sequence[pa.Array]]) -> Any:
        """The stretch of each of these tuples; empty if it follows from the code alone."""
        if not self.first_page[-1] or self.by_code:
            return _NO_STRETCHES
        low, _ = self.index.locate(keys())
        return (np.searchsorted(self.first_page[:-1], low, side="right") - 1).astype(np.int32)
