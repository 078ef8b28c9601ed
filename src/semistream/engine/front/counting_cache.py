"""SweepJoin's front stage: caches the rows that the stream requests most, by aged counts.

The papers' front stage (:mod:`semistream.engine.front.recorder`) ranks a row once, when it is
admitted. Here cached and uncached rows are counted over the same span, and all counts are halved
at its end. A cached row's worth is its number of hits; a clock hand that goes round once per span
halves them. An uncached row's worth is the number of tuples that waited for it, which the visit to
its page counts exactly: as long as a span is one sweep, the window itself is the frequency sketch.
If every micro-batch is drained, sweeps are too short to distinguish a row that every tenth batch
requests from one that is never requested again: then a span is a number of tuples per cached row,
and a real sketch counts requests across visits. Rows that are no longer hot are evicted, and a
single request for a cold row evicts nothing hot.
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
from semistream.keys import Codes, Mask
from semistream.keys.distinct import distinct

ENTRY_BYTES = 8 + 4 * 4 + 1  # code, bucket, chain, sibling, free slot, hits
_SKETCH_COUNTERS = 8  # per row
_SPAN = 4  # minimum tuples per cached row before counts are halved
_ADOPTED_AT_ONCE = 4096
_HAND_AT_ONCE = 1 << 14  # slots, below 1 ms: what is due after a time without evictions is more


class CountingCache:
    """A bounded cache of master rows, ranked by recent hits; ``sketch`` counts other requests."""

    def __init__(self, types: Sequence[pa.DataType], size: CacheSize, sketch: bool = False) -> None:
        capacity = size.capacity
        self.capacity = capacity
        self.threshold = 1  # minimum worth of a row to be offered
        self.rows = RowStore(RecordLayout(types), capacity, size.heap)
        self._heads = np.full(max(1, capacity), -1, np.int32)
        self._chain = np.empty(capacity, np.int32)
        self._held = np.empty(capacity, np.int64)
        self._sibling = np.empty(capacity, np.int32)
        self._hits = np.zeros(capacity, np.uint8)
        self._free = np.arange(capacity, dtype=np.int32)[::-1].copy()
        self._free_count = capacity
        self._sketch = np.zeros(_SKETCH_COUNTERS * capacity if sketch else 0, np.uint8)
        self._hand = 0
        self._due = 0.0
        self._passed = 0.0  # fraction of the current span
        self._spans_per_sweep = 1.0
        self._coldest = 0.0

    def refresh(self) -> None:
        """Nothing to do: counts are halved all the time."""

    def watch(self) -> None:
        """Nothing to do: hits are always counted."""

    @staticmethod
    def size_for(
        types: Sequence[pa.DataType], nbytes: int, heap_per_row: float = 0.0, sketch: bool = False
    ) -> CacheSize:
        """The largest cache that fits into ``nbytes``; its capacity may be 0."""
        layout = RecordLayout(types)
        entry = ENTRY_BYTES + (_SKETCH_COUNTERS if sketch else 0)
        per_row = layout.slot_bytes + entry
        capacity = max(0, int(nbytes / (per_row + heap_per_row)))
        heap = max(0, nbytes - capacity * per_row - 64) if heap_per_row else 0
        return CacheSize(
            capacity, heap, RowStore.bytes_of(layout, capacity, heap) + capacity * entry
        )

    @property
    def nbytes(self) -> int:
        arrays = (*self._table(), self._free, self._sketch)
        return int(self.rows.nbytes + sum(a.nbytes for a in arrays))

    @property
    def count(self) -> int:
        """Rows held."""
        return self.capacity - self._free_count

    def _table(self) -> tuple[Any, ...]:
        return self._heads, self._chain, self._held, self._sibling, self._hits

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
        room = MOST_ROWS_PER_KEY * max(1, len(codes) - start)
        hit_rows = np.empty(min(max(most_pairs, MOST_ROWS_PER_KEY), room), np.int64)
        hit_slots = np.empty(len(hit_rows), np.int32)
        miss_rows = np.empty(min(len(codes) - start, most_misses), np.int64)
        stop, pairs, misses, hits = kernels.counting_cache.look_up(
            codes,
            NO_MASK if valid is None else valid,
            start,
            most_misses,
            once,
            *self._table(),
            hit_rows,
            hit_slots,
            miss_rows,
        )
        return LookUp(stop, hit_rows[:pairs], hit_slots[:pairs], miss_rows[:misses], hits)

    def age(self, share: float, tuples: int) -> None:
        """Let the clock hand advance for ``share`` of a sweep, or for ``tuples`` tuples."""
        part = share
        if len(self._sketch):
            part = min(share, tuples / (_SPAN * self.capacity))
        self._spans_per_sweep += 0.01 * (part / share - self._spans_per_sweep)
        self._due = min(self._due + part * self.capacity, self.capacity)
        self._passed += part
        if self._passed >= 1.0:
            self._passed = 0.0
            self._sketch >>= 1

    @property
    def coldest(self) -> float:
        """Average hits per sweep of the rows in the least used quarter."""
        return self._coldest * self._spans_per_sweep

    def worth(self, codes: Codes, counts: Any) -> Any:
        """Tuples that waited for these keys, including earlier visits if there is a sketch."""
        return kernels.counting_cache.count(codes, counts, self._sketch)

    def candidates(self, places: Any, rows: Any, slots: Any, codes: Codes) -> tuple[Any, Any, Any]:
        """Of pairs of page rows and waiting tuples: the first pair, the rows and the worth of each
        key that reaches the threshold."""
        return kernels.sweep.hot_keys(places, rows, slots, codes, self._sketch, self.threshold)  # type: ignore[no-any-return]

    def offer(
        self, codes: Codes, counts: Any, frequencies: Any, columns: Sequence[pa.Array], rows: Rows
    ) -> tuple[int, int]:
        """Offer keys with their rows (``counts`` each) and their worth.

        They take free slots first, then those of entries with fewer hits. Returns (rows
        admitted, rows evicted).
        """
        fresh = kernels.counting_cache.held_entries(codes, *self._table()[:3]) < 0
        repeated = np.ones(len(codes), np.bool_)  # a key may be offered by two visits
        repeated[np.unique(codes, return_index=True)[1]] = False
        fresh &= ~repeated
        starts = np.cumsum(counts) - counts
        order = np.argsort(-np.asarray(frequencies), kind="stable")
        order = order[fresh[order]]
        ahead = np.cumsum(counts[order])
        spare = self._free_count if self.rows.room(columns, rows) == len(rows) else 0
        free = int(np.searchsorted(ahead, spare, side="right"))
        evicted = self._evict_below(frequencies[order[free:]]) if free < len(order) else 0
        order = order[: np.searchsorted(ahead, spare + evicted, side="right")]
        admitted = self._enter(codes, counts, frequencies, columns, rows, starts, order)
        self._adapt(admitted, int(ahead[-1]) if len(ahead) else 0)
        return admitted, evicted

    def _enter(
        self,
        codes: Codes,
        counts: Any,
        frequencies: Any,
        columns: Sequence[pa.Array],
        rows: Rows,
        starts: Any,
        order: Any,
    ) -> int:
        """Insert the chosen keys into free slots, as many as fit into the heap."""
        chosen = rows[ranges(starts[order], counts[order])]
        fit = self.rows.room(columns, chosen)
        if fit < len(chosen):
            order = order[: np.searchsorted(np.cumsum(counts[order]), fit, side="right")]
            chosen = rows[ranges(starts[order], counts[order])]
        slots = np.empty(len(chosen), np.int32)
        self._free_count = kernels.counting_cache.enter(
            codes[order],
            counts[order],
            frequencies[order],
            *self._table(),
            self._free,
            self._free_count,
            slots,
        )
        self.rows.put(columns, chosen, slots)
        return len(chosen)

    def _evict_below(self, frequencies: Any) -> int:
        """Evict a colder entry, if any, for each frequency, largest first; returns the rows."""
        slots, hits, self._hand = kernels.counting_cache.advance_hand(
            self._hits, self._hand, steps := min(int(self._due), _HAND_AT_ONCE)
        )
        self._due -= steps
        order = np.argsort(hits, kind="stable")
        # Hits are halved once per span, so in the long run the counter shows twice the hits.
        if len(hits) > 3:
            self._coldest += 0.2 * (hits[order[: len(hits) // 4]].mean() / 2 - self._coldest)
        order = order[: len(frequencies)]
        worth = frequencies[: len(order)]
        # Sketch counts are halved, too, and may be too high: require a clear difference.
        worth = worth - 1 if len(self._sketch) else 2 * worth
        worth_it = worth > hits[order]
        return self._remove(slots[order[worth_it]])

    def _remove(self, entries: Any) -> int:
        before = self._free_count
        self._free_count = kernels.counting_cache.remove(
            entries, *self._table(), self._free, before
        )
        self.rows.free(self._free[before : self._free_count])
        return int(self._free_count - before)

    def _adapt(self, admitted: int, offered: int) -> None:
        """Raise the threshold when most offers are rejected, lower it when most are admitted."""
        if admitted < offered // 2:
            self.threshold = min(self.threshold + 1, 250)
        elif self.threshold > 1 and admitted > offered * 7 // 8:
            self.threshold -= 1

    def adopt(self, other: CountingCache) -> None:
        """Copy the most used rows of another cache with the same columns."""
        entries = np.flatnonzero(other._hits).astype(np.int32)
        entries = entries[np.argsort(-other._hits[entries].astype(np.int32), kind="stable")]
        # Keep slots unsorted so that the clock hand samples fairly.
        entries = np.sort(entries[: self.capacity])
        for start in range(0, len(entries), _ADOPTED_AT_ONCE):
            some = entries[start : start + _ADOPTED_AT_ONCE]
            slots, counts = kernels.counting_cache.rows_of(some, other._sibling)
            starts, every = np.cumsum(counts) - counts, np.arange(len(some))
            every = every[: np.searchsorted(np.cumsum(counts), self._free_count, side="right")]
            columns, rows = other.rows.take(slots), np.arange(len(slots))
            hits = other._hits[some].astype(np.int64) - 1
            self._enter(other._held[some], counts, hits, columns, rows, starts, every)

    def forget(self, codes: Codes) -> int:
        """Drop these keys: their rows have changed. Returns the rows dropped."""
        entries = kernels.counting_cache.held_entries(codes, *self._table()[:3])
        return self._remove(distinct(entries[entries >= 0]))

    def clear(self) -> int:
        return self._remove(np.flatnonzero(self._hits).astype(np.int32))
