"""Optimised X-HYBRIDJOIN (001: Naeem, Dobbie, Weber, ADC 2012, algorithm 1).

X-HYBRIDJOIN with the pinned pages in a separate hash table H_R, which the stream probes. Two
phases alternate::

     2  while true:
     3      while the stream has tuples and H_S has room:        take_in: stream-probing phase
     4          read a tuple t
     5          if t is in H_R: output                           Admission.admit
     7          else: add t to H_S, its key to Q
    12      read the oldest key of Q                             HYBRIDJOIN: disk-probing phase
    13      read its partition into the disk buffer
    14      for each tuple r of it:
    15          if r is in H_S: output, delete the matched tuples

Hot tuples never take a slot, and pinned rows are not probed again in every iteration.

Waiting is bounded as in HYBRIDJOIN; a tuple that hits the pinned part does not wait at all.

| in the paper | here |
|---|---|
| H_R, l pages | the front stage, filled once: ``pinned`` |
| H_S, hSavailable | the window, its vacant slots |
| disk buffer, k pages | ``disk_buffer_pages`` |

Differences from the paper
--------------------------
- Those of HYBRIDJOIN, and the first of the front stage: hits may bypass a full window.
- Popular pages come from ``hot_keys`` or from the first tuples of the stream, as in our
  X-HYBRIDJOIN, since the master is sorted by key and not by popularity. They are loaded before
  the batch that completes the sample is admitted, page by page while all rows fit.
- When popularity drifts, H_R is filled anew, as X-HYBRIDJOIN pins anew.
- A key with more than 16 rows, or with rows in two pages, is left to the disk-probing phase.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from semistream.engine.disk_buffer import Scan
from semistream.engine.extension import Extension
from semistream.engine.front.recorder import FrequencyRecorder
from semistream.engine.plan import MemoryPlan
from semistream.engine.policy import Parts, Policy
from semistream.engine.settings import Settings
from semistream.engine.shape import StreamShape, TableShape
from semistream.joins.base import Join
from semistream.joins.hybridjoin import Hybrid, plan_hybrid
from semistream.joins.x_hybridjoin import XHybridJoin
from semistream.master.pages import PageSource


@dataclass(frozen=True, kw_only=True)
class OptimisedXHybridJoin(XHybridJoin):
    """Optimised X-HYBRIDJOIN: tuples probe the pinned rows before they may enter the window.

    Parameters are those of :class:`XHybridJoin`; ``pinned`` is a fifth of the budget by default.
    """

    pinned: float | int | str | None = 0.2

    name: ClassVar[str] = "optimised-x-hybridjoin"

    def plan(self, table: TableShape, stream: StreamShape, settings: Settings) -> MemoryPlan:
        front = 0.2 if self.pinned is None else self.pinned
        return plan_hybrid(self, table, stream, settings, front=front, front_name="pinned")

    def policy(self, join: Join, parts: Parts) -> Policy:
        return OptimisedXHybrid(Hybrid(join, parts))


class OptimisedXHybrid(Extension):
    inner: Hybrid

    def attach(self, source: PageSource, table: TableShape, plan: MemoryPlan) -> None:
        super().attach(source, table, plan)
        self.inner.learns = False
        self._popularity = self.join.page_popularity(source)
        self._filled: list[int] = []  # pages whose rows are in the front stage,
        self._is_outdated = False  # until there is another ranking

    def take_in(self) -> None:
        """Lines 3 to 9; H_R is filled as soon as the popular pages are known."""
        self._popularity.observe(self.context.binding, self.intake.slice())
        if self._popularity.is_decided:
            self._fill()
        super().take_in()

    def _fill(self) -> None:
        """Load the rows of the hottest pages into the front stage permanently.

        After a failed read, the next call resumes with the page that could not be read.
        """
        front, inner = self.front, self.inner
        if isinstance(front, FrequencyRecorder):
            if self._is_outdated:
                front.clear()
                self._filled, self._is_outdated = [], False
            for number in self._popularity.ranking()[len(self._filled) :]:
                scan = Scan(number, number)
                inner.buffer.fill(scan)
                shown = (
                    np.arange(len(scan.codes)) if scan.valid is None else scan.valid.nonzero()[0]
                )
                rows, sizes, first = inner.learner.whole_keys(scan, shown)
                columns = scan.take(rows, self.context.binding.cached_columns)
                if not front.fill(scan.codes[first], sizes, columns, np.arange(len(rows))):
                    break
                self._filled.append(number)
        self._popularity.done(self._filled)
        self._is_outdated = True
