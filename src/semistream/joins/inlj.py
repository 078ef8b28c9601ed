"""INLJ, the index nested loop join (000, 004), with its budget as a buffer pool of pages.

Each tuple looks its key up by the index, one after the other; the page comes from the buffer
pool or, if it is not there, from disk in the place of the least recently used one.

Nothing waits: a tuple is served in the push that brought it.

Differences from the papers
---------------------------
- 004 gives INL a buffer pool as large as MESHJOIN's memory, 000 none; ours is the budget.
- Tuples are taken in waves. The pool is walked tuple by tuple, exactly as one look-up after the
  other would, but the pages of a wave are joined page by page: the same reads in the same
  order, fewer calls. A wave ends before a page that it still needs would be replaced.
- Our index knows first keys of pages, so a missing key costs the read of the page where it would
  be. A null key matches nothing and costs nothing.
- Master keys may repeat, also over several pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.joins.contract import Join
from semistream.joins.intake import IntakeRun, Slice
from semistream.joins.page_rows import PageColumns
from semistream.joins.rows import Rows, ranges
from semistream.joins.run import Run
from semistream.keys import Codes, Mask
from semistream.master.pages import PageReader, PageSource

_MOST_FRAMES = 1 << 14
_FRAME_OVERHEAD = 1024  # links, stamp, and the Python objects around a page


@dataclass(frozen=True, kw_only=True)
class IndexNestedLoopJoin(Join):
    """INLJ: one index look-up per tuple, through a buffer pool.

    >>> IndexNestedLoopJoin(memory="50MB").name
    'inlj'
    """

    name: ClassVar[str] = "inlj"

    @classmethod
    def _run_class(cls) -> type[Run]:
        return InljRun


class Frame:
    """One page in the pool."""

    def __init__(self, reader: PageReader, sorted_codes: bool) -> None:
        self.reader = reader
        self._sorted = sorted_codes
        self.page: pa.RecordBatch | None = None
        self.codes: Codes | None = None
        self._order: Any = None

    def find(self, codes: Codes) -> tuple[Any, Any]:
        """For each code the positions of its rows, from and to, in code order."""
        assert self.codes is not None
        if self._order is None and not self._sorted:
            self._order = np.argsort(self.codes, kind="stable")
        low = np.searchsorted(self.codes, codes, side="left", sorter=self._order)
        return low, np.searchsorted(self.codes, codes, side="right", sorter=self._order)

    def rows(self, positions: Any) -> Any:
        """Page rows at these positions."""
        return positions if self._order is None else self._order[positions]

    def forget(self) -> None:
        self.page = self.codes = self._order = None


class LongLookUp:
    """A tuple whose rows are too many for one output batch, or lie in several pages."""

    def __init__(self, row: int, first: int, last: int) -> None:
        self.row = row
        self.next = first
        self.last = last
        self.rows: Any = None  # of the page in ``frame``, still to go out
        self.frame = -1
        self.matched = False


class InljRun(IntakeRun):
    def _attach(self, source: PageSource) -> None:
        self._source = source
        self._frames: list[Frame] = []
        self._long: LongLookUp | None = None
        self._wave = 0
        first = source.reader(1, self._direct)
        self._frame_bytes = first.nbytes + self._page_scratch() + _FRAME_OVERHEAD
        first.close()

    def _detach(self) -> None:
        for frame in self._frames:
            frame.forget()
            frame.reader.close()
        self._frames = []

    def _page_scratch(self) -> int:
        rows = self._source.max_page_bytes // max(1, int(self._source.row_bytes) or 1)
        return 16 * (rows + 1)

    def _recorder_bytes(self) -> int:
        """The temporary buffer of CINLJ."""
        return 0

    def _hold_least(self) -> int:
        pages = 4 * self._source.num_pages
        return pages + 2 * self._frame_bytes + self._recorder_bytes()

    def _allocate(self, nbytes: int) -> None:
        self._make_pool(nbytes - self._make_front_stage() - self._recorder_bytes())

    def _fit(self) -> None:
        self._divide()  # the pool is of the version before

    def _make_pool(self, nbytes: int) -> None:
        pages = self._source.num_pages
        self._frame_of = np.full(pages, -1, np.int32)
        frames = (nbytes - self._frame_of.nbytes) // self._frame_bytes
        frames = int(max(1, min(frames, pages, _MOST_FRAMES)))
        exact = self._binding.codec.exact
        self._frames = [Frame(self._source.reader(1, self._direct), exact) for _ in range(frames)]
        self._page_in = np.full(frames, -1, np.int32)
        self._code_addresses = np.zeros(frames, np.int64)
        self._sizes = np.zeros(frames, np.int64)
        kinds = {name: self._source.schema.field(name).type for name in self._source.schema.names}
        self._out_columns = PageColumns([kinds[n] for n in self._binding.master_columns], frames)
        self._key_columns = PageColumns([kinds[n] for n in self._binding.master_key], frames)
        self._stamp = np.zeros(frames, np.int64)
        self._older = np.arange(-1, frames, dtype=np.int32)
        self._newer = np.arange(1, frames + 2, dtype=np.int32)
        self._older[0] = frames
        self._newer[-1] = 0
        self._newer[frames - 1] = frames

    def _window_bytes(self) -> int:
        return self._recorder_bytes() if self._stream else 0

    def _disk_bytes(self) -> int:
        if not self._frames:
            return 0
        return int(len(self._frames) * self._frame_bytes + self._frame_of.nbytes)

    @property
    def _held(self) -> int:
        return 0

    @property
    def _busy(self) -> bool:  # type: ignore[override]
        return self._long is not None

    # -- a wave of look-ups ----------------------------------------------------------------

    def _admit(self) -> None:
        self._iteration_begins()
        served = self._admit_to(self._most_rows, self._look_up_pages)
        self._full = False
        if served:
            self._iteration_ends()

    def _begin(self) -> None:
        """Nothing waits, so there is never an iteration to begin."""

    def _look_up_pages(self, codes: Codes, columns: Any, misses: Rows) -> int:
        """Serve tuples ``misses`` of the current slice in order; returns how many were served."""
        part = self._next_slice()
        if not self._source.num_pages:
            self._settle(part, misses, np.zeros(len(misses), np.bool_))
            return len(misses)
        low, high = self._locate(part, misses)
        first = int(misses[0])
        several = np.flatnonzero(low != high)
        if len(several):
            misses = misses[: several[0]]
            if not len(misses):
                return self._begin_long(part, first, int(low[0]), int(high[0]))
        frames = self._fetch(low[: len(misses)].astype(np.int32))
        served = self._join_wave(part, misses[: len(frames)], frames)
        return served or self._begin_long(part, first, int(low[0]), int(low[0]))

    def _locate(self, part: Slice, rows: Rows) -> tuple[Any, Any]:
        index = self._source.index
        assert index is not None
        return index.locate(self._keys(part, rows))

    def _keys(self, part: Slice, rows: Rows) -> list[pa.Array]:
        taken = pa.array(rows)
        keys = [part.batch.column(name).take(taken) for name in self._binding.stream_key]
        return self._binding.codec.adopt(keys)

    def _join_wave(self, part: Slice, tuples: Rows, frames: Any) -> int:
        """Join tuples with their frames' pages, as many as one output batch holds."""
        low, high = self._find(frames, part.codes[tuples])
        counts = high - low
        served = int(np.searchsorted(np.cumsum(counts), self._most_rows, side="right"))
        if not served:
            return 0
        owner = np.repeat(np.arange(served), counts[:served])
        pages = frames[owner]
        rows = self._rows_at(pages, ranges(low[:served], counts[:served]))
        if not self._binding.codec.exact:
            same = self._same_keys(part, tuples[owner], pages, rows)
            owner, pages, rows = owner[same], pages[same], rows[same]
        matched = np.zeros(served, np.bool_)
        matched[owner] = True
        self._emit_matches(part, tuples[owner], pages, rows)
        self._remember(part, tuples[:served], frames[:served], matched)
        self._settle(part, tuples[:served], matched)
        return served

    def _find(self, frames: Any, codes: Codes) -> tuple[Any, Any]:
        """For each code the positions of its rows in its frame's page, from and to."""
        low, high = np.empty(len(codes), np.int64), np.empty(len(codes), np.int64)
        if self._binding.codec.exact:
            kernels.pages.find(self._code_addresses, self._sizes, frames, codes, low, high)
            return low, high
        for frame in np.unique(frames):
            members = np.flatnonzero(frames == frame)
            low[members], high[members] = self._frames[frame].find(codes[members])
        return low, high

    def _rows_at(self, frames: Any, positions: Any) -> Any:
        """Page rows at these positions; where codes are hashes, positions are in code order."""
        if self._binding.codec.exact:
            return positions
        rows = np.empty(len(positions), np.int64)
        for frame in np.unique(frames):
            members = frames == frame
            rows[members] = self._frames[frame].rows(positions[members])
        return rows

    def _same_keys(self, part: Slice, tuples: Rows, pages: Any, rows: Any) -> Mask:
        """Codes were equal; which keys are?"""
        master = self._key_columns.take(pages, rows)
        return self._binding.codec.same(self._keys(part, tuples), master)

    def _emit_matches(self, part: Slice, tuples: Rows, pages: Any, rows: Any) -> None:
        if self._binding.keeps_master and len(tuples):
            stream = part.batch.take(pa.array(tuples)).columns
            self._emit(stream, self._out_columns.take(pages, rows))

    def _remember(self, part: Slice, tuples: Rows, frames: Any, matched: Any) -> None:
        """For CINLJ: rows that were just fetched may become cached."""

    def _settle(self, part: Slice, tuples: Rows, matched: Any) -> None:
        """These tuples are served; the ones that ``how`` wants as they are go out now."""
        found = int(matched.sum())
        if self._binding.how == "left_semi" and found:
            self._emit(part.batch.take(pa.array(tuples[matched])).columns, [])
        self._emit_unmatched(part.batch, tuples[~matched])
        self.stats.matched += found
        self.stats.unmatched += len(tuples) - found

    # -- keys with many rows ---------------------------------------------------------------

    def _begin_long(self, part: Slice, row: int, first: int, last: int) -> int:
        """Serve this tuple on its own, once it is the next one. Returns 0: nothing served yet."""
        if row == part.position:
            self._long = LongLookUp(row, first, last)
        return 0

    def _resume(self) -> None:
        part, long = self._next_slice(), self._long
        assert long is not None
        if long.rows is None and long.next <= long.last:
            self._next_page_of(part, long)
        elif long.rows is None:
            self._long = None
            self._settle(part, np.array([long.row]), np.array([long.matched]))
            self._consume(long.row + 1)
            self._iteration_ends()
        else:
            rows, long.rows = long.rows[: self._most_rows], long.rows[self._most_rows :]
            if not len(long.rows):
                long.rows = None
            tuples = np.full(len(rows), long.row)
            self._emit_matches(part, tuples, np.full(len(rows), long.frame), rows)

    def _next_page_of(self, part: Slice, long: LongLookUp) -> None:
        frame = self._fetch(np.array([long.next], np.int32))
        long.next += 1
        row = np.array([long.row])
        low, high = self._find(frame, part.codes[row])
        pages = np.repeat(frame, high - low)
        rows = self._rows_at(pages, ranges(low, high - low))
        if not self._binding.codec.exact:
            rows = rows[self._same_keys(part, np.full(len(rows), long.row), pages, rows)]
        long.matched |= len(rows) > 0
        if len(rows) and self._binding.keeps_master:
            long.frame, long.rows = int(frame[0]), rows

    # -- the pool --------------------------------------------------------------------------

    def _fetch(self, pages: Any) -> Any:
        """Bring pages into the pool; returns the frame of each request of this wave."""
        self._wave += 1
        frames = np.empty(len(pages), np.int32)
        missing = np.empty(len(pages), np.int64)
        planned, reads = kernels.buffer_pool.plan(
            pages,
            self._wave,
            self._frame_of,
            self._page_in,
            self._older,
            self._newer,
            self._stamp,
            frames,
            missing,
        )
        todo = missing[:reads]
        for done, request in enumerate(todo):
            frame = self._frames[frames[request]]
            self._forget(int(frames[request]))
            try:
                frame.page = self._read(frame.reader, int(pages[request]), 1)[0]
            except BaseException:
                self._unplan(frames[todo[done:]])
                raise
            self._loaded(int(frames[request]), frame)
        return frames[:planned]

    def _loaded(self, place: int, frame: Frame) -> None:
        """A page has come into this frame."""
        page = frame.page
        assert page is not None
        frame.codes, _ = self._binding.master_codes(page)
        self._code_addresses[place] = frame.codes.__array_interface__["data"][0]
        self._sizes[place] = len(frame.codes)
        self._out_columns.put(place, [page.column(n) for n in self._binding.master_columns])
        if not self._binding.codec.exact:
            self._key_columns.put(place, [page.column(n) for n in self._binding.master_key])

    def _unplan(self, frames: Any) -> None:
        """These frames' reads did not happen: they hold nothing."""
        self._frame_of[self._page_in[frames]] = -1
        self._page_in[frames] = -1
        self._stamp[frames] = 0
        for frame in frames:
            self._forget(int(frame))

    def _forget(self, place: int) -> None:
        self._frames[place].forget()
        self._out_columns.drop(place)
        self._key_columns.drop(place)
