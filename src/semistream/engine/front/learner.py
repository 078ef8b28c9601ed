"""Selects rows of scanned pages to offer to the front stage."""

from __future__ import annotations

from typing import Any

import numpy as np

from semistream.engine.context import Context
from semistream.engine.disk_buffer import Scan
from semistream.engine.front.contract import MOST_ROWS_PER_KEY, FrontStage
from semistream.engine.rows.layout import Rows, ranges
from semistream.master.pages import PageSource


class Learner:
    """Offers rows that matched enough waiting tuples at once (003, algorithm 1, lines 19 to 22).

    A key with rows outside the buffer is skipped: the cache must hold all rows of a key or none.
    """

    def __init__(self, context: Context, source: PageSource) -> None:
        self._context = context
        self._source = source

    def learn(self, front: FrontStage, scan: Scan) -> None:
        """Offer hot rows of the buffer, after it was probed against every waiting tuple."""
        codes = scan.codes
        worth = front.worth(codes, scan.counts)
        hot: Rows = np.flatnonzero(worth >= front.threshold)
        if not len(hot):
            return
        if self._source.distinct:
            rows, sizes, first = hot, np.ones(len(hot), np.int64), hot
        else:
            rows, sizes, first = self.whole_keys(scan, hot)
        if not len(rows):
            return
        columns = scan.take(rows, self._context.binding.cached_columns)
        # Conditions match some rows of a key more often than others.
        best = np.maximum.reduceat(worth[rows], np.cumsum(sizes) - sizes)
        changed = front.offer(codes[first], sizes, best, columns, np.arange(len(rows)))
        report(self._context, front, *changed)

    def whole_keys(self, scan: Scan, hot: Rows) -> tuple[Rows, Any, Rows]:
        """(all rows of the hot keys that are entirely in the buffer, rows per key, first rows)."""
        codes, valid = scan.codes, scan.valid
        differs = codes[1:] != codes[:-1]
        if valid is not None:  # a hidden row may be beside the row of another segment that hides it
            differs = differs | (valid[1:] != valid[:-1])
        starts = np.flatnonzero(np.r_[True, differs])
        ends = np.r_[starts[1:], len(codes)]
        group = np.unique(np.searchsorted(starts, hot, side="right") - 1)
        cut_before, cut_after = cut_edges(self._source, scan)
        keep = ends[group] - starts[group] <= MOST_ROWS_PER_KEY
        if cut_before:
            keep &= group != 0
        if cut_after:
            keep &= group != len(starts) - 1
        group = group[keep]
        sizes = ends[group] - starts[group]
        return ranges(starts[group], sizes), sizes, starts[group]


def report(context: Context, front: FrontStage, admitted: int, evicted: int) -> None:
    if admitted or evicted:
        context.observer.front_stage_changed(admitted, evicted, front.count, front.threshold)


def cut_edges(source: PageSource, scan: Scan) -> tuple[bool, bool]:
    """Whether the buffer's first and last key have rows in a neighbouring page too."""
    assert source.index is not None
    continues = source.index.continues
    last = scan.first + scan.pages - 1
    return bool(scan.first > 0 and continues[scan.first - 1]), bool(continues[last])
