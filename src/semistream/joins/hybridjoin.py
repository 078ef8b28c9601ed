"""HYBRIDJOIN (000: Naeem, Dobbie, Weber, IJDWM 2011).

The oldest waiting key decides which partition of the master is read next, by the index; the
partition is probed into the whole window, and every tuple that it matches leaves at once.
So no page is read in vain, and a popular page serves many tuples. The slots that became free
are refilled from the stream.

Waiting is bounded: each iteration serves the oldest tuple, so a tuple leaves after at most one
iteration more than there are tuples ahead of it in the queue. A page that was probed while a tuple
waited is not read again for it, so at most as many of these iterations read as there are
partitions (unless absent keys fall between pages that a key runs across).

| in the paper | here |
|---|---|
| p, v_P | a partition: ``disk_buffer_pages`` pages, aligned |
| H, h_S | the window, its capacity |
| Q | the window's doubly linked queue |
| w | the vacant slots |

Differences from the paper
--------------------------
- Refill takes what has arrived. Read literally, the paper's "if w tuples are available" starves
  a slow stream. An iteration begins when a tuple finds no vacant slot, and in ``step`` and
  ``flush``; the paper's loop never rests.
- A key that the master does not hold is found out when its tuple is the oldest: its page has
  been probed and the tuple is still there. It leaves, and with it all tuples of that key. If
  the page was probed earlier, while the tuple waited, nothing is read to find that out: all
  tuples of which that is true leave in the same iteration, as many as an output batch holds.
  (A page that cuts a key proves this for the oldest tuple only.)
- A tuple whose key is null matches nothing, and leaves before it would enter the window.
- Master keys may repeat. Equal keys lie together, so the partition is widened until it cuts no
  key, and tuples leave when all rows of their key have been seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from semistream.joins.contract import Join
from semistream.joins.probing import ProbingRun, Walk
from semistream.joins.run import Run
from semistream.joins.window import QueueWindow
from semistream.kernels import states
from semistream.master.pages import PageSource


@dataclass(frozen=True, kw_only=True)
class HybridJoin(Join):
    """HYBRIDJOIN: read the partition that the oldest tuple needs, serve all who need it too.

    >>> HybridJoin(memory="50MB").name
    'hybridjoin'
    """

    name: ClassVar[str] = "hybridjoin"

    @classmethod
    def _run_class(cls) -> type[Run]:
        return HybridRun


class HybridRun(ProbingRun):
    _window: QueueWindow
    _window_kind = QueueWindow
    _disk_most = 4

    def _attach(self, source: PageSource) -> None:
        super()._attach(source)
        self._head = -1  # the oldest tuple when the iteration began
        self._cut_codes: list[int] = []  # matched keys whose rows go on in the next page
        self._absent_from: int | None = None  # while the absent head's tuples go out
        self._turn = 1  # counts iterations
        self._probed = np.zeros(source.num_pages, np.int32)  # the turn of each page's last probe
        self._proven: Any = None  # old tuples whose page was probed while they waited

    def _disk_bytes(self) -> int:
        return super()._disk_bytes() + 4 * self._source.num_pages

    def _begin(self) -> None:
        """Read the partition that the oldest tuple needs."""
        self._iteration_begins()
        head = self._window.oldest
        walk = Walk(0, -1)
        if self._source.num_pages:
            low, high = self._pages_of(head)
            if low == high and self._window.born[head] < self._probed[low]:
                self._find_proven()
            else:
                walk = Walk(*self._partition(low, high))
                self._read_on(walk)
        if walk.ended and self._proven is None:
            self._absent_from = -1
        self._head = head
        self._walk = walk
        self._tick()

    def _tick(self) -> None:
        """Tuples that come from now on are younger than this turn's probe."""
        self._turn += 1
        if self._turn == 2**31 - 1:  # start over; what was proven is forgotten
            self._turn = 1
            self._probed[:] = 0
            self._window.born[:] = 0
        self._window.turn = self._turn

    def _find_proven(self) -> None:
        """Among the oldest tuples, those whose page was probed while they waited: absent."""
        if self._binding.codec.exact:
            index = self._source.index
            assert index is not None
            slots = self._window.proven(
                index.firsts, index.continues, self._probed, self._most_rows
            )
            self._proven = slots if len(slots) else None

    def _partition(self, low: int, high: int) -> tuple[int, int]:
        """The aligned partition of these pages, widened so that it cuts no key."""
        pages = self._pages_at_once
        first = low // pages * pages
        last = min(high // pages * pages + pages, self._source.num_pages) - 1
        continues = self._source.index.continues  # type: ignore[union-attr]
        while first > 0 and continues[first - 1]:
            first -= 1
        while last + 1 < self._source.num_pages and continues[last]:
            last += 1
        return first, last

    def _pages_of(self, slot: int) -> tuple[int, int]:
        """The first and last page that can hold this tuple's key."""
        index = self._source.index
        assert index is not None
        low, high = index.locate(self._window.keys(np.array([slot], np.int32)))
        return int(low[0]), int(high[0])

    def _resume(self) -> None:
        if self._proven is not None:
            self._proven_leave()
        elif self._absent_from is not None:
            self._absent_leave()
        else:
            super()._resume()

    def _buffer_done(self, walk: Walk) -> None:
        self._admit_to_front_stage(walk)
        codes = walk.codes
        assert codes is not None
        if not len(codes):
            return
        cut_before, cut_after = self._cut_edges(walk)
        done = codes[np.flatnonzero(walk.counts)]
        if cut_before or cut_after:
            edges = {int(codes[0])} if cut_before else set()
            edges |= {int(codes[-1])} if cut_after else set()
            held_back = np.isin(done, list(edges))
            self._cut_codes += {int(code) for code in done[held_back]}
            done = done[~held_back]
        self.stats.matched += self._window.settle(done)

    def _partition_done(self, walk: Walk) -> None:
        self._probed[walk.begin : walk.last + 1] = self._turn
        if self._cut_codes:
            codes = np.array(self._cut_codes, np.int64)
            self._cut_codes = []
            self.stats.matched += self._window.settle(codes)
        if self._window.count and self._window.oldest == self._head:
            self._absent_from = -1  # its page has passed, and it is still here
        else:
            self._iteration_over()

    def _proven_leave(self) -> None:
        slots, window = self._proven, self._window
        if self._binding.how in ("left", "left_anti"):
            self._emit_without_match(window.take(slots), len(slots))
        window.state[slots] = states.ABSENT
        self.stats.unmatched += window.settle(window.codes[slots])
        self._proven = None
        self._iteration_over()

    def _absent_leave(self) -> None:
        """The oldest key is not in the master: its tuples leave, one output batch at a time."""
        assert self._absent_from is not None
        window = self._window
        head = np.array([self._head], np.int32)
        code = window.codes[self._head]
        slots, following = window.with_code(code, self._absent_from, self._most_rows)
        if not self._binding.codec.exact:
            key = [column.take(pa.array([0] * len(slots))) for column in window.keys(head)]
            slots = slots[self._binding.codec.same(window.keys(slots), key)]
        if len(slots) and self._binding.how in ("left", "left_anti"):
            self._emit_without_match(window.take(slots), len(slots))
        window.state[slots] = states.ABSENT
        self._absent_from = following
        if following < 0:
            self._absent_from = None
            self.stats.unmatched += window.settle(np.array([code], np.int64))
            self._iteration_over()

    def _iteration_over(self) -> None:
        self._walk = None
        self._iteration_ends()
