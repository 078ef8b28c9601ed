"""The papers' front stage (003, section 3): a tuple-level cache with a frequency recorder.

A master row is admitted when it matches at least ``threshold`` waiting tuples at once, and evicts
the least frequent row. The threshold adapts: it falls while the cache is not full (or evicts next
to nothing), and rises when the cache evicts too much. While the cache is being filled, time is
counted in probes, so the threshold adapts even if nothing is admitted; then in rounds.

| in the paper | here |
|---|---|
| H_R | the rows and their hash table |
| frequency recorder | the lists of entries per frequency |
| thresholdValue | ``threshold`` |

Differences from the paper
--------------------------
- Hits directly behind the tuple that took the last vacant slot are emitted before the next
  iteration, if they are in the same batch.
- An entry is a key with *all* its master rows, so duplicate keys are joined exactly;
  frequencies above 255 count as 255; a key with more than 16 rows is not cached.
- All hot rows of a disk buffer are admitted together and do not evict one another; if they
  would fill more than half of the front stage, only the most frequent are admitted.
- A row that is already cached gets its latest frequency.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.engine.front.cold_rows import ColdRows
from semistream.engine.front.contract import MOST_ROWS_PER_KEY, CacheSize, LookUp
from semistream.engine.rows.layout import NO_MASK, RecordLayout, Rows, ranges
from semistream.engine.rows.row_store import RowStore
from semistream.kernels.states import LISTS
from semistream.keys import Codes, Mask

ENTRY_BYTES = 8 + 4 * 6  # code, bucket, chain, sibling, higher, lower, free slot
_SENTINELS = 8 * LISTS  # of the frequency recorder
_FILLING = 1 / 8  # probes per slot between changes of the threshold, until the cache is full
# Evictions per slot for which the threshold changes, in a round: a visit of the whole table. Where
# hot rows are stored together, one disk buffer in many has them; the others would let it fall.
_CHURN_HIGH, CHURN_MOST, CHURN_LEAST = 1, 1 / 8, 1 / 256
_FULL = 0.98  # of the slots
_NO_SKETCH = np.zeros(0, np.uint8)
_ADOPTED_AT_ONCE = 4096


class FrequencyRecorder:
    """A bounded cache of master rows, ranked by the tuples that they matched on admission."""

    def __init__(self, types: Sequence[pa.DataType], size: CacheSize, threshold: int = 2) -> None:
        capacity = size.capacity
        self.capacity = capacity
        self.threshold = threshold
        self.rows = RowStore(RecordLayout(types), capacity, size.heap)
        self._heads = np.full(max(1, capacity), -1, np.int32)
        self._chain = np.empty(capacity, np.int32)
        self._held = np.empty(capacity, np.int64)
        self._sibling = np.empty(capacity, np.int32)
        self._higher = np.arange(capacity + LISTS, dtype=np.int32)
        self._lower = np.arange(capacity + LISTS, dtype=np.int32)
        self._free = np.arange(capacity, dtype=np.int32)[::-1].copy()
        self._free_count = capacity
        self._probes = 0  # since the threshold was last judged
        self._evicted = 0
        self._rounds = 0.0
        self._cold_rows: ColdRows | None = None

    def watch(self) -> None:
        """Count hits of the coldest rows: only where memory may move, as it costs time."""
        self._cold_rows = ColdRows(self.capacity)

    @staticmethod
    def size_for(types: Sequence[pa.DataType], nbytes: int, heap_per_row: float = 0.0) -> CacheSize:
        """The largest cache that fits into ``nbytes``; its capacity may be 0."""
        layout = RecordLayout(types)
        per_row = layout.slot_bytes + ENTRY_BYTES
        capacity = max(0, int((nbytes - _SENTINELS) / (per_row + heap_per_row)))
        heap = max(0, nbytes - _SENTINELS - capacity * per_row - 64) if heap_per_row else 0
        rows = RowStore.bytes_of(layout, capacity, heap)
        return CacheSize(capacity, heap, rows + capacity * ENTRY_BYTES + _SENTINELS)

    @property
    def nbytes(self) -> int:
        arrays = self._table()
        return int(self.rows.nbytes + sum(a.nbytes for a in arrays) + self._free.nbytes)

    @property
    def count(self) -> int:
        """Rows held."""
        return self.capacity - self._free_count

    def _table(self) -> tuple[Any, ...]:
        return (
            self._heads,
            self._chain,
            self._held,
            self._sibling,
            self._higher,
            self._lower,
        )

    def probe(
        self,
        codes: Codes,
        valid: Mask | None,
        start: int,
        most_misses: int,
        most_pairs: int,
        once: bool,
    ) -> LookUp:
        """Probe the stream tuples from ``start`` on, until the limits or the end are reached."""
        ahead = len(codes) - start
        room = MOST_ROWS_PER_KEY * max(1, ahead)
        hit_rows = np.empty(min(max(most_pairs, MOST_ROWS_PER_KEY), room), np.int64)
        hit_slots = np.empty(len(hit_rows), np.int32)
        miss_rows = np.empty(min(ahead, most_misses), np.int64)
        stop, pairs, misses, hits = kernels.recorder.look_up(
            codes,
            NO_MASK if valid is None else valid,
            start,
            most_misses,
            once,
            self._heads,
            self._chain,
            self._held,
            self._sibling,
            hit_rows,
            hit_slots,
            miss_rows,
        )
        self._probes += stop - start
        if self._cold_rows is not None:
            self._cold_rows.note(hit_slots[:pairs])
        self._adapt()
        return LookUp(stop, hit_rows[:pairs], hit_slots[:pairs], miss_rows[:misses], hits)

    def worth(self, codes: Codes, counts: Any) -> Any:
        """The rank of keys: the number of tuples matched at once, as in the papers."""
        return counts

    def offer(
        self, codes: Codes, counts: Any, frequencies: Any, columns: Sequence[pa.Array], rows: Rows
    ) -> tuple[int, int]:
        """Admit keys with their rows (``counts`` each), evicting the least frequent.

        Returns (rows admitted, rows evicted).
        """
        if len(rows) > self.capacity // 2:  # too many at once: keep the most frequent
            starts = np.cumsum(counts) - counts
            order = np.argsort(-np.asarray(frequencies), kind="stable")
            fit = np.searchsorted(np.cumsum(counts[order]), self.capacity // 2, side="right")
            best = np.sort(order[:fit])
            rows = rows[ranges(starts[best], counts[best])]
            codes, counts, frequencies = codes[best], counts[best], frequencies[best]
        if not len(codes):
            return 0, 0
        evicted = self._make_room(columns, rows)
        self._evicted += evicted
        if self._free_count < len(rows) or self.rows.room(columns, rows) < len(rows):
            return 0, evicted
        return self._enter(codes, counts, frequencies, columns, rows), evicted

    def candidates(self, places: Any, rows: Any, slots: Any, codes: Codes) -> tuple[Any, Any, Any]:
        """The first pair, the rows and the count of each key that matched enough tuples."""
        return kernels.sweep.hot_keys(places, rows, slots, codes, _NO_SKETCH, self.threshold)  # type: ignore[no-any-return]

    def age(self, share: float, tuples: int) -> None:
        """A row keeps its rank; only the watched rows are aged."""
        self._rounds += share
        if self._cold_rows is not None:
            self._cold_rows.age(share)

    @property
    def coldest(self) -> float | None:
        """None while slots are being filled, as empty ones say nothing about the coldest rows."""
        if self._cold_rows is None or (not self._evicted and self.count < _FULL * self.capacity):
            return None
        return self._cold_rows.coldest

    def adopt(self, other: FrequencyRecorder) -> None:
        """Copy the most frequent rows of another recorder with the same columns."""
        entries, ranks = other._entries()
        self.threshold = other.threshold
        for start in range(0, len(entries), _ADOPTED_AT_ONCE):
            some = entries[start : start + _ADOPTED_AT_ONCE]
            slots, counts = kernels.counting_cache.rows_of(some, other._sibling)
            columns = other.rows.take(slots)
            room = min(self._free_count, self.rows.room(columns, np.arange(len(slots))))
            fit = int(np.searchsorted(np.cumsum(counts), room, side="right"))
            rows = np.arange(int(counts[:fit].sum()))
            frequencies = ranks[start : start + fit]
            self._enter(other._held[some[:fit]], counts[:fit], frequencies, columns, rows)
            if fit < len(some):
                break

    def refresh(self) -> None:
        """The hot keys have moved: all rows get the lowest rank, so that others replace them. A
        row never loses its rank otherwise."""
        entries, _ = self._entries()
        ones, slots = np.ones(len(entries), np.int64), np.empty(len(entries), np.int32)
        self._free_count = kernels.recorder.admit(
            self._held[entries], ones, ones, *self._table(), self._free, self._free_count, slots
        )
        if self._cold_rows is not None:
            self._cold_rows = ColdRows(self.capacity)

    def _entries(self) -> tuple[Any, Any]:
        """The first slots of all keys and their frequencies, most frequent first."""
        used = np.ones(self.capacity, np.bool_)
        used[self._free[: self._free_count]] = False
        siblings = self._sibling[used]
        used[siblings[siblings >= 0]] = False
        entries = np.flatnonzero(used).astype(np.int32)
        ends = self._higher.copy()
        ends[self.capacity :] = np.arange(self.capacity, self.capacity + LISTS)  # the sentinels
        ends[np.flatnonzero(~used)] = self.capacity
        while len(entries) and ends[entries].min() < self.capacity:  # each turn looks twice as far
            ends = ends[ends]
        ranks = (ends[entries] - self.capacity).astype(np.int64)
        order = np.argsort(-ranks, kind="stable")
        return entries[order], ranks[order]

    def fill(self, codes: Codes, counts: Any, columns: Sequence[pa.Array], rows: Rows) -> bool:
        """Admit keys permanently, if they fit without evicting; returns whether they did."""
        fits = self._free_count >= len(rows) and self.rows.room(columns, rows) == len(rows)
        if fits:
            self._enter(codes, counts, np.ones(len(codes), np.int64), columns, rows)
        return fits

    def _enter(
        self, codes: Codes, counts: Any, frequencies: Any, columns: Sequence[pa.Array], rows: Rows
    ) -> int:
        slots = np.empty(len(rows), np.int32)
        self._free_count = kernels.recorder.admit(
            codes, counts, frequencies, *self._table(), self._free, self._free_count, slots
        )
        fresh = slots >= 0
        self.rows.put(columns, rows[fresh], slots[fresh])
        return int(fresh.sum())

    def _make_room(self, columns: Sequence[pa.Array], rows: Rows) -> int:
        evicted = self._evict(len(rows))
        wanted = len(rows)
        while self.count and self.rows.room(columns, rows) < len(rows):
            wanted = max(wanted, self._free_count) + len(rows)
            evicted += self._evict(min(wanted, self.capacity))
        return evicted

    def _evict(self, rows: int) -> int:
        before = self._free_count
        if before >= rows:
            return 0
        self._free_count = kernels.recorder.evict(rows, *self._table(), self._free, before)
        self.rows.free(self._free[before : self._free_count])
        return int(self._free_count - before)

    def _adapt(self) -> None:
        """Adapt the threshold, if enough has happened since it was last judged.

        A cache that evicts is full: long texts may fill the heap before all slots are used.
        """
        if not self._evicted and self.count < _FULL * self.capacity:
            if self._probes < _FILLING * self.capacity:
                return
            self.threshold -= self.threshold // 4 or 1
        elif self._rounds < 1.0:
            return
        elif self._evicted > _CHURN_HIGH * self.capacity:
            self.threshold += 1 + self.threshold // 2
        elif self._evicted > CHURN_MOST * self.capacity:
            self.threshold += 1 + self.threshold // 8
        elif self._evicted < CHURN_LEAST * self.capacity:
            self.threshold -= 1
        self.threshold = max(1, self.threshold)
        self._restart()

    def _restart(self) -> None:
        self._probes = self._evicted = 0
        self._rounds = 0.0

    def forget(self, codes: Codes) -> int:
        """Drop these keys: their rows have changed. Returns the rows dropped."""
        before = self._free_count
        self._free_count = kernels.recorder.drop(codes, *self._table(), self._free, before)
        self.rows.free(self._free[before : self._free_count])
        return int(self._free_count - before)

    def clear(self) -> int:
        dropped = self._evict(self.capacity)
        self._restart()
        if self._cold_rows is not None:
            self._cold_rows = ColdRows(self.capacity)  # those that it counted are gone
        return dropped
