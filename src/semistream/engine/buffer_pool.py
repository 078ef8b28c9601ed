"""A buffer pool: pages in memory with least-recently-used (LRU) replacement."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.engine.context import Context
from semistream.engine.disk_buffer import count_read
from semistream.engine.rows.page_columns import PageColumns
from semistream.engine.shape import TableShape
from semistream.keys import Codes, Mask
from semistream.master.pages import PageReader, PageSource

PAGE_BYTES = 4  # per page of the table: its frame number
_FRAME_OVERHEAD = 1024  # links, stamp, and the Python objects around a page
_ROW_SCRATCH = 16  # per row: its code, and its position in code order


def frame_bytes(table: TableShape) -> int:
    """Bytes of one page in the pool, with its codes."""
    return table.buffer_bytes(1) + _ROW_SCRATCH * table.rows_per_page + _FRAME_OVERHEAD


class Frame:
    """One page in the pool."""

    def __init__(self, reader: PageReader, sorted_codes: bool) -> None:
        self.reader = reader
        self._sorted = sorted_codes
        self.page: pa.RecordBatch | None = None
        self.codes: Codes | None = None
        self._order: Any = None

    def find(self, codes: Codes) -> tuple[Any, Any]:
        """For each code, the start and end of its rows in code order."""
        assert self.codes is not None
        if self._order is None and not self._sorted:
            self._order = np.argsort(self.codes, kind="stable")
        low = np.searchsorted(self.codes, codes, side="left", sorter=self._order)
        return low, np.searchsorted(self.codes, codes, side="right", sorter=self._order)

    def rows(self, positions: Any) -> Any:
        """Page rows at these positions."""
        return positions if self._order is None else self._order[positions]

    def clear(self) -> None:
        self.page = self.codes = self._order = None


class BufferPool:
    """Maps page numbers to frames, and finds keys in their pages."""

    def __init__(
        self, context: Context, source: PageSource, table: TableShape, frames: int
    ) -> None:
        self._context = context
        binding = context.binding
        self._exact = binding.codec.exact
        self._frame_bytes = frame_bytes(table)
        self.frames = [Frame(source.reader(1, context.direct), self._exact) for _ in range(frames)]
        self._frame_of = np.full(table.num_pages, -1, np.int32)
        self._page_in = np.full(frames, -1, np.int32)
        self._code_addresses = np.zeros(frames, np.int64)
        self._sizes = np.zeros(frames, np.int64)
        kinds = source.schema.field
        self.columns = PageColumns([kinds(n).type for n in binding.master_columns], frames)
        self._keys = PageColumns([kinds(n).type for n in binding.master_key], frames)
        self._wave = 0
        self._stamp = np.zeros(frames, np.int64)
        self._older = np.arange(-1, frames, dtype=np.int32)
        self._newer = np.arange(1, frames + 2, dtype=np.int32)
        self._older[0] = frames
        self._newer[-1] = 0
        self._newer[frames - 1] = frames

    @property
    def nbytes(self) -> int:
        return int(len(self.frames) * self._frame_bytes + self._frame_of.nbytes)

    def close(self) -> None:
        for frame in self.frames:
            frame.clear()
            frame.reader.close()

    def fetch(self, pages: Any) -> Any:
        """Read pages into the pool; returns the frames of as many as fit together.

        Requests are processed in order, with the same reads and evictions as single look-ups.
        """
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
            place = int(frames[request])
            self._clear(place)
            try:
                self._load(place, int(pages[request]))
            except BaseException:
                self._cancel(frames[todo[done:]])
                raise
        return frames[:planned]

    def _load(self, place: int, number: int) -> None:
        frame, binding = self.frames[place], self._context.binding
        reader = frame.reader
        frame.page = page = count_read(
            self._context, reader, number, 1, reader.bytes_read, lambda: reader.read(number, 1)
        )[0]
        frame.codes, _ = binding.master_codes(page)
        self._code_addresses[place] = frame.codes.__array_interface__["data"][0]
        self._sizes[place] = len(frame.codes)
        self.columns.put(place, [page.column(n) for n in binding.master_columns])
        if not self._exact:
            self._keys.put(place, [page.column(n) for n in binding.master_key])

    def _cancel(self, frames: Any) -> None:
        """Mark frames as empty whose planned reads did not happen."""
        self._frame_of[self._page_in[frames]] = -1
        self._page_in[frames] = -1
        self._stamp[frames] = 0
        for frame in frames:
            self._clear(int(frame))

    def _clear(self, place: int) -> None:
        self.frames[place].clear()
        self.columns.drop(place)
        self._keys.drop(place)

    def find(self, frames: Any, codes: Codes) -> tuple[Any, Any]:
        """For each code, the start and end of its rows in its frame's page."""
        low, high = np.empty(len(codes), np.int64), np.empty(len(codes), np.int64)
        if self._exact:
            kernels.pages.find(self._code_addresses, self._sizes, frames, codes, low, high)
            return low, high
        for frame in np.unique(frames):
            members = np.flatnonzero(frames == frame)
            low[members], high[members] = self.frames[frame].find(codes[members])
        return low, high

    def rows_at(self, frames: Any, positions: Any) -> Any:
        """Page rows at these positions; where codes are hashes, positions are in code order."""
        if self._exact:
            return positions
        rows = np.empty(len(positions), np.int64)
        for frame in np.unique(frames):
            members = frames == frame
            rows[members] = self.frames[frame].rows(positions[members])
        return rows

    def same_keys(self, keys: list[pa.Array], frames: Any, rows: Any) -> Mask:
        """Whether each key, not only its code, equals the key of its page row."""
        return self._context.binding.codec.same(keys, self._keys.take(frames, rows))
