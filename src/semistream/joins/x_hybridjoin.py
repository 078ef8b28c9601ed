"""X-HYBRIDJOIN (002: Naeem, Dobbie, Weber, KAIS 2013, algorithm 1).

HYBRIDJOIN whose disk buffer has two parts: a swappable one, as before, and a non-swappable one
that permanently holds the most popular pages of the master::

     1  load the first partition p_1 into the non-swappable part      _pin
     3  while true:
     4      read w tuples of the stream into H and Q                  HYBRIDJOIN's take_in
     8      for each tuple r of p_1:                                  begin
     9          if r is in H: output, delete the matched tuples       _resume_pinned
    15      read the oldest key of Q                                  _begin_swappable
    16      read its partition p_i into the swappable part
    17      for each tuple r of p_i:                                  HYBRIDJOIN's resume
    18          if r is in H: output, delete the matched tuples

Waiting is bounded as in HYBRIDJOIN.

| in the paper | here |
|---|---|
| non-swappable part, l pages, d_N | the pinned pages, ``pinned`` |
| swappable part, k pages, d_S | the disk buffer, ``disk_buffer_pages`` |

Differences from the paper
--------------------------
- Those of HYBRIDJOIN.
- The paper takes the first pages of a master sorted by popularity. Ours is sorted by key: the
  pages to pin are those with the most keys of ``hot_keys`` (a sample or a ranking) or, without
  it, of the first ``observe`` tuples of the stream. Until then it runs as HYBRIDJOIN.
- A batch is counted when it arrives, before its tuples are admitted, and pages are pinned when
  the next iteration begins. The first page that does not fit is read and discarded.
- A page that splits a key is not pinned. A partition that is read may contain pinned pages.
- When the oldest tuple's page is pinned, its key is absent: no read is needed to detect that.
- Popularity drifts: later samples of ``observe`` tuples are compared with the pinned pages, and
  other pages are pinned if those serve clearly more. ``adapt=False`` keeps the first ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from semistream.engine.disk_buffer import Scan
from semistream.engine.extension import Extension
from semistream.engine.page_popularity import PagePopularity, hot_key_columns
from semistream.engine.page_rows import BatchRows
from semistream.engine.plan import MemoryPlan
from semistream.engine.policy import Parts, Policy
from semistream.engine.settings import Settings
from semistream.engine.shape import StreamShape, TableShape
from semistream.joins.base import Join
from semistream.joins.hybridjoin import Hybrid, hybrid_buffer_pages, plan_hybrid
from semistream.master.pages import PageSource
from semistream.memory import check_part, parse_size


@dataclass(frozen=True, kw_only=True)
class XHybridJoin(Join):
    """X-HYBRIDJOIN: HYBRIDJOIN with the most popular pages pinned in memory.

    Parameters
    ----------
    pinned
        The non-swappable part: a fraction of the budget, or a size. Default: as large as the
        swappable part, which is the paper's rule of thumb.
    hot_keys
        A sample of the stream's keys, from which the popular pages are derived: values of one
        key column, or an Arrow table of several. Default: the head of the stream.
    observe
        How many stream tuples to count before pinning.
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

    def plan(self, table: TableShape, stream: StreamShape, settings: Settings) -> MemoryPlan:
        pinned = self.pinned
        if pinned is None:  # the paper's rule: as large as the swappable part
            pages = hybrid_buffer_pages(self, table, settings)
            pinned = pages * table.max_page_bytes / parse_size(self.memory)
        return plan_hybrid(self, table, stream, settings, pinned=pinned)

    def policy(self, join: Join, parts: Parts) -> Policy:
        return XHybrid(Hybrid(join, parts))

    def page_popularity(self, source: PageSource) -> PagePopularity:
        """Which pages to pin, and when others should be pinned instead."""
        adapts = self.adapts(self.hot_keys is None)
        return PagePopularity(source, self.hot_keys, self.observe, adapts)


class XHybrid(Extension):
    inner: Hybrid

    def attach(self, source: PageSource, table: TableShape, plan: MemoryPlan) -> None:
        super().attach(source, table, plan)
        self._pinned: list[pa.RecordBatch] = []
        self._pinned_rows: BatchRows | None = None  # the same, with their codes
        self._pinned_numbers: set[int] = set()
        self._scan: Scan | None = None  # of the pinned pages
        self._swappable_next = False  # the pinned pages were probed in this iteration
        self._popularity = self.join.page_popularity(source)
        self._pinning = False  # pages of an earlier ranking were released

    def allocate(self, plan: MemoryPlan) -> None:
        super().allocate(plan)
        self._pinned_bytes = plan.pinned_bytes

    def memory(self) -> dict[str, int]:
        return {**super().memory(), "pinned pages": sum(page.nbytes for page in self._pinned)}

    def take_in(self) -> None:
        """Line 4."""
        self._popularity.observe(self.context.binding, self.intake.slice())
        super().take_in()

    @property
    def busy(self) -> bool:
        return self._scan is not None or self._swappable_next or self.inner.busy

    def begin(self) -> None:
        """Line 8, or line 15 as long as nothing is pinned."""
        if self._popularity.is_decided:
            self._pin()
        if self._pinned:
            self.context.iteration_begins()
            self._scan = Scan(0, -1)
            if self._pinned_rows is None:
                self._pinned_rows = BatchRows(self._pinned, self.context.binding)
            self._scan.fill(self._pinned_rows)
        else:
            self.inner.begin()

    def _pin(self) -> None:
        """Line 1: copy the hottest pages that fit.

        After a failed read, the next call resumes with the page that could not be read. Pages of
        an earlier ranking are released first; tuples that wait for them are served as all others.
        """
        if not self._pinning:
            self._pinned, self._pinned_rows, self._pinned_numbers = [], None, set()
            self._pinning = True
        room = self._pinned_bytes - sum(page.nbytes for page in self._pinned)
        for number in self._popularity.ranking()[len(self._pinned) :]:
            page = self.inner.buffer.read(number, 1)[0]
            copy = page.take(pa.array(self._visible_rows(number, page)))
            if copy.nbytes > room:
                break
            room -= copy.nbytes
            self._pinned.append(copy)
            self._pinned_rows = None
            self._pinned_numbers.add(number)
        self._popularity.done(self._pinned_numbers)
        self._pinning = False

    def _visible_rows(self, number: int, page: pa.RecordBatch) -> Any:
        """Rows that no delta has replaced or deleted."""
        index, rows = self.inner.source.index, np.arange(page.num_rows)
        assert index is not None
        codes, _ = self.context.binding.master_codes(page)
        shown = index.visible(number, codes, rows[-1:] + 1)
        return rows if shown is None else rows[shown]

    def resume(self) -> None:
        if self._scan is not None:
            self._resume_pinned(self._scan)
        elif self._swappable_next:
            self._begin_swappable()
        else:
            self.inner.resume()

    def _resume_pinned(self, scan: Scan) -> None:
        """Lines 8 to 14."""
        probe, window = self.inner.probe, self.inner.window
        assert probe is not None
        if not probe.advance(scan):
            return
        matched = scan.codes[np.flatnonzero(scan.counts)]
        self.context.stats.matched += window.remove(matched)
        self._scan = None
        if window.count:
            self._swappable_next = True
        else:
            self.inner.iteration_over()

    def _begin_swappable(self) -> None:
        """Lines 15 and 16."""
        head = self.inner.next_head()
        if self.inner.pages_of(head)[0] in self._pinned_numbers:
            self.inner.head_is_absent(head)
        else:
            self.inner.read_for(head)
        self._swappable_next = False
