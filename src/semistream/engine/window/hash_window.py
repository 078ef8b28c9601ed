"""The window of the published joins: waiting stream tuples in a multi-hash-map, in arrival order.

Two kinds, by the order in which tuples leave:

- ``RingWindow`` (MESHJOIN): tuples leave in arrival order, so the slots form a ring and the
  queue needs no links.
- ``QueueWindow`` (HYBRIDJOIN): a matched tuple leaves at once, from anywhere, so the queue is
  a doubly linked list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.engine.rows.layout import NO_MASK, Rows, Slots
from semistream.engine.rows.row_store import RowStore
from semistream.engine.window.tuple_layout import TupleLayout, WindowSize
from semistream.kernels import states
from semistream.keys import Codes, Mask
from semistream.master.index import PageIndex

_QUEUE_SAMPLE = 256  # tuples from which a position in the queue is estimated
_PROVEN_AT_ONCE = 4096  # tuples that are looked at


class HashWindow:
    """Base of both windows: slots, rows, and the multi-hash-map over their codes."""

    slot_bytes = 8 + 4 + 4 + 4 + 1  # code, bucket, chain, dup, state
    extra_bytes = 0  # independent of the number of slots

    def __init__(self, layout: TupleLayout, size: WindowSize) -> None:
        capacity = size.capacity
        self.layout = layout
        self.capacity = capacity
        self.count = 0
        self.rows = RowStore(layout.record, capacity, size.heap)
        self.state = np.full(capacity, states.ABSENT)
        self._heads = np.full(capacity, -1, np.int32)
        nodes = np.empty((capacity, 2), np.int64)  # side by side: a probe touches one cache line
        self.codes = nodes[:, 0]
        self._chain = nodes.view(np.int32)[:, 2]
        self._dup = nodes.view(np.int32)[:, 3]

    @classmethod
    def size_for(
        cls, layout: TupleLayout, nbytes: int, heap_per_tuple: float, longest: int = 0
    ) -> WindowSize:
        """The largest window that fits into ``nbytes``; at least one slot.

        Its heap can hold a tuple of ``longest`` heap bytes.
        """
        nbytes -= cls.extra_bytes
        per_slot = cls.slot_bytes + layout.record.slot_bytes
        slots = min(int(nbytes / (per_slot + heap_per_tuple)), (nbytes - longest - 64) // per_slot)
        capacity = min(max(slots, 1), 2**31 - 2)
        heap = max(0, nbytes - capacity * per_slot - 64)
        rows = RowStore.bytes_of(layout.record, capacity, heap)
        return WindowSize(capacity, heap, rows + capacity * cls.slot_bytes + cls.extra_bytes)

    @classmethod
    def least_bytes(cls, layout: TupleLayout) -> int:
        """Bytes of a window with one slot, without its heap."""
        return cls.slot_bytes + layout.record.slot_bytes + 128

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self.capacity * self.slot_bytes + self.extra_bytes

    @property
    def vacant(self) -> int:
        return self.capacity - self.count

    def probe(
        self,
        page_codes: Codes,
        valid: Mask | None,
        cursor: Any,
        mark: bool,
        once: bool,
        rows: Any,
        slots: Any,
    ) -> int:
        """Pair page rows with waiting tuples; see the kernel."""
        return int(
            kernels.window.probe(
                page_codes,
                NO_MASK if valid is None else valid,
                cursor,
                mark,
                once,
                self._heads,
                self._chain,
                self._dup,
                self.codes,
                self.state,
                rows,
                slots,
            )
        )

    def take(self, slots: Slots) -> list[pa.Array]:
        """The stream's columns for these slots."""
        return self.layout.restore(self.rows.take(slots), self.codes[slots])

    def keys(self, slots: Slots) -> list[pa.Array]:
        return self.layout.keys(self.rows, slots, self.codes[slots])

    def _insert(self, codes: Codes, columns: Sequence[pa.Array], rows: Rows, slots: Slots) -> None:
        self.rows.put(columns, rows, slots)
        kernels.window.insert(
            codes, rows, slots, self._heads, self._chain, self._dup, self.codes, self.state
        )
        self.count += len(rows)


class RingWindow(HashWindow):
    """Tuples leave in arrival order."""

    def __init__(self, layout: TupleLayout, size: WindowSize) -> None:
        super().__init__(layout, size)
        self._first = 0
        self._arrived = 0

    def add(self, codes: Codes, columns: Sequence[pa.Array], rows: Rows) -> int:
        """Admit as many of these tuples as fit; returns how many."""
        fit = self.rows.room(columns, rows[: self.vacant])
        if fit:
            start = self._first + self.count
            slots = (np.arange(start, start + fit) % self.capacity).astype(np.int32)
            self._insert(codes, columns, rows[:fit], slots)
            self._arrived += fit
        return fit

    @property
    def place(self) -> tuple[int, int]:
        """The tuples that arrived so far, and those that are left: different tuples have another
        place. The first slot would not do: a whole ring of tuples may replace another."""
        return self._arrived, self.count

    def oldest(self, count: int) -> Slots:
        positions = np.arange(self._first, self._first + count)
        return (positions % self.capacity).astype(np.int32)

    def newest(self, count: int) -> Slots:
        start = self._first + self.count - count
        return (np.arange(start, start + count) % self.capacity).astype(np.int32)

    @property
    def first(self) -> int:
        """The slot of the oldest tuple."""
        return self._first

    def expire(self, count: int) -> None:
        """Remove the oldest ``count`` tuples."""
        self.rows.free(self.oldest(count))
        kernels.window.expire(
            self._first, count, self.capacity, self._heads, self._chain, self._dup, self.codes
        )
        self._first = (self._first + count) % self.capacity
        self.count -= count


class SortedRingWindow(RingWindow):
    """The same, with room for the order of its tuples by a value, which a scan keeps beside it."""

    slot_bytes = RingWindow.slot_bytes + 3 * 8 + 2 * 4  # values, order and slots; and copies


class QueueWindow(HashWindow):
    """Tuples leave in any order; a doubly linked queue keeps the arrival order."""

    slot_bytes = HashWindow.slot_bytes + 4 + 4 + 4 + 4  # older, newer, free slot, born
    extra_bytes = 2 * 4  # the queue's sentinel

    def __init__(self, layout: TupleLayout, size: WindowSize) -> None:
        super().__init__(layout, size)
        links = np.empty((self.capacity + 1, 2), np.int32)
        self._older, self._newer = links[:, 0], links[:, 1]
        self._older[-1] = self._newer[-1] = self.capacity
        self._free = np.arange(self.capacity, dtype=np.int32)[::-1].copy()
        self._free_count = self.capacity
        self.turn = 1
        self.born = np.empty(self.capacity, np.int32)  # the turn in which a tuple arrived
        self._random = np.random.default_rng(0)

    def add(self, codes: Codes, columns: Sequence[pa.Array], rows: Rows) -> int:
        """Admit as many of these tuples as fit; returns how many."""
        fit = self.rows.room(columns, rows[: self.vacant])
        if fit:
            self._free_count -= fit
            slots = self._free[self._free_count : self._free_count + fit][::-1].copy()
            self._insert(codes, columns, rows[:fit], slots)
            self.born[slots] = self.turn
            kernels.window.enqueue(slots, self._older, self._newer)
        return fit

    @property
    def oldest(self) -> int:
        """The slot of the tuple that has waited longest."""
        return int(self._newer[-1])

    def at(self, position: float) -> int:
        """The slot of the tuple at this position of the queue: 0 is the newest, 1 the oldest.

        In between it is estimated from the arrival turns of a sample. Walking there would touch
        a cache line per tuple.
        """
        if position >= 1:
            return self.oldest
        slots = self._random.integers(0, self.capacity, _QUEUE_SAMPLE)
        slots = slots[self.state[slots] == states.WAITING]
        if not len(slots):
            return self.oldest
        place = round((1 - position) * (len(slots) - 1))
        return int(slots[np.argsort(self.born[slots], kind="stable")[place]])

    def release(self, most: int) -> list[pa.Array]:
        """Remove up to ``most`` of the oldest tuples; returns the stream's columns."""
        slots = np.empty(min(most, self.count), np.int32)
        kernels.window.oldest(self._newer, slots)
        columns = self.take(slots)
        self.state[slots] = states.ABSENT
        self.remove(np.unique(self.codes[slots]))
        return columns

    def proven(self, index: PageIndex, probed: Any, most: int) -> Slots:
        """Those of the oldest tuples whose page was probed after they arrived: keys are absent."""
        slots = np.empty(min(_PROVEN_AT_ONCE, self.count), np.int32)
        kernels.window.oldest(self._newer, slots)
        low, high = index.locate_codes(self.codes[slots])
        is_single = low == high
        if index.has_spanning_keys:  # a page of the base that cuts a key proves nothing
            before = index.continues[np.maximum(low - 1, 0)] & (low > 0)
            is_single &= (low >= index.base_pages) | ~(index.continues[low] | before)
        is_probed = self.born[slots] < probed[np.where(is_single, low, 0)] if len(probed) else False
        proven: Slots = slots[(low > high) | (is_single & is_probed)][:most]
        return proven

    def with_code(self, code: int, start: int, most: int) -> tuple[Slots, int]:
        """Slots of waiting tuples with this code, and where to resume (-1: there are no more)."""
        slots = np.empty(most, np.int32)
        found, following = kernels.window.tuples_of(
            code, start, self._heads, self._chain, self._dup, self.codes, slots
        )
        return slots[:found], following

    def remove(self, codes: Codes) -> int:
        """Remove the tuples with these codes that are marked, matched or absent; returns their
        number."""
        before = self._free_count
        self._free_count = kernels.window.settle(
            codes,
            self._heads,
            self._chain,
            self._dup,
            self.codes,
            self.state,
            self._older,
            self._newer,
            self._free,
            before,
        )
        self.rows.free(self._free[before : self._free_count])
        left = int(self._free_count - before)
        self.count -= left
        return left
