"""A window whose tuples wait in one list of chunks per stretch of pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.joins.rows import Rows, RowStore, Slots
from semistream.joins.window import StreamLayout, Window
from semistream.keys import Codes
from semistream.master.index import PageIndex

_LARGEST_CHUNK = 64
_CHUNKS_PER_STRETCH = 8  # on average, in a full window: a half-empty one costs little
_TUPLE = 8 + 1 + 1  # bytes: code, state, and a share of the lists of slots that are being served
_NO_STRETCHES = np.zeros(0, np.int32)


class Stretches:
    """Neighbouring pages that are read with one request. No key crosses a stretch's end.

    A stretch has at most ``pages`` pages, unless a single key runs through more.
    """

    def __init__(self, index: PageIndex, pages: int) -> None:
        count = len(index.continues)
        ends = np.flatnonzero(~index.continues) + 1  # of pages whose last key goes no further
        bounds, before = [0], 0
        for end in ends.tolist():
            if end - bounds[-1] > pages and before > bounds[-1]:
                bounds.append(before)
            before = end
        self.first_page = np.array([*bounds, count], np.int64)  # an empty master: one, of nothing
        self.index = index
        self.exact = index.codec.exact
        self.firsts = np.zeros(1, np.int64)
        if self.exact and count:
            self.firsts = index.firsts[self.first_page[:-1]].astype(np.int64)

    def __len__(self) -> int:
        return len(self.first_page) - 1

    @property
    def nbytes(self) -> int:
        """With what the window keeps per stretch: the newest chunk, and how full it is."""
        return 8 * (2 * len(self) + 1) + 8 * len(self)

    def of(self, rows: Rows, columns: Sequence[pa.Array]) -> Any:
        """The stretch of each of these tuples, where codes do not tell."""
        if self.exact or not self.first_page[-1]:
            return _NO_STRETCHES
        taken = pa.array(rows)
        low, _ = self.index.locate([column.take(taken) for column in columns])
        return (np.searchsorted(self.first_page[:-1], low, side="right") - 1).astype(np.int32)


class SweepWindow(Window):
    """Slots in chunks, rows, and for every stretch the list of chunks that wait for it."""

    slot_bytes = _TUPLE + 8  # and a chunk's link and place in the stack, at worst

    def __init__(
        self, stream: StreamLayout, nbytes: int, variable_bytes: float, stretches: Stretches
    ) -> None:
        self.stream = stream
        bare = _TUPLE + stream.layout.slot_bytes + variable_bytes
        wanted = int(nbytes / bare) // (_CHUNKS_PER_STRETCH * len(stretches))
        self._size = min(max(wanted, 1), _LARGEST_CHUNK)
        chunks = int(nbytes / (bare * self._size + 8))
        chunks = min(max(chunks, 1), (2**31 - 2) // self._size)
        self.capacity = chunks * self._size
        fixed = chunks * 8 + self.capacity * (_TUPLE + stream.layout.slot_bytes)
        self.rows = RowStore(stream.layout, self.capacity, max(0, nbytes - fixed - 64))
        self.codes = np.empty(self.capacity, np.int64)
        self.state = np.empty(self.capacity, np.uint8)
        self._next_chunk = np.empty(chunks, np.int32)
        self._free = np.arange(chunks, dtype=np.int32)[::-1].copy()
        self._free_count = chunks
        self.count = 0
        self.wait_for(stretches)

    def wait_for(self, stretches: Stretches) -> None:
        """Start with empty lists for these stretches."""
        self._stretches = stretches
        self._head = np.full(len(stretches), -1, np.int32)
        self._fill = np.full(len(stretches), self._size, np.int32)

    @property
    def nbytes(self) -> int:
        chunks = self._next_chunk.nbytes + self._free.nbytes
        return self.rows.nbytes + _TUPLE * self.capacity + chunks

    @property
    def vacant(self) -> int:
        """Slots of free chunks; a few more are free at the ends of chunks in use."""
        return int(self._free_count * self._size)

    def add(
        self, codes: Codes, columns: Sequence[pa.Array], rows: Rows, keys: Sequence[pa.Array]
    ) -> int:
        """Admit as many of these tuples as fit; returns how many."""
        rows = rows[: self.rows.room(columns, rows)]
        slots = np.empty(len(rows), np.int32)
        placed, self._free_count = kernels.sweep.place(
            codes,
            rows,
            self._stretches.of(rows, keys),
            self._stretches.firsts,
            self._size,
            self._head,
            self._fill,
            self._next_chunk,
            self._free,
            self._free_count,
            self.codes,
            self.state,
            slots,
        )
        self.rows.put(columns, rows[:placed], slots[:placed])
        self.count += placed
        return int(placed)

    def next_needed(self, stretch: int) -> int:
        """The first stretch from this one on, going round, that someone waits for, or -1."""
        return int(kernels.sweep.next_needed(stretch, self._head))

    def collect(self, stretch: int) -> tuple[Slots, Any]:
        """All tuples that wait for a stretch, and the chunks they lie in; its list is empty now."""
        slots, chunks = kernels.sweep.collect(
            stretch, self._size, self._head, self._fill, self._next_chunk
        )
        return slots, chunks

    def match(
        self, page_codes: Codes, order: Any, slots: Slots, cursor: Any, once: bool, out: Any
    ) -> int:
        """Pair these tuples with page rows; see the kernels."""
        rows, pairs = out
        if self._stretches.exact:
            found = kernels.sweep.match(
                page_codes, slots, cursor, once, self.codes, self.state, rows, pairs
            )
        else:
            found = kernels.sweep.match_hashes(
                page_codes, order, slots, cursor, once, self.codes, self.state, rows, pairs
            )
        return int(found)

    def match_mapped(self, walk: Any, slots: Slots, cursor: Any, once: bool, out: Any) -> int:
        """The same for pages that are known by their addresses."""
        found = kernels.sweep.match_mapped(
            walk.keys, walk.sizes, slots, cursor, once, self.codes, self.state, *out
        )
        return int(found)

    def free(self, slots: Slots, chunks: Any) -> None:
        """These tuples' values, and these chunks, are no longer needed."""
        self.rows.free(slots)
        self._free[self._free_count : self._free_count + len(chunks)] = chunks
        self._free_count += len(chunks)
