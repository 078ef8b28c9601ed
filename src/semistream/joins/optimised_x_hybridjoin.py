"""Optimised X-HYBRIDJOIN (001: Naeem, Dobbie, Weber, ADC 2012).

X-HYBRIDJOIN whose pinned pages are a hash table of their own, probed by the stream. Two phases
alternate: in the *stream-probing* phase tuples look up the pinned rows, and only those that
miss enter the window; in the *disk-probing* phase HYBRIDJOIN serves the window. Hot tuples
never take a slot, and pinned rows are not probed over and over.

Waiting is bounded as in HYBRIDJOIN; a tuple that hits the pinned part does not wait at all.

| in the paper | here |
|---|---|
| H_R, l pages | the front stage, filled once: ``pinned`` |
| H_S, hSavailable | the window, its vacant slots |
| disk buffer, k pages | ``disk_buffer_pages`` |

Differences from the paper
--------------------------
- Those of HYBRIDJOIN, and the first of the front stage: hits may pass a full window.
- Popular pages come from ``hot_keys`` or from the first tuples of the stream, as in our
  X-HYBRIDJOIN, since the master is sorted by key and not by popularity. They are loaded before
  the batch that completes the observation is taken in, page by page while all rows fit.
- A key with more than 16 rows, or with rows in two pages, is left to the disk-probing phase.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from semistream.joins.front_stage import FrontStage
from semistream.joins.hot_pages import HotPages
from semistream.joins.hybridjoin import HybridRun
from semistream.joins.probing import Walk
from semistream.joins.run import Run
from semistream.joins.x_hybridjoin import XHybridJoin
from semistream.master.pages import PageSource


@dataclass(frozen=True, kw_only=True)
class OptimisedXHybridJoin(XHybridJoin):
    """Optimised X-HYBRIDJOIN: the stream probes the pinned rows before it may wait.

    Parameters are those of :class:`XHybridJoin`; ``pinned`` is a fifth of the budget by default.
    """

    pinned: float | int | str | None = 0.2

    name: ClassVar[str] = "optimised-x-hybridjoin"

    @classmethod
    def _run_class(cls) -> type[Run]:
        return OptimisedXHybridRun


class OptimisedXHybridRun(HybridRun):
    _front_learns = False

    def _attach(self, source: PageSource) -> None:
        super()._attach(source)
        self._hot = HotPages(source, self.join.hot_keys, self.join.observe)
        self._filled = 0  # pages whose rows are in the front stage

    def _front_share(self) -> float | int | str:
        pinned: float | int | str | None = self.join.pinned
        return 0.2 if pinned is None else pinned

    def _admit(self) -> None:
        part = self._next_slice()
        if self._hot.undecided and not part.position:
            self._hot.observe(self._binding, part.batch)
        if self._hot.decided_now:
            self._fill()
            self._hot.done()
        super()._admit()

    def _fill(self) -> None:
        """Load the rows of the hottest pages into the front stage, for good.

        After a failed read it goes on with the page that could not be read.
        """
        if not isinstance(self._front, FrontStage):
            return
        for number in self._hot.ranking()[self._filled :]:
            walk = Walk(number, number)
            walk.fill(self._read(self._reader, number, 1), self._binding)
            assert walk.codes is not None
            rows, sizes, first = self._whole_keys(walk, np.arange(len(walk.codes)))
            columns = [walk.pages[0].column(name) for name in self._cached_names()]
            if not self._front.fill(walk.codes[first], sizes, columns, rows):
                break
            self._filled += 1
