"""The papers' front stage (003, section 3): a tuple-level cache with a frequency recorder.

A master row enters when it met at least ``threshold`` waiting tuples at once, and then overwrites
the least frequent row. The threshold moves: down while the cache is not full (or next to nothing is
evicted), up when it evicts too much. Time is counted in probes, so that it moves whether or not
anything is admitted.

| in the paper | here |
|---|---|
| H_R | the rows and their hash table |
| frequency recorder | the lists of entries per frequency |
| thresholdValue | ``threshold`` |

Differences from the paper
--------------------------
- Hits that directly follow the tuple which took the last vacant slot go out before the next
  iteration, if they came in the same batch.
- An entry is a key with *all* its master rows, so duplicate keys are joined exactly;
  frequencies above 255 count as 255; a key with more than 16 rows is not cached.
- All rows of a disk buffer that are hot enter together and do not evict one another; if they
  would fill more than half of the front stage, the most frequent ones enter.
- A row that is held already gets the frequency that it met last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.engine.front.contract import MOST_ROWS_PER_KEY, CacheSize, LookUp
from semistream.engine.rows.layout import NO_MASK, RecordLayout, Rows, ranges
from semistream.engine.rows.row_store import RowStore
from semistream.kernels.states import LISTS
from semistream.keys import Codes, Mask

ENTRY_BYTES = 8 + 4 * 6  # code, bucket, chain, sibling, higher, lower, free slot
_SENTINELS = 8 * LISTS  # of the frequency recorder
_FILLING, _CHURNING = 1 / 8, 1  # probes per slot, after which the threshold may move
_CHURN_MOST, _CHURN_LEAST = 1 / 32, 1 / 1024  # rows overwritten per probe
_FULL = 0.98  # of the slots
_NO_SKETCH = np.zeros(0, np.uint8)


class FrequencyRecorder:
    """A bounded cache of master rows, ranked by the tuples that they met when they entered."""

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
        self._probes = 0  # in this round
        self._evicted = 0

    @staticmethod
    def size_for(types: Sequence[pa.DataType], nbytes: int, heap_per_row: float = 0.0) -> CacheSize:
        """The cache that these bytes allow, which may have no row at all."""
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
        hit_rows = np.empty(max(most_pairs, MOST_ROWS_PER_KEY), np.int64)
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
        self._adapt()
        return LookUp(stop, hit_rows[:pairs], hit_slots[:pairs], miss_rows[:misses], hits)

    def worth(self, codes: Codes, counts: Any) -> Any:
        """What keys are ranked by: the tuples that they met at once, as in the papers."""
        return counts

    def offer(
        self, codes: Codes, counts: Any, frequencies: Any, columns: Sequence[pa.Array], rows: Rows
    ) -> tuple[int, int]:
        """Enter keys with their rows (``counts`` each) and frequencies, evicting the rarest.

        Returns (rows admitted, rows evicted).
        """
        if len(rows) > self.capacity // 2:  # too many at once: the most frequent of them
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

    def candidates(self, places: Any, rows: Any, slots: Any, codes: Codes) -> tuple[Any, Any]:
        """The first pair and the count of each page row that met enough tuples."""
        return kernels.sweep.frequent(places, rows, slots, codes, _NO_SKETCH, self.threshold)  # type: ignore[no-any-return]

    def age(self, share: float, tuples: int) -> None:
        """Nothing: a row keeps the rank that it entered with."""

    coldest = None  # hits are not counted

    def fill(self, codes: Codes, counts: Any, columns: Sequence[pa.Array], rows: Rows) -> bool:
        """Enter keys for good, if there is room without evicting anything."""
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
        """Move the threshold, if there were enough probes since it moved last.

        A cache whose rows are overwritten is full: long texts may fill it before its slots do.
        """
        if not self._evicted and self.count < _FULL * self.capacity:
            if self._probes < _FILLING * self.capacity:
                return
            self.threshold -= self.threshold // 4 or 1
        elif self._probes < _CHURNING * self.capacity:
            return
        elif self._evicted > _CHURN_MOST * self._probes:
            self.threshold += 1
        elif self._evicted < _CHURN_LEAST * self._probes:
            self.threshold -= 1
        self.threshold = max(1, self.threshold)
        self._probes = self._evicted = 0

    def forget(self, codes: Codes) -> int:
        """Forget these keys: their rows have changed. Returns the rows dropped."""
        before = self._free_count
        self._free_count = kernels.recorder.drop(codes, *self._table(), self._free, before)
        self.rows.free(self._free[before : self._free_count])
        return int(self._free_count - before)

    def clear(self) -> int:
        return self._evict(self.capacity)
