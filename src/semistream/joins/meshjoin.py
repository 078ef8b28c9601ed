"""MESHJOIN (004: Polyzotis et al., ICDE 2007).

A cyclic scan of the master meshes with a sliding window over the stream. Each iteration reads
the next b pages, probes them into the window, and admits a chunk of w tuples; a chunk leaves
when it has met all k = ceil(pages / b) partitions. No index, no order, any distribution: the
rate is w tuples per partition read, whatever the keys are.

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
- The pages need not divide by b: the last partition of a cycle is shorter, and a chunk still
  meets every partition once.
- The paper advances only when w tuples have arrived. ``push`` does the same, as soon as one
  more tuple comes; ``step`` and ``flush`` advance with what there is.
- The window need not divide by k: w is rounded up, and when the window is full, the chunk that
  is being filled is taken as it is.
- A tuple whose key is null matches nothing, and leaves before it would enter the window.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar

from semistream.joins.contract import Join
from semistream.joins.probing import ProbingRun, Walk
from semistream.joins.run import Run
from semistream.joins.window import RingWindow
from semistream.kernels import states
from semistream.master.pages import PageSource


@dataclass(frozen=True, kw_only=True)
class MeshJoin(Join):
    """MESHJOIN: scan the master in a circle, join everything that waits with what comes by.

    >>> join = MeshJoin(memory="50MB", how="left")
    >>> join.name
    'meshjoin'
    """

    name: ClassVar[str] = "meshjoin"
    needs_order: ClassVar[bool] = False

    @classmethod
    def _run_class(cls) -> type[Run]:
        return MeshRun


class MeshRun(ProbingRun):
    _window: RingWindow
    _window_kind = RingWindow

    def _attach(self, source: PageSource) -> None:
        super()._attach(source)
        self._chunks: deque[list[int]] = deque()  # [tuples, partitions met], oldest first
        self._open_chunk = 0  # tuples that arrived since the last iteration
        self._next_page = 0
        self._expiring = False
        self._size_chunks()

    @property
    def _partition_pages(self) -> int:
        return self._pages_at_once

    def _size_chunks(self) -> None:
        """How many tuples enter per iteration: the window divided by the partitions."""
        self._partitions = max(1, -(-self._source.num_pages // self._partition_pages))
        if self._stream is not None:
            self._chunk_size = -(-self._window.capacity // self._partitions)

    def _allocate(self, nbytes: int) -> None:
        super()._allocate(nbytes)
        self._size_chunks()

    def _admit(self) -> None:
        wanted = min(self._window.vacant, self._chunk_size - self._open_chunk)
        if wanted > 0:
            self._open_chunk += self._admit_to(wanted, self._window.add)
        else:
            self._full = True

    def _begin(self) -> None:
        """Read the next partition; when that worked, the open chunk joins the queue."""
        self._iteration_begins()
        if not self._source.num_pages:
            self._expire_all()
            return
        first = self._next_page
        last = min(first + self._partition_pages, self._source.num_pages) - 1
        walk = Walk(first, last)
        self._read_on(walk)
        self._walk = walk
        self._next_page = 0 if last + 1 == self._source.num_pages else last + 1
        self._close_chunk()

    def _close_chunk(self) -> None:
        self._chunks.append([self._open_chunk, 0])
        self._open_chunk = 0

    def _expire_all(self) -> None:
        """An empty master: everything that waits has met all of it."""
        self._close_chunk()
        self._walk = Walk(0, -1)
        self._expiring = True
        for chunk in self._chunks:
            chunk[1] = self._partitions

    def _resume(self) -> None:
        if self._expiring:
            self._expire()
        else:
            super()._resume()

    def _buffer_done(self, walk: Walk) -> None:
        self._admit_to_front_stage(walk)

    def _partition_done(self, walk: Walk) -> None:
        for chunk in self._chunks:
            chunk[1] += 1
        self._expiring = True
        self._expire()

    def _expire(self) -> None:
        """Let go of tuples that have met every partition, one output batch at a time."""
        while self._chunks and self._chunks[0][1] >= self._partitions:
            chunk = self._chunks[0]
            count = min(chunk[0], self._most_rows)
            if count:
                self._let_go(count)
                chunk[0] -= count
            if not chunk[0]:
                self._chunks.popleft()
            if self._ready:
                return
        self._expiring = False
        self._walk = None
        self._iteration_ends()

    def _let_go(self, count: int) -> None:
        slots = self._window.oldest(count)
        absent = slots[self._window.state[slots] != states.MATCHED]
        if len(absent) and self._binding.how in ("left", "left_anti"):
            self._emit_without_match(self._window.take(absent), len(absent))
        self._window.expire(count)
        self.stats.unmatched += len(absent)
        self.stats.matched += count - len(absent)
