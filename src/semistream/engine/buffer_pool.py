"""A buffer pool: pages in memory with least-recently-used (LRU) replacement.

Pages of a master table are read into the frames of one buffer, many with one call, and opened by
address; pages of other sources are record batches.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.engine.context import Context
from semistream.engine.disk_buffer import count_read
from semistream.engine.key_match import KeyMatch
from semistream.engine.page_rows import Openers
from semistream.engine.rows.page_columns import PageColumns
from semistream.engine.shape import TableShape
from semistream.keys import Codes, Mask
from semistream.master.pages import PageSource

PAGE_BYTES = 4  # per page of the table: its frame number
_FRAME_OVERHEAD = 256  # links, stamp, and what reading a page needs
_KEY_BYTES = 32  # addresses of a key column
_ROW_SCRATCH = 16  # per row of a page without codes: its code, and its position in code order


def frame_bytes(table: TableShape) -> int:
    """Bytes of one page in the pool."""
    scratch = 0 if table.can_address else _ROW_SCRATCH * table.rows_per_page
    addresses = table.address_bytes + _KEY_BYTES * len(table.cached_types)
    return table.buffer_bytes(1) + scratch + addresses + _FRAME_OVERHEAD


class Frames(Protocol):
    """The memory of the pool."""

    codes: Any  # addresses of the codes, by frame
    sizes: Any  # rows, by frame
    output: PageColumns
    keys: PageColumns
    cached: PageColumns
    conditions: PageColumns

    def load(self, frames: Any, pages: Any) -> int:
        """Read pages into frames, in order; returns how many were read before one failed."""

    def clear(self, frames: Any) -> None:
        """Forget the pages in these frames."""

    def close(self) -> None: ...


class BufferPool:
    """Maps page numbers to frames, and finds keys in their pages."""

    def __init__(
        self, context: Context, source: PageSource, table: TableShape, frames: int
    ) -> None:
        self._context = context
        self._frame_bytes = frame_bytes(table)
        kind = AddressedFrames if source.can_address else BatchFrames
        self.frames: Frames = kind(context, source, frames)
        self._key_match = None if context.binding.codec.exact else KeyMatch(context.binding)
        self._frame_of = np.full(table.num_pages, -1, np.int32)
        self._page_in = np.full(frames, -1, np.int32)
        self._wave = 0
        self._stamp = np.zeros(frames, np.int64)
        self._older = np.arange(-1, frames, dtype=np.int32)
        self._newer = np.arange(1, frames + 2, dtype=np.int32)
        self._older[0] = frames
        self._newer[-1] = 0
        self._newer[frames - 1] = frames
        self._table = self._frame_of, self._page_in, self._older, self._newer, self._stamp

    @property
    def nbytes(self) -> int:
        return int(len(self._page_in) * self._frame_bytes + self._frame_of.nbytes)

    def close(self) -> None:
        self.frames.close()

    def fetch(self, pages: Any) -> Any:
        """Read pages into the pool; returns the frames of as many as fit together.

        Requests are processed in order, with the same reads and evictions as single look-ups.
        """
        self._wave += 1
        frames = np.empty(len(pages), np.int32)
        missing = np.empty(len(pages), np.int64)
        planned, reads = kernels.buffer_pool.plan(pages, self._wave, *self._table, frames, missing)
        if reads:
            self._load(frames[missing[:reads]], pages[missing[:reads]])
        return frames[:planned]

    def fetch_codes(self, codes: Codes, tuples: Any, firsts: Codes) -> Any:
        """The same for the pages of ``codes[tuples]``, where no key has more than one page and
        ``firsts`` are the first codes of all pages."""
        self._wave += 1
        pages, frames = np.empty((2, len(tuples)), np.int32)
        missing = np.empty(len(tuples), np.int64)
        planned, reads = kernels.buffer_pool.plan_codes(
            codes, tuples, firsts, self._wave, *self._table, pages, frames, missing
        )
        if reads:
            self._load(frames[missing[:reads]], pages[missing[:reads]])
        return frames[:planned]

    def _load(self, frames: Any, pages: Any) -> None:
        self.frames.clear(frames)
        done = 0
        try:
            while done < len(frames):
                done += self.frames.load(frames[done:], pages[done:])
        except BaseException:
            self._cancel(frames[self._lacks(frames)])
            raise

    def _lacks(self, frames: Any) -> Mask:
        """Which of these frames have no page."""
        return np.asarray(self.frames.sizes[frames] < 0)

    def _cancel(self, frames: Any) -> None:
        """Mark frames as empty whose planned reads did not happen."""
        self._frame_of[self._page_in[frames]] = -1
        self._page_in[frames] = -1
        self._stamp[frames] = 0

    def find(self, frames: Any, codes: Codes) -> tuple[Any, Any]:
        """For each code, the start and end of its rows in its frame's page."""
        low, high = np.empty(len(codes), np.int64), np.empty(len(codes), np.int64)
        kernels.pages.find(self.frames.codes, self.frames.sizes, frames, codes, low, high)
        return low, high

    def pair(self, frames: Any, codes: Codes, tuples: Any, most: int) -> tuple[int, Any, Any, Any]:
        """Pair each of these tuples with the rows of its code in its frame's page.

        Returns how many tuples were served, as all their pairs fit into ``most``; and of every pair
        the number of its tuple among them, its frame and its row.
        """
        owners, places = np.empty(most, np.int64), np.empty(most, np.int32)
        rows = np.empty(most, np.int64)
        served, found = kernels.pages.pair(
            self.frames.codes, self.frames.sizes, frames, codes, tuples, owners, places, rows
        )
        return served, owners[:found], places[:found], rows[:found]

    def same_keys(self, batch: PageColumns, tuples: Any, frames: Any, rows: Any) -> Mask | None:
        """Whether the keys of rows ``tuples`` of a batch, not only their codes, equal those of
        these page rows; None if all do."""
        if self._key_match is None:
            return None
        return self._key_match.same_rows(batch, tuples, self.frames.keys, frames, rows)


class AddressedFrames:
    """Frames of one buffer, for pages that compiled code opens by address."""

    def __init__(self, context: Context, source: PageSource, frames: int) -> None:
        binding, openers = context.binding, Openers(source)
        self._context = context
        reader: Any = source.reader(1, context.direct)
        self._reader = reader.frames(frames)
        self.codes = np.zeros(frames, np.int64)
        self.sizes = np.full(frames, -1, np.int64)
        keys = () if binding.codec.exact else binding.master_key  # else they are never compared
        wanted = (
            binding.master_columns, keys, binding.cached_columns, binding.condition_columns
        )  # fmt: skip
        names = [tuple(some) for some in wanted]
        opened = {some: (openers(some), openers(some).columns_for(frames)) for some in names}
        self.output, self.keys, self.cached, self.conditions = (opened[some][1] for some in names)
        # A page is not opened a second time for no columns; without any, it is for its codes.
        self._opened = [opened[some] for some in opened if some] or list(opened.values())

    def load(self, frames: Any, pages: Any) -> int:
        reader = self._reader
        addresses, sizes = count_read(
            self._context, reader, int(pages[0]), len(pages), reader.bytes_read,
            lambda: reader.load(frames, pages),
        )  # fmt: skip
        for opener, columns in self._opened:
            opened = opener.open(pages, addresses, sizes)
            kernels.page_columns.keep(
                frames, opened.columns.addresses, opened.codes, opened.sizes,
                columns.addresses, self.codes, self.sizes,
            )  # fmt: skip
        return len(pages)

    def clear(self, frames: Any) -> None:
        self.sizes[frames] = -1

    def close(self) -> None:
        self._reader.close()


class BatchFrames:
    """Frames that hold record batches, sorted by code."""

    def __init__(self, context: Context, source: PageSource, frames: int) -> None:
        self._context = context
        self._reader = source.reader(1, context.direct)
        self._held: list[Any] = [None] * frames  # batches and codes
        self.codes = np.zeros(frames, np.int64)
        self.sizes = np.full(frames, -1, np.int64)
        binding = context.binding
        self._names = [binding.master_columns, list(binding.master_key), binding.cached_columns]
        if binding.conditions:
            self._names.append(binding.condition_columns)
        self._columns = [
            PageColumns([binding.type_of(name) for name in some], frames) for some in self._names
        ]
        self.output, self.keys, self.cached = self._columns[:3]
        self.conditions = self._columns[-1]

    def load(self, frames: Any, pages: Any) -> int:
        frame, number, reader = int(frames[0]), int(pages[0]), self._reader
        (page,) = count_read(
            self._context, reader, number, 1, reader.bytes_read, lambda: reader.read(number, 1)
        )
        codes, _ = self._context.binding.master_codes(page)
        order = np.argsort(codes, kind="stable")
        page, codes = page.take(pa.array(order)), codes[order]
        self._held[frame] = page, codes
        self.codes[frame], self.sizes[frame] = codes.ctypes.data, len(codes)
        for names, columns in zip(self._names, self._columns, strict=True):
            columns.put(frame, [page.column(name) for name in names])
        return 1

    def clear(self, frames: Any) -> None:
        self.sizes[frames] = -1
        for frame in frames.tolist():
            self._held[frame] = None
            for columns in self._columns:
                columns.drop(frame)

    def close(self) -> None:
        self.clear(np.arange(len(self.sizes)))
        self._reader.close()
