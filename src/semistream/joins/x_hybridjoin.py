"""X-HYBRIDJOIN (002: Naeem, Dobbie, Weber, KAIS 2013).

HYBRIDJOIN whose disk buffer has two parts: a swappable one, as before, and a non-swappable one
that keeps the most popular pages of the master for good. Each iteration probes the pinned pages
into the window first, then the partition that the oldest remaining tuple needs.

Waiting is bounded as in HYBRIDJOIN.

| in the paper | here |
|---|---|
| non-swappable part, l pages, d_N | the pinned pages, ``pinned`` |
| swappable part, k pages, d_S | the disk buffer, ``disk_buffer_pages`` |

Differences from the paper
--------------------------
- Those of HYBRIDJOIN.
- The paper takes the first pages of a master sorted by popularity. Ours is sorted by key: the
  pages to pin are those that ``hot_keys`` (a sample or a ranking) falls on most, or else those
  that the first ``observe`` tuples of the stream do. Until then it runs as HYBRIDJOIN.
- A batch is observed when it arrives, ahead of the tuples that are taken in, and pages are
  pinned when the next iteration begins. The first page that does not fit is read in vain.
- A page that cuts a key in two is not pinned. A partition that is read may contain pinned pages.
- When the oldest tuple's page is pinned, its key is absent: no page is read to find that out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from semistream.joins.contract import Join
from semistream.joins.hot_pages import HotPages, hot_key_columns
from semistream.joins.hybridjoin import HybridRun
from semistream.joins.probing import Walk
from semistream.joins.run import Run
from semistream.master.pages import PageSource
from semistream.memory import check_part, parse_size
from semistream.stats import MemoryUse


@dataclass(frozen=True, kw_only=True)
class XHybridJoin(Join):
    """X-HYBRIDJOIN: HYBRIDJOIN with the most popular pages pinned in memory.

    Parameters
    ----------
    pinned
        The non-swappable part: a fraction of the budget, or a size. None makes it as large as
        the swappable part, which is the paper's rule of thumb.
    hot_keys
        Keys to find the popular pages by, most of them where the stream's are: values of one
        key column, or an Arrow table of several. None observes the stream.
    observe
        How many stream tuples to observe before pinning.
    """

    pinned: float | int | str | None = None
    hot_keys: Any = None
    observe: int = 20_000

    name: ClassVar[str] = "x-hybridjoin"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "hot_keys", hot_key_columns(self.hot_keys))
        if self.pinned is not None:
            check_part(self.pinned, "pinned")

    @classmethod
    def _run_class(cls) -> type[Run]:
        return XHybridRun


class XHybridRun(HybridRun):
    def _attach(self, source: PageSource) -> None:
        self._pinned: list[pa.RecordBatch] = []
        self._pinned_numbers: set[int] = set()
        self._pinned_next = True  # whether the next partition is the pinned part
        super()._attach(source)
        self._hot = HotPages(source, self.join.hot_keys, self.join.observe)

    def _asked_for(self) -> int:
        pinned = self.join.pinned
        return 0 if pinned is None or isinstance(pinned, float) else parse_size(pinned, "pinned")

    def _allocate(self, nbytes: int) -> None:
        if self.join.pinned is None:  # the paper's rule: as large as the swappable part
            same = self._pages_at_once * self._source.max_page_bytes
            self._pinned_bytes = min(same, self._spare // 2)
        else:
            self._pinned_bytes = self._part(self.join.pinned, "pinned")
        super()._allocate(nbytes - self._pinned_bytes)

    @property
    def memory(self) -> MemoryUse:
        pinned = {"pinned pages": sum(page.nbytes for page in self._pinned)}
        return MemoryUse({**super().memory, **pinned}, self._budget)

    def _admit(self) -> None:
        part = self._next_slice()
        if self._hot.undecided and not part.position:
            self._hot.observe(self._binding, part.batch)
        super()._admit()

    def _pin(self) -> None:
        """Copy the hottest pages that fit into the non-swappable part.

        After a failed read it goes on with the page that could not be read.
        """
        room = self._pinned_bytes - sum(page.nbytes for page in self._pinned)
        for number in self._hot.ranking()[len(self._pinned) :]:
            copy = self._copy_of(number)
            if copy.nbytes > room:
                break
            room -= copy.nbytes
            self._pinned.append(copy)
            self._pinned_numbers.add(number)

    def _copy_of(self, number: int) -> pa.RecordBatch:
        page = self._read(self._reader, number, 1)[0]
        return page.take(pa.array(np.arange(page.num_rows)))

    def _iteration_begins(self) -> None:
        if self._pinned_next or not self._pinned:  # else the pinned part's turn has begun it
            super()._iteration_begins()

    def _begin(self) -> None:
        if self._hot.decided_now:
            self._pin()
            self._hot.done()
        if self._pinned and self._pinned_next:
            self._iteration_begins()
            self._walk = Walk(0, -1)
            self._walk.fill(list(self._pinned), self._binding)
            return
        if self._pinned and self._pages_of(self._window.oldest)[0] in self._pinned_numbers:
            self._iteration_begins()
            self._head = self._window.oldest
            self._walk = Walk(0, -1)
            self._absent_from = -1
            return
        super()._begin()

    def _buffer_done(self, walk: Walk) -> None:
        if self._pinned_next and self._pinned:
            codes = walk.codes
            assert codes is not None
            self.stats.matched += self._window.settle(codes[np.flatnonzero(walk.counts)])
        else:
            super()._buffer_done(walk)

    def _partition_done(self, walk: Walk) -> None:
        if not (self._pinned and self._pinned_next):
            super()._partition_done(walk)
        elif self._window.count:
            self._pinned_next = False
            self._walk = None  # the swappable part's turn
        else:
            self._iteration_over()

    def _iteration_over(self) -> None:
        self._pinned_next = True
        super()._iteration_over()
