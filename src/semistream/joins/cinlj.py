"""CINLJ (003: Naeem, Dobbie, Lutteroth, Weber, section 3.3): INLJ behind a front stage.

INLJ by itself does not see which keys are frequent, so a *temporary buffer* remembers the keys
of recent tuples for a while. A key that is seen ``threshold`` times within that span enters the
front stage together with the rows that were just fetched for it.

Nothing waits: a tuple is served in the push that brought it.

Differences from the paper
--------------------------
- Those of INLJ and of the front stage.
- Rows enter the front stage when the wave that fetched them is over.
- A key with rows in several pages, or with more rows than an output batch holds, is neither
  noted in the temporary buffer nor cached.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from semistream import kernels
from semistream.errors import ConfigError
from semistream.joins.front_stage import MOST_ROWS_PER_KEY, FrontStageOptions
from semistream.joins.inlj import Frame, IndexNestedLoopJoin, InljRun
from semistream.joins.intake import Slice
from semistream.joins.rows import Rows, ranges
from semistream.joins.run import Run
from semistream.keys import Codes
from semistream.master.pages import PageSource

_KEY_BYTES = 12


@dataclass(frozen=True, kw_only=True)
class CachedIndexNestedLoopJoin(FrontStageOptions, IndexNestedLoopJoin):
    """INLJ with a front stage.

    Parameters
    ----------
    span
        Tuples after which the temporary buffer is emptied; None: as many as a hundredth of the
        budget holds.
    """

    span: int | None = None

    name: ClassVar[str] = "cinlj"

    def __post_init__(self) -> None:
        FrontStageOptions.__post_init__(self)
        IndexNestedLoopJoin.__post_init__(self)
        if self.span is not None and self.span < 1:
            raise ConfigError(f"span={self.span!r}: give at least 1 tuple")

    @classmethod
    def _run_class(cls) -> type[Run]:
        return CinljRun


class CinljRun(InljRun):
    def _attach(self, source: PageSource) -> None:
        self._span = self.join.span or max(16, self._budget // 100 // (2 * _KEY_BYTES))
        super()._attach(source)
        self._recent = np.empty(2 * self._span, np.int64)
        self._seen = np.zeros(2 * self._span, np.int32)
        self._age = np.zeros(1, np.int64)

    def _recorder_bytes(self) -> int:
        return int(2 * self._span * _KEY_BYTES)

    def _admit(self) -> None:
        self._hot: list[tuple[int, Codes, Any]] = []
        super()._admit()
        for number, codes, seen in self._hot:
            self._cache(self._frames[number], codes, seen)

    def _remember(self, part: Slice, tuples: Rows, frames: Any, matched: Any) -> None:
        """Note which keys were seen often enough.

        They are cached only when the wave is over: its hits still point into the front stage.
        """
        if self._front is None:
            return
        seen = kernels.front_stage.count_recent(
            part.codes, tuples, self._recent, self._seen, self._age, self._span
        )
        hot = np.flatnonzero(matched & (seen >= self._front.threshold))
        for number in np.unique(frames[hot]):
            newest_first = hot[frames[hot] == number][::-1]
            codes, last = np.unique(part.codes[tuples[newest_first]], return_index=True)
            self._hot.append((int(number), codes, seen[newest_first[last]]))

    def _cache(self, frame: Frame, codes: Codes, seen: Any) -> None:
        front = self._front
        assert front is not None
        low, high = frame.find(codes)
        few = high - low <= MOST_ROWS_PER_KEY
        codes, seen, low, high = codes[few], seen[few], low[few], high[few]
        assert frame.page is not None
        admitted, evicted = front.admit(
            codes,
            high - low,
            seen,
            [frame.page.column(name) for name in self._cached_names()],
            frame.rows(ranges(low, high - low)),
        )
        if admitted or evicted:
            self._observer.front_stage_changed(admitted, evicted, front.count, front.threshold)
