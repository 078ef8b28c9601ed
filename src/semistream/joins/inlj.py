"""INLJ, the index nested loop join (000, 004), with its budget as a buffer pool of pages::

    for each tuple t of the stream:
        find the page of t's key in the index                       _look_up
        if it is not in the pool: read it, evicting the least       BufferPool.fetch
            recently used page
        output t joined with the rows of its key                    _join

No tuple waits: each is served in its own push.

Differences from the papers
---------------------------
- 004 gives INL a buffer pool as large as MESHJOIN's memory, 000 none; ours is the budget.
- Tuples are processed in waves. Pages are requested tuple by tuple, with the same reads and
  evictions in the same order as single look-ups, but the tuples of a wave are joined together,
  with fewer calls. A wave ends before it would evict a page that it still needs.
- Our index has the first key of each page, so an absent key costs a read of the page where it
  would be. A null key matches nothing and needs no read.
- Master keys may repeat, also over several pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from semistream.engine.buffer_pool import PAGE_BYTES, BufferPool, frame_bytes
from semistream.engine.front.recent_keys import RecentKeys
from semistream.engine.intake import Slice
from semistream.engine.pair_filter import PairFilter
from semistream.engine.plan import Division, MemoryPlan, Part, fixed_bytes
from semistream.engine.policy import Parts, Policy
from semistream.engine.rows.layout import Rows, ranges
from semistream.engine.settings import Settings
from semistream.engine.shape import StreamShape, TableShape
from semistream.joins.base import Join
from semistream.keys import Mask
from semistream.master.pages import PageSource

_NO_ROWS = np.zeros(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class IndexNestedLoopJoin(Join):
    """INLJ: one index look-up per tuple, through a buffer pool.

    >>> IndexNestedLoopJoin(memory="50MB").name
    'inlj'
    """

    name: ClassVar[str] = "inlj"

    def plan(self, table: TableShape, stream: StreamShape, settings: Settings) -> MemoryPlan:
        return plan_pool(self, table, stream, settings)

    def policy(self, join: Join, parts: Parts) -> Policy:
        return Inlj(join, parts)


def plan_pool(
    join: Join,
    table: TableShape,
    stream: StreamShape,
    settings: Settings,
    *,
    front: Part | None = None,
    cache: str = "recorder",
    recent: int = 0,
) -> MemoryPlan:
    """A front stage, ``recent`` bytes for CINLJ's temporary buffer, and frames in the rest."""
    frame, pages = frame_bytes(table), PAGE_BYTES * table.num_pages
    least = pages + 2 * frame + recent
    reserved = fixed_bytes(front, "front_stage")
    division = Division(join, table, stream, settings, disk=0, least=least, reserved=reserved)
    size, front_bytes, frames = None, 0, 1
    if stream.layout is not None:
        if front is not None:
            size, front_bytes = division.front_stage(front, cache)
        frames = (division.rest - front_bytes - recent - pages) // frame
        frames = int(max(1, min(frames, table.num_pages, settings.pool_frames)))
    return MemoryPlan(
        budget=division.budget,
        smallest=division.smallest,
        table=division.fixed + pages + frames * frame,
        buffer_pages=frames,
        output=division.output,
        output_rows=division.output_rows,
        front=size,
        front_bytes=front_bytes,
        cache=cache,
        extra_bytes=recent if stream.layout is not None else 0,
    )


class LongLookUp:
    """A tuple with more rows than one output batch holds, or with rows in several pages."""

    def __init__(self, row: int, first: int, last: int) -> None:
        self.row = row
        self.next = first
        self.last = last
        self.rows: Any = None  # of the page in ``frame``, still to be emitted
        self.frame = -1
        self.matched = False


class Inlj(Policy):
    """``recent`` counts recent keys for a front stage, in CINLJ."""

    def __init__(self, join: Any, parts: Parts, recent: RecentKeys | None = None) -> None:
        super().__init__(join, parts)
        self._recent = recent
        self._pool: BufferPool | None = None
        self._long: LongLookUp | None = None
        self._single: Any = None  # first codes of all pages, if every key has one page
        self._filter: PairFilter | None = None  # where there are conditions

    # -- versions and memory ---------------------------------------------------------------

    def attach(self, source: PageSource, table: TableShape, plan: MemoryPlan) -> None:
        self.source = source
        self.table = table
        self.admission.attach(source)
        index = source.index
        assert index is not None
        is_single = index.by_code and not index.has_changes and not index.has_spanning_keys
        self._single = index.firsts if is_single else None

    def detach(self) -> None:
        if self._pool is not None:
            self._pool.close()
        self._pool = self._long = None

    def allocate(self, plan: MemoryPlan) -> None:
        self.make_front_stage(plan, self.table)
        self._pool = BufferPool(self.context, self.source, self.table, plan.buffer_pages)
        self._filter = self.context.binding.pair_filter()

    def outgrown(self, plan: MemoryPlan, new: MemoryPlan) -> bool:
        return True  # the pool holds pages of the previous version

    def memory(self) -> dict[str, int]:
        seen = self.intake.layout is not None
        return {
            "window": self._recent.nbytes if self._recent and seen else 0,
            "front stage": self.front.nbytes if self.front else 0,
            "disk buffer": self._pool.nbytes if self._pool else 0,
            "pending output": self.output.nbytes,
        }

    @property
    def held(self) -> int:
        return 0

    @property
    def busy(self) -> bool:
        return self._long is not None

    @property
    def longest_wait(self) -> int:
        return 0

    # -- a wave of look-ups ----------------------------------------------------------------

    def take_in(self) -> None:
        assert self._pool is not None
        self.context.iteration_begins()
        served = self.admission.admit(self.output.most_rows, self._look_up)
        if served:
            self.iteration_over()
        if self._recent and self.front:
            self._recent.offer(self.context, self.front, self._pool)
            if served:
                self.front.age(served / self._recent.span, served)

    def begin(self) -> None:
        """Not needed: no tuple waits."""

    def _look_up(self, part: Slice, misses: Rows) -> int:
        """Serve these tuples in order; returns how many were served."""
        assert self._pool is not None
        if not self.table.num_pages:
            self._leave(part, misses, np.zeros(len(misses), np.bool_))
            return len(misses)
        if self._single is not None:
            frames = self._pool.fetch_codes(part.codes, misses, self._single)
            served = self._join(self._pool, part, misses[: len(frames)], frames)
            return served or self._look_up_long(part, misses)
        return self._look_up_long(part, misses)

    def _look_up_long(self, part: Slice, misses: Rows) -> int:
        """The same for keys that may be in several pages, or have very many rows."""
        assert self._pool is not None
        low, high = self._locate(part, misses)
        first = int(misses[0])
        several = _NO_ROWS if low is high else np.flatnonzero(low != high)
        if len(several):
            misses = misses[: several[0]]
            if not len(misses):
                return self._begin_long(part, first, int(low[0]), int(high[0]))
        frames = self._pool.fetch(low[: len(misses)].astype(np.int32))
        served = self._join(self._pool, part, misses[: len(frames)], frames)
        return served or self._begin_long(part, first, int(low[0]), int(low[0]))

    def _locate(self, part: Slice, rows: Rows) -> tuple[Any, Any]:
        """The first and last page that can hold each of these tuples' keys."""
        index = self.source.index
        assert index is not None
        if index.by_code:
            return index.locate_codes(part.codes[rows])
        return index.locate(self.context.binding.codec.adopt(part.keys(rows)))

    def _join(self, pool: BufferPool, part: Slice, tuples: Rows, frames: Any) -> int:
        """Join tuples with their frames' pages, as many as one output batch holds."""
        most, binding = self.output.most_rows, self.context.binding
        has_one_row = self.admission.unique and binding.exact  # or none
        if has_one_row:
            most = min(most, len(tuples))
        served, owner, pages, rows = pool.pair(frames, part.codes, tuples, most)
        if not served:
            return 0
        if has_one_row and len(owner) == len(tuples) and binding.keeps_master:
            self._emit(pool, part, tuples, pages, rows)
            self._note(part, tuples, frames, None)
            self.context.stats.matched += served
            return served
        same = self._same_keys(pool, part, tuples[owner], pages, rows)
        if same is not None:
            owner, pages, rows = owner[same], pages[same], rows[same]
        matched = np.zeros(served, np.bool_)
        matched[owner] = True
        self._emit(pool, part, tuples[owner], pages, rows)
        self._note(part, tuples[:served], frames[:served], matched)
        self._leave(part, tuples[:served], matched)
        return served

    def _note(self, part: Slice, tuples: Rows, frames: Any, matched: Mask | None) -> None:
        """Count keys for the front stage; ``matched`` is None if all have a match."""
        if self._recent and self.front:
            if matched is None:
                matched = np.ones(len(tuples), np.bool_)
            self._recent.note(part, tuples, frames, matched, self.front.threshold)

    def _emit(self, pool: BufferPool, part: Slice, tuples: Rows, pages: Any, rows: Any) -> None:
        if self.context.binding.keeps_master and len(tuples):
            if len(tuples) <= self.output.few_rows:
                message = self.output.begin_few(len(tuples))
                part.write(message, tuples)
                if pool.frames.output.has_columns:
                    message.add_pages(pool.frames.output.addresses, pages, rows)
                if self.output.emit_few():
                    return
            stream = part.take(tuples)
            self.output.emit(stream, pool.frames.output.take(pages, rows))

    def _same_keys(
        self, pool: BufferPool, part: Slice, tuples: Rows, pages: Any, rows: Any
    ) -> Mask | None:
        """Which pairs have equal keys, not only equal codes, and pass the conditions; None: all."""
        binding = self.context.binding
        if binding.exact or not len(tuples):
            return None
        same = None
        if not binding.codec.exact:
            same = pool.same_keys(part.key_columns(), tuples, pages, rows)
        if self._filter is None:
            return same
        columns = pool.frames.conditions
        if same is None:
            return self._filter.arriving(part, tuples, columns, pages, rows)
        both = np.flatnonzero(same)
        passed = self._filter.arriving(part, tuples[both], columns, pages[both], rows[both])
        if passed is not None:
            same[both] = passed
        return same

    def _leave(self, part: Slice, tuples: Rows, matched: Any) -> None:
        """Count these tuples as served; emit semi-join matches and unmatched tuples."""
        found, stats = int(np.count_nonzero(matched)), self.context.stats
        if self.context.binding.how == "left_semi" and found:
            self.output.emit(part.batch.take(pa.array(tuples[matched])).columns, [])
        if found < len(tuples):
            self.output.emit_unmatched_rows(part.batch, tuples[~matched])
        stats.matched += found
        stats.unmatched += len(tuples) - found

    # -- keys with many rows ---------------------------------------------------------------

    def _begin_long(self, part: Slice, row: int, first: int, last: int) -> int:
        """Start to serve this tuple alone, if it is the next one. Returns 0: none served yet."""
        if row == part.position:
            self._long = LongLookUp(row, first, last)
        return 0

    def resume(self) -> None:
        part, long, pool = self.intake.slice(), self._long, self._pool
        assert long is not None
        assert pool is not None
        if long.rows is None and long.next <= long.last:
            self._next_page(pool, part, long)
        elif long.rows is None:
            self._long = None
            self._leave(part, np.array([long.row]), np.array([long.matched]))
            self.intake.consume(long.row + 1)
            self.iteration_over()
        else:
            most = self.output.most_rows
            rows, long.rows = long.rows[:most], long.rows[most:]
            if not len(long.rows):
                long.rows = None
            tuples = np.full(len(rows), long.row)
            self._emit(pool, part, tuples, np.full(len(rows), long.frame), rows)

    def _next_page(self, pool: BufferPool, part: Slice, long: LongLookUp) -> None:
        frame = pool.fetch(np.array([long.next], np.int32))
        row = np.array([long.row])
        low, high = pool.find(frame, part.codes[row])
        pages, rows = np.repeat(frame, high - low), ranges(low, high - low)
        same = self._same_keys(pool, part, np.full(len(rows), long.row), pages, rows)
        if same is not None:
            rows = rows[same]
        long.next += 1  # not before: a predicate may raise
        long.matched |= len(rows) > 0
        if len(rows) and self.context.binding.keeps_master:
            long.frame, long.rows = int(frame[0]), rows
