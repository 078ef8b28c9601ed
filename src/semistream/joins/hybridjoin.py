"""HYBRIDJOIN (000: Naeem, Dobbie, Weber, IJDWM 2011, figure 5).

The index maps the oldest waiting key to the partition of the master that is read next; the
partition is probed against the whole window, and every tuple that it matches leaves at once::

     1  w = h_S
     2  while true:
     3      if w tuples of the stream are available:
     4          read w tuples into H, their keys into Q            take_in
     5          w = 0
     7      read the oldest key of Q                               begin: next_head
     8      read its partition p into the disk buffer              begin: buffer.fill
     9      for each tuple r of p:
    10          if r is in H:
    11              output r joined with H                         resume: Probe.advance
    12              delete the matched tuples from H and Q         _remove_matched
    13              w = w + number of matched tuples

Every partition is read for a waiting tuple, and a popular one serves many tuples.

Waiting is bounded: each iteration serves the oldest tuple, so a tuple leaves after at most one
iteration more than there are tuples ahead of it in the queue. A page that was probed while a tuple
waited is not read again for it, so at most as many of these iterations read as there are
partitions (unless absent keys fall between pages that a key spans).

| in the paper | here |
|---|---|
| p, v_P | a partition: ``disk_buffer_pages`` pages, aligned |
| H, h_S | the window, its capacity |
| Q | the window's doubly linked queue |
| w | the vacant slots |

Differences from the paper
--------------------------
- The window is refilled with whatever has arrived. Read literally, the paper's "if w tuples are
  available" starves a slow stream. An iteration begins when there is no vacant slot for a tuple,
  and in ``step`` and ``flush``; the paper's loop never idles.
- An absent key is detected when its tuple is the oldest: its page was probed, and the tuple is
  still there. All tuples with that key leave. If the page was probed earlier, while the tuple
  waited, no read is needed: all such tuples leave in the same iteration, up to one output batch.
  (If a key spans several pages, this holds for the oldest tuple only.)
- A tuple whose key is null matches nothing, and never enters the window.
- Master keys may repeat. Equal keys are adjacent, so the partition is widened until it splits no
  key, and tuples leave when all rows of their key were probed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from semistream.engine.disk_buffer import Scan
from semistream.engine.front.learner import cut_edges
from semistream.engine.plan import MemoryPlan, buffer_pages, plan_window_join
from semistream.engine.policy import Parts, Policy
from semistream.engine.settings import Settings
from semistream.engine.shape import StreamShape, TableShape
from semistream.engine.window.absent_tuples import PAGE_BYTES, AbsentTuples
from semistream.engine.window.hash_window import QueueWindow
from semistream.engine.window_policy import WindowPolicy
from semistream.joins.base import Join
from semistream.kernels import states
from semistream.master.pages import PageSource


@dataclass(frozen=True, kw_only=True)
class HybridJoin(Join):
    """HYBRIDJOIN: read the partition that the oldest tuple needs, serve all tuples that match it.

    >>> HybridJoin(memory="50MB").name
    'hybridjoin'
    """

    name: ClassVar[str] = "hybridjoin"
    can_move_buffer: ClassVar[bool] = True

    def plan(self, table: TableShape, stream: StreamShape, settings: Settings) -> MemoryPlan:
        return plan_hybrid(self, table, stream, settings)

    def policy(self, join: Join, parts: Parts) -> Policy:
        return Hybrid(join, parts)


def hybrid_buffer_pages(join: Join, table: TableShape, settings: Settings) -> int:
    return buffer_pages(join, table, settings.buffer_share, settings.hybrid_buffer_bytes)


def plan_hybrid(
    join: Join, table: TableShape, stream: StreamShape, settings: Settings, **parts: Any
) -> MemoryPlan:
    """HYBRIDJOIN's plan, with the further parts of the joins that extend it."""
    return plan_window_join(
        join,
        table,
        stream,
        settings,
        window=QueueWindow,
        pages=hybrid_buffer_pages(join, table, settings),
        extra_bytes=PAGE_BYTES * table.num_pages,
        **parts,
    )


class Hybrid(WindowPolicy):
    """HYBRIDJOIN at work; with a front stage in its plan, CHYBRIDJOIN.

    An iteration is ``begin``, then ``resume`` until the partition has been probed
    (``buffer_done``, ``partition_done``) and absent tuples have left, then ``partition_over``.
    """

    window: QueueWindow
    window_kind = QueueWindow
    can_release = True
    least_served = 1.0  # the tuple that is read for
    _position = 1.0  # in the queue, of the tuple whose partition is read; 1: the oldest

    def attach(self, source: PageSource, table: TableShape, plan: MemoryPlan) -> None:
        super().attach(source, table, plan)
        self._head = -1  # the tuple whose partition is read in this iteration
        self._cut_codes: list[int] = []  # matched keys whose rows continue in the next page
        self.absent = AbsentTuples(self.context, self.output, table.num_pages)

    def allocate(self, plan: MemoryPlan) -> None:
        super().allocate(plan)
        # What was proven of the slots of another window is not true of this one's.
        self.absent = AbsentTuples(self.context, self.output, self.table.num_pages)

    def memory(self) -> dict[str, int]:
        memory = super().memory()
        memory["disk buffer"] += self.absent.nbytes
        return memory

    def begin(self) -> None:
        self.context.iteration_begins()
        self.read_for(self.next_head())

    def next_head(self) -> int:
        """Line 7: the oldest tuple; while load is shed, the one at the look-up position (003)."""
        return self.window.at(self._position)

    def look_up_at(self, position: float) -> None:
        self._position = position

    def release(self, most: int) -> pa.RecordBatch | None:
        if self.window is None or not self.window.count:
            return None
        self.full = False
        schema = self.context.binding.stream_schema
        return pa.RecordBatch.from_arrays(self.window.release(most), schema=schema)

    def read_for(self, head: int) -> None:
        """Lines 7 and 8: read the partition that this tuple needs."""
        scan = Scan(0, -1)
        low, high = self.pages_of(head)
        if low <= high:
            if self.absent.is_proven(self.window, head, low, high):
                assert self.source.index is not None
                self.absent.leave_proven(self.window, self.source.index, head)
            else:
                scan = Scan(*self._partition(low, high))
                self.buffer.fill(scan)
        if scan.ended and not self.absent.leaving:  # no page can have its key
            self.absent.leave_head(head)
        self._start(head, scan)

    def head_is_absent(self, head: int) -> None:
        """Let this tuple leave without a read: its key is known to be absent."""
        self.absent.leave_head(head)
        self._start(head, Scan(0, -1))

    def _start(self, head: int, scan: Scan) -> None:
        """From here on the policy is busy. A read that failed has not come this far."""
        self._head = head
        self.scan = scan
        self.absent.tick(self.window)

    def pages_of(self, slot: int) -> tuple[int, int]:
        """The first and last page that can hold this tuple's key; ``low > high``: none."""
        index = self.source.index
        assert index is not None
        if index.by_code:
            low, high = index.locate_codes(self.window.codes[slot : slot + 1])
        else:
            low, high = index.locate(self.window.keys(np.array([slot], np.int32)))
        return int(low[0]), int(high[0])

    def _partition(self, low: int, high: int) -> tuple[int, int]:
        """The aligned partition of these pages, widened so that it splits no key."""
        pages, end = self.buffer.pages, self.table.num_pages
        first = low // pages * pages
        last = min(high // pages * pages + pages, end) - 1
        continues = self.table.continues
        while first > 0 and continues[first - 1]:
            first -= 1
        while last + 1 < end and continues[last]:
            last += 1
        return first, last

    def resume(self) -> None:
        """Lines 9 to 13, and absent tuples, which the paper does not have."""
        if not self.absent.leaving:
            super().resume()
        elif self.absent.leave(self.window):
            self.partition_over()

    def buffer_done(self, scan: Scan) -> None:
        self.learn(scan)
        if len(scan.codes):
            self._remove_matched(scan)

    def _remove_matched(self, scan: Scan) -> None:
        """Lines 12 and 13: tuples that ``Probe.advance`` has marked leave.

        A key that goes on in a page outside the buffer waits for ``partition_done``.
        """
        codes = scan.codes
        done = codes[np.flatnonzero(scan.counts)]
        cut_before, cut_after = cut_edges(self.source, scan)
        if cut_before or cut_after:
            edges = {int(codes[0])} if cut_before else set()
            edges |= {int(codes[-1])} if cut_after else set()
            held_back = np.isin(done, list(edges))
            self._cut_codes += {int(code) for code in done[held_back]}
            done = done[~held_back]
        self.context.stats.matched += self.window.remove(done)

    def partition_done(self, scan: Scan) -> None:
        self.absent.probed(scan.begin, scan.last)
        if self._cut_codes:
            codes = np.array(self._cut_codes, np.int64)
            self._cut_codes = []
            self.context.stats.matched += self.window.remove(codes)
        if self.window.state[self._head] == states.WAITING:
            self.absent.leave_head(self._head)  # its page was probed, and it did not match
        else:
            self.partition_over()

    def partition_over(self) -> None:
        """Everyone who had to leave has left: the iteration ends."""
        self.scan = None
        self.iteration_over()
