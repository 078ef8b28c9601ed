"""MESHJOIN (004: Polyzotis et al., ICDE 2007, figure 4).

A cyclic scan of the master meshes with a sliding window over the stream::

     1  while true:
     2      read b pages of R and w tuples of S                    begin, take_in
     3      if Q is full:
     4          dequeue T, w pointers                              _expire
     5          remove the tuples of T from H                      RingWindow.expire
     7      add the w tuples to H                                  take_in
     8      enqueue w pointers                                     _close_chunk
     9      for each tuple r of the b pages:
    10          output r joined with H                             Probe.advance

A chunk of w tuples leaves when it was joined with all k = ceil(pages / b) partitions. No index and
no sort order is needed, and the rate is w tuples per partition read for any distribution of keys.

Waiting is bounded by one cycle: a tuple leaves after k iterations.

| in the paper | here |
|---|---|
| N_R, b, k | pages, ``disk_buffer_pages``, ``_partitions`` |
| w | ``_chunk_size`` |
| H, Q | the window, ``_chunks`` (sizes and ages, oldest first) |

Differences from the paper
--------------------------
- The queue holds chunk sizes, not pointers to tuples: tuples leave in arrival order, so their
  slots form a ring and the order needs no memory.
- A chunk leaves at the end of its last iteration instead of at the start of the next one.
- The pages need not divide by b: the last partition of a cycle is shorter, and a chunk is
  still joined with every partition once.
- The paper advances only when w tuples have arrived. ``push`` does the same, as soon as one
  more tuple arrives; ``step`` and ``flush`` advance with what has arrived.
- The window need not divide by k: w is rounded up, and when the window is full, the chunk that
  is being filled is closed as it is.
- A tuple whose key is null matches nothing, and never enters the window.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, ClassVar

from semistream.engine.disk_buffer import Scan
from semistream.engine.plan import MemoryPlan, buffer_pages, plan_window_join
from semistream.engine.policy import Parts, Policy
from semistream.engine.settings import Settings
from semistream.engine.shape import StreamShape, TableShape
from semistream.engine.window.hash_window import RingWindow, SortedRingWindow
from semistream.engine.window_policy import WindowPolicy
from semistream.joins.base import Join
from semistream.kernels import states
from semistream.master.pages import PageSource


@dataclass(frozen=True, kw_only=True)
class MeshJoin(Join):
    """MESHJOIN: scan the master cyclically, and join each partition with all waiting tuples.

    >>> join = MeshJoin(memory="50MB", how="left")
    >>> join.name
    'meshjoin'
    """

    name: ClassVar[str] = "meshjoin"
    can_move_buffer: ClassVar[bool] = True
    needs_order: ClassVar[bool] = False
    needs_key: ClassVar[bool] = False

    def plan(self, table: TableShape, stream: StreamShape, settings: Settings) -> MemoryPlan:
        pages = buffer_pages(self, table, settings.buffer_share, settings.mesh_buffer_bytes)
        window = RingWindow if table.has_key else SortedRingWindow
        return plan_window_join(self, table, stream, settings, window=window, pages=pages)

    def policy(self, join: Join, parts: Parts) -> Policy:
        return Mesh(join, parts)


class Mesh(WindowPolicy):
    """``group`` pages make a partition, or ``group_bytes``; None: what the disk buffer holds."""

    window_kind: type[RingWindow] = RingWindow

    def __init__(
        self, join: Any, parts: Parts, group: int | None = None, group_bytes: int = 0
    ) -> None:
        super().__init__(join, parts)
        if not self.context.binding.has_key:
            self.window_kind = SortedRingWindow
        self._group = group
        self._group_bytes = group_bytes

    def attach(self, source: PageSource, table: TableShape, plan: MemoryPlan) -> None:
        super().attach(source, table, plan)
        self.buffer_resized()

    def buffer_resized(self) -> None:
        """Start a cycle with the first page, in partitions of this size."""
        table = self.table
        group = self._group or self._group_bytes // max(1, table.max_page_bytes)
        group = max(group, 0 if self._group else self.buffer.pages)
        self._partition_pages = max(1, min(group, table.num_pages))
        self._partitions = max(1, -(-table.num_pages // self._partition_pages))
        self._chunks: deque[list[int]] = deque()  # [tuples, partitions joined], oldest first
        self._open_chunk = 0  # tuples that arrived since the last iteration
        self._next_page = 0
        self._expiring = False

    @property
    def _chunk_size(self) -> int:
        """How many tuples enter per iteration: the window divided by the partitions."""
        return int(-(-self.window.capacity // self._partitions))

    @property
    def longest_wait(self) -> int:
        return self._partitions

    def take_in(self) -> None:
        """Lines 2 and 7: up to w tuples per iteration."""
        wanted = min(self.window.vacant, self._chunk_size - self._open_chunk)
        self.full = wanted <= 0
        if not self.full:
            self._open_chunk += self.admit(wanted)

    def begin(self) -> None:
        """Line 2: read the next partition; if that succeeds, queue the open chunk."""
        self.context.iteration_begins()
        if not self.table.num_pages:
            self._expire_all()
            return
        first = self._next_page
        last = min(first + self._partition_pages, self.table.num_pages) - 1
        assert self.probe is not None
        scan = Scan(first, last, self.probe.needed_pages(self.source, first, last))
        if not scan.ended:
            self.buffer.fill(scan)
        self.scan = scan
        self._next_page = 0 if last + 1 == self.table.num_pages else last + 1
        self._close_chunk()

    def _close_chunk(self) -> None:
        """Line 8."""
        self._chunks.append([self._open_chunk, 0])
        self._open_chunk = 0

    def _expire_all(self) -> None:
        """An empty master: all waiting tuples leave unmatched."""
        self._close_chunk()
        self.scan = Scan(0, -1)
        self._expiring = True
        for chunk in self._chunks:
            chunk[1] = self._partitions

    def resume(self) -> None:
        """Lines 9 and 10, then 3 to 5."""
        assert self.scan is not None
        if self._expiring:
            self._expire()
        elif self.scan.ended:  # no page of the partition is needed
            self.partition_done(self.scan)
        else:
            super().resume()

    def buffer_done(self, scan: Scan) -> None:
        self.learn(scan)

    def partition_done(self, scan: Scan) -> None:
        for chunk in self._chunks:
            chunk[1] += 1
        self._expiring = True
        self._expire()

    def _expire(self) -> None:
        """Lines 3 to 5: remove tuples joined with every partition, one output batch at a time."""
        while self._chunks and self._chunks[0][1] >= self._partitions:
            chunk = self._chunks[0]
            count = min(chunk[0], self.output.most_rows)
            if count:
                self._remove_oldest(count)
                chunk[0] -= count
            if not chunk[0]:
                self._chunks.popleft()
            if self.output:
                return
        self._expiring = False
        self.scan = None
        self.iteration_over()

    def _remove_oldest(self, count: int) -> None:
        window, stats = self.window, self.context.stats
        slots = window.oldest(count)
        absent = slots[window.state[slots] != states.MATCHED]
        if len(absent) and self.output.wants_unmatched:
            self.output.emit_unmatched(window.take(absent), len(absent))
        window.expire(count)
        stats.unmatched += len(absent)
        stats.matched += count - len(absent)
