"""SweepJoin's window: tuples wait in one list of chunks per stretch of pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.engine.rows.layout import Rows, Slots, ranges
from semistream.engine.rows.message import Message
from semistream.engine.rows.row_store import RowStore
from semistream.engine.window.tuple_layout import TupleLayout, WindowSize
from semistream.joins.sweep.stretches import Stretches
from semistream.keys import Codes

if TYPE_CHECKING:
    from semistream.joins.sweep.visit import Visit

NEVER = 2**31  # more pages than a stretch has
_LARGEST_CHUNK = 64
_CHUNKS_PER_STRETCH = 8  # on average, in a full window: a half-empty chunk costs little
_TUPLE = 8 + 1 + 1  # bytes: code, state, and a share of the lists of slots that are being served
_SPARE_SHARE = 8  # of the chunks that visits free, while spare ones are being gathered
_CHUNK = 4 + 4  # bytes: link, and place in the stack of free chunks


@dataclass(frozen=True)
class StretchWindowSize(WindowSize):
    """``chunk`` adjacent slots make a chunk."""

    chunk: int


class StretchWindow:
    """Slots in chunks, rows, and for every stretch the list of chunks that wait for it.

    A tuple is in its stretch's list until ``collect``, in ``count`` until its visit has served it
    (the policy subtracts it), and in its slot until ``free``, when its output row has been made.
    """

    def __init__(self, layout: TupleLayout, size: StretchWindowSize, stretches: Stretches) -> None:
        chunks = size.capacity // size.chunk
        self.layout = layout
        self.capacity = size.capacity
        self._size = size.chunk
        self.rows = RowStore(layout.record, self.capacity, size.heap)
        self.codes = np.empty(self.capacity, np.int64)
        self.state = np.empty(self.capacity, np.uint8)
        self._next_chunk = np.empty(chunks, np.int32)
        self._free = np.arange(chunks, dtype=np.int32)[::-1].copy()
        self._free_count = chunks
        self.spare = 0  # free chunks that admission leaves, for the next shrink,
        self.most_spare = 0  # and how many it should be: a part of those that visits free
        self.reserve = 0  # further ones that it leaves
        self.count = 0
        self.wait_for(stretches)

    @staticmethod
    def size_for(
        layout: TupleLayout, nbytes: int, heap_per_tuple: float, longest: int, stretches: int
    ) -> StretchWindowSize:
        """The largest window that fits into ``nbytes``; at least one chunk.

        Its heap can hold a tuple of ``longest`` heap bytes.
        """
        bare = _TUPLE + layout.record.slot_bytes + heap_per_tuple
        wanted = int(nbytes / bare) // (_CHUNKS_PER_STRETCH * stretches)
        size = min(max(wanted, 1), _LARGEST_CHUNK)
        per_chunk = size * (_TUPLE + layout.record.slot_bytes) + _CHUNK
        chunks = min(int(nbytes / (bare * size + _CHUNK)), (nbytes - longest - 64) // per_chunk)
        if chunks < 1:
            size, chunks = 1, 1
        chunks = min(max(chunks, 1), (2**31 - 2) // size)
        capacity = chunks * size
        fixed = chunks * _CHUNK + capacity * (_TUPLE + layout.record.slot_bytes)
        heap = max(0, nbytes - fixed - 64)
        rows = RowStore.bytes_of(layout.record, capacity, heap)
        used = rows + chunks * _CHUNK + capacity * _TUPLE
        return StretchWindowSize(capacity, heap, used, size)

    @staticmethod
    def least_bytes(layout: TupleLayout) -> int:
        """Bytes of a window with one slot, without its heap."""
        return _TUPLE + _CHUNK + layout.record.slot_bytes + 128

    def wait_for(self, stretches: Stretches) -> None:
        """Start with empty lists for these stretches."""
        self._stretches = stretches
        self._listed = 0  # tuples in all lists
        self._head = np.full(len(stretches), -1, np.int32)
        self._fill = np.full(len(stretches), self._size, np.int32)

    def follow(self, stretches: Stretches, kept: int) -> None:
        """Wait for other stretches, of which the first ``kept`` are the same. The following ones
        that tuples wait for are the last ones, in the same order."""
        old, head, fill, listed = self._stretches, self._head, self._fill, self._listed
        self.wait_for(stretches)
        moved = min(len(old) - kept, len(stretches) - stretches.own)
        for first, to, count in ((0, 0, kept), (kept, stretches.own, moved)):
            self._head[to : to + count] = head[first : first + count]
            self._fill[to : to + count] = fill[first : first + count]
        self._listed = listed

    def chunks_in(self, nbytes: int) -> int:
        """Chunks that have at least so many bytes together."""
        each = self._size * (_TUPLE + self.layout.record.slot_bytes) + _CHUNK
        return -(-nbytes // each)

    def chunks_of(self, tuples: int) -> int:
        """Chunks that so many tuples fill."""
        return -(-tuples // self._size)

    @property
    def chunks(self) -> int:
        return len(self._next_chunk)

    @property
    def free_chunks(self) -> int:
        return int(self._free_count)

    def shrink(self, chunks: int, found: Sequence[Visit]) -> None:
        """Give back the memory of so many chunks, at least as many of which are free. Tuples in the
        last ones move; ``found`` are the visits whose tuples are in no list any more."""
        size, total = self._size, len(self._next_chunk)
        left = total - chunks
        is_free = np.zeros(total, np.bool_)
        is_free[self._free[: self._free_count]] = True
        moved = left + np.flatnonzero(~is_free[left:])
        vacant = np.flatnonzero(is_free[:left])
        targets, vacant = vacant[: len(moved)], vacant[len(moved) :]
        places = np.arange(total, dtype=np.int32)  # where each chunk is afterwards
        places[moved] = targets
        slots = self._filled(moved, found)
        self._move(slots, places[slots // size] * size + slots % size)
        for visit in found:
            visit.slots = places[visit.slots // size] * size + visit.slots % size
            visit.chunks = places[visit.chunks]
        used = np.flatnonzero(~is_free)
        links = self._next_chunk[used]
        self._next_chunk[places[used]] = np.where(links >= 0, places[links], -1)
        self._head = np.where(self._head >= 0, places[self._head], -1).astype(np.int32)
        self._free[: len(vacant)] = vacant[::-1]
        self._free_count = len(vacant)
        self.spare = max(0, min(self.spare - chunks, self._free_count))
        self.capacity = left * size
        for array, length in (
            (self.codes, self.capacity),
            (self.state, self.capacity),
            (self._next_chunk, left),
            (self._free, left),
        ):
            array.resize(length, refcheck=False)  # in place: nobody else has it
        self.rows.truncate(self.capacity)

    def _filled(self, chunks: Any, found: Sequence[Visit]) -> Any:
        """The slots of these chunks that have a tuple: all but the last ones of a list's newest
        chunk, and of chunks whose tuples a visit has taken those that it names."""
        size, total = self._size, len(self._next_chunk)
        filled = np.full(total, size)
        heads = self._head >= 0
        filled[self._head[heads]] = self._fill[heads]
        is_moved, parts = np.zeros(total, np.bool_), [np.zeros(0, np.int64)]
        is_moved[chunks] = True
        for visit in found:
            parts.append(visit.slots[is_moved[visit.slots // size]].astype(np.int64))
            is_moved[visit.chunks] = False
        listed = np.flatnonzero(is_moved)
        parts.append(ranges(listed * size, filled[listed]))
        return np.concatenate(parts)

    def _move(self, slots: Any, targets: Any) -> None:
        self.codes[targets] = self.codes[slots]
        self.state[targets] = self.state[slots]
        self.rows.move(slots.astype(np.int32), targets.astype(np.int32))

    @property
    def nbytes(self) -> int:
        chunks = self._next_chunk.nbytes + self._free.nbytes
        return self.rows.nbytes + _TUPLE * self.capacity + chunks

    @property
    def vacant(self) -> int:
        """Slots of free chunks; a few more are free at the ends of chunks in use."""
        return int(max(0, self._free_count - self.spare - self.reserve) * self._size)

    def add(
        self,
        codes: Codes,
        columns: Sequence[pa.Array],
        rows: Rows,
        keys: Callable[[Rows], Sequence[pa.Array]],
        page: Any = None,
    ) -> int:
        """Admit as many of these tuples as fit; returns how many. ``keys`` returns key columns of
        rows, for a table that is not in the order of codes. ``page``: the addresses of all columns
        of the batch, instead of ``columns``."""
        rows = rows[: self.rows.room(columns, rows)]
        slots = np.empty(len(rows), np.int32)
        spare = min(self.spare + self.reserve, self._free_count)
        placed, free_count = kernels.sweep.place(
            codes,
            rows,
            self._stretches.of(lambda: keys(rows)),
            self._stretches.firsts,
            max(1, self._stretches.base),
            self._stretches.deltas,
            self._size,
            self._head,
            self._fill,
            self._next_chunk,
            self._free[spare:],
            self._free_count - spare,
            self.codes,
            self.state,
            slots,
        )
        self._free_count = free_count + spare
        if page is None:
            self.rows.put(columns, rows[:placed], slots[:placed])
        else:
            self.rows.put_page(page, self.layout.fixed, rows[:placed], slots[:placed])
        self.count += placed
        self._listed += placed
        return int(placed)

    def take(self, slots: Slots) -> list[pa.Array]:
        """The stream's columns for these slots."""
        return self.layout.restore(self.rows.take(slots), self.codes[slots])

    def write(self, message: Message, slots: Slots) -> None:
        """Write the stream's columns for a few slots."""
        self.layout.write(message, self.rows, slots, self.codes)

    def keys(self, slots: Slots) -> list[pa.Array]:
        return self.layout.keys(self.rows, slots, self.codes[slots])

    @property
    def is_awaited(self) -> bool:
        """Whether a tuple is in the list of a stretch."""
        return self._listed > 0

    def next_needed(self, stretch: int) -> int:
        """The first stretch from this one on, wrapping around, with waiting tuples; or -1."""
        return int(kernels.sweep.next_needed(stretch, self._head)) if self._listed else -1

    def collect(
        self, begin: int, end: int, most: int, dense: int = NEVER, most_tuples: int = NEVER
    ) -> tuple[Slots, Any, int]:
        """Empty the lists of stretches from ``begin`` on whose tuples need at most ``most`` pages
        and are at most ``most_tuples``, or of one that needs ``dense`` or more or has more tuples;
        returns the tuples, their chunks, and the stretch after the last one."""
        slots, chunks, stop = kernels.sweep.collect(
            begin, end, most, most_tuples, dense, self._stretches.first_page, self._size,
            self._head, self._fill, self._next_chunk,
        )  # fmt: skip
        self._listed -= len(slots)
        return slots, chunks, int(stop)

    def cut(self, slots: Slots, chunks: Any, most: int) -> list[tuple[Slots, Any]]:
        """What was collected of one stretch, in parts of at most ``most`` tuples, or one chunk."""
        each = max(1, most // self._size)
        if len(slots) <= most or len(chunks) <= each:
            return [(slots, chunks)]
        ends = np.arange(each, len(chunks), each)
        missing = len(chunks) * self._size - len(slots)  # all chunks but the first one are full
        return list(
            zip(np.split(slots, ends * self._size - missing), np.split(chunks, ends), strict=True)
        )

    def farthest(self, stretch: int) -> int:
        """The last stretch before this one, wrapping around, with waiting tuples; or -1."""
        waiting = np.flatnonzero(self._head >= 0)
        return int(waiting[np.searchsorted(waiting, stretch) - 1]) if len(waiting) else -1

    def pop(self, stretch: int, most: int) -> tuple[Slots, Any]:
        """The newest chunks of a stretch's list, with up to ``most`` tuples and at least one
        chunk; returns the tuples, and their chunks."""
        chunks: list[Any] = []
        count = 0
        while self._head[stretch] >= 0:
            filled = int(self._fill[stretch])
            if chunks and count + filled > most:
                break
            chunk = int(self._head[stretch])
            chunks.append(np.arange(chunk * self._size, chunk * self._size + filled))
            count += filled
            self._head[stretch], self._fill[stretch] = self._next_chunk[chunk], self._size
        self._listed -= count
        slots = np.concatenate(chunks).astype(np.int32)
        return slots, np.array([part[0] // self._size for part in chunks], np.int32)

    def leave(self, slots: Slots) -> None:
        """These tuples no longer wait; their values stay until the output has copied them."""
        self.count -= len(slots)

    def free(self, slots: Slots, chunks: Any) -> None:
        """Release the values of these tuples, and these chunks."""
        self.rows.free(slots)
        if self.spare:  # the last ones are spared, so that few tuples move at the next shrink
            spare = min(self.spare, self._free_count)
            freed = np.sort(np.concatenate([self._free[:spare], chunks]))[::-1]
            self._free[:spare], chunks = freed[:spare], freed[spare:]
        self._free[self._free_count : self._free_count + len(chunks)] = chunks
        self._free_count += len(chunks)
        if self.spare < self.most_spare:
            self.spare = min(self.spare + -(-len(chunks) // _SPARE_SHARE), self.most_spare)
