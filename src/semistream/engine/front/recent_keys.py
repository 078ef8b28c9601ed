"""CINLJ's temporary buffer (003, section 3.3): how often each key was seen recently."""

from __future__ import annotations

from typing import Any

import numpy as np

from semistream import kernels
from semistream.engine.buffer_pool import BufferPool
from semistream.engine.context import Context
from semistream.engine.front.contract import MOST_ROWS_PER_KEY, FrontStage
from semistream.engine.front.learner import report
from semistream.engine.intake import Slice
from semistream.engine.rows.layout import Rows, ranges
from semistream.keys import Codes

KEY_BYTES = 12
_LOAD = 2  # hash table slots per key


class RecentKeys:
    """Counts the keys of up to ``span`` recent tuples; then it is cleared."""

    def __init__(self, span: int) -> None:
        self.span = span
        self._table = np.empty(_LOAD * span, np.int64)
        self._seen = np.zeros(_LOAD * span, np.int32)
        self._age = np.zeros(1, np.int64)
        self._hot: list[tuple[Any, Codes, Any]] = []  # frames, codes, counts

    @staticmethod
    def bytes_of(span: int) -> int:
        return _LOAD * span * KEY_BYTES

    @property
    def nbytes(self) -> int:
        return self.bytes_of(self.span)

    def note(self, part: Slice, tuples: Rows, frames: Any, matched: Any, threshold: int) -> None:
        """Count these tuples' keys, and queue those seen at least ``threshold`` times.

        They are offered after the wave, because its hits still point into the front stage.
        """
        seen = kernels.recorder.count_recent(
            part.codes, tuples, self._table, self._seen, self._age, self.span
        )
        hot = np.flatnonzero(matched & (seen >= threshold))[::-1]  # the newest first
        if len(hot):
            codes, last = np.unique(part.codes[tuples[hot]], return_index=True)
            self._hot.append((frames[hot[last]], codes, seen[hot[last]]))

    def offer(self, context: Context, front: FrontStage, pool: BufferPool) -> None:
        """Offer the queued keys of the wave, with the rows that were just fetched."""
        hot, self._hot = self._hot, []
        for frames, codes, seen in hot:
            low, high = pool.find(frames, codes)
            few = (high - low <= MOST_ROWS_PER_KEY) & (high > low)
            frames, codes, seen, low = frames[few], codes[few], seen[few], low[few]
            counts = high[few] - low
            if len(codes):
                pages = np.repeat(frames, counts)
                columns = pool.frames.cached.take(pages, ranges(low, counts))
                rows = np.arange(len(pages))
                report(context, front, *front.offer(codes, counts, seen, columns, rows))
