"""SweepJoin's front stage: the rows that the stream asks for most, by counts over a long span.

The papers' front stage (:mod:`semistream.joins.front_stage`) ranks a row by what it met when it
was admitted, for ever. Here both sides are counted over the same span, and halved at its end. A
cached row's worth is the number of its hits; a hand that goes round once per span halves them. A
waiting row's worth is the number of tuples that waited for it, which the visit of its page tells
exactly. So, as long as a span is a sweep, the window itself is the frequency sketch. Where every
micro-batch is drained, sweeps are too short to tell a row that is wanted in every tenth of them
from one that never comes again: then a span is so many tuples per cached row, and a real sketch
remembers earlier visits. Rows that fall out of favour leave, and one look at a cold row evicts
nothing hot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.joins.front_stage import MOST_ROWS_PER_KEY, LookUp
from semistream.joins.rows import Layout, Rows, RowStore, ranges
from semistream.keys import Codes, Mask

_COUNTERS = 8  # of the sketch, per row
_SPAN = 4  # tuples per row, at least, after which counts are halved
ENTRY_BYTES = 8 + 4 * 4 + 1  # code, bucket, chain, sibling, free slot, hits
_NONE = np.zeros(0, np.bool_)
_SETS_OF = 8
_ADOPTED_AT_ONCE = 4096


class HotRows:
    """A bounded cache of master rows; ``remembers`` gives it a sketch."""

    def __init__(
        self,
        types: Sequence[pa.DataType],
        nbytes: int,
        variable_bytes: float = 0.0,
        remembers: bool = False,
    ) -> None:
        layout = Layout(types)
        per_row = layout.slot_bytes + ENTRY_BYTES + (_COUNTERS if remembers else 0)
        capacity = max(0, int(nbytes / (per_row + variable_bytes)))
        heap = max(0, nbytes - capacity * per_row - 64) if variable_bytes else 0
        self.capacity = capacity
        self.threshold = 1  # the worth that a row must have to be offered
        self.rows = RowStore(layout, capacity, heap)
        self._heads = np.full(max(1, capacity), -1, np.int32)
        self._chain = np.empty(capacity, np.int32)
        self._held = np.empty(capacity, np.int64)
        self._sibling = np.empty(capacity, np.int32)
        self._hits = np.zeros(capacity, np.uint8)
        self._free = np.arange(capacity, dtype=np.int32)[::-1].copy()
        self._free_count = capacity
        self._sketch = np.zeros(_COUNTERS * capacity if remembers else 0, np.uint8)
        self._hand = 0
        self._due = 0.0
        self._passed = 0.0  # of the span
        self._spans_per_sweep = 1.0
        self._coldest = 0.0

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

    def look_up(
        self,
        codes: Codes,
        valid: Mask | None,
        start: int,
        most_misses: int,
        most_pairs: int,
        once: bool,
    ) -> LookUp:
        """Probe the stream tuples from ``start`` on, until the limits or the end are reached."""
        hit_rows = np.empty(max(most_pairs, MOST_ROWS_PER_KEY), np.int64)
        hit_slots = np.empty(len(hit_rows), np.int32)
        miss_rows = np.empty(min(len(codes) - start, most_misses), np.int64)
        stop, pairs, misses, hits = kernels.hot_rows.look_up(
            codes,
            _NONE if valid is None else valid,
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
        """This share of a sweep has passed, and so many tuples: the hand may go on by as much."""
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
        """Hits per sweep of each row in the quarter that is used least."""
        return self._coldest * self._spans_per_sweep

    def worth(self, codes: Codes, counts: Any) -> Any:
        """So many tuples waited for these keys now; with those of earlier visits, if known."""
        return kernels.hot_rows.count(codes, counts, self._sketch)

    def worthy(self, places: Any, rows: Any, slots: Any, codes: Codes) -> tuple[Any, Any]:
        """Of pairs of page rows and waiting tuples: the first pair and the worth of each row that
        is worth an offer."""
        return kernels.sweep.frequent(places, rows, slots, codes, self._sketch, self.threshold)  # type: ignore[no-any-return]

    def admit(
        self, codes: Codes, counts: Any, frequencies: Any, columns: Sequence[pa.Array], rows: Rows
    ) -> tuple[int, int]:
        """Offer keys with their rows (``counts`` each) and their worth.

        They take free slots, and then those of entries that had fewer hits. Returns (rows
        admitted, rows evicted).
        """
        fresh = kernels.hot_rows.held_entries(codes, *self._table()[:3]) < 0
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
        """Put the chosen keys into free slots, as far as their texts fit, too."""
        chosen = rows[ranges(starts[order], counts[order])]
        fit = self.rows.room(columns, chosen)
        if fit < len(chosen):
            order = order[: np.searchsorted(np.cumsum(counts[order]), fit, side="right")]
            chosen = rows[ranges(starts[order], counts[order])]
        slots = np.empty(len(chosen), np.int32)
        self._free_count = kernels.hot_rows.enter(
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
        """Evict an entry for each of these (largest first) that is worth more; returns the rows."""
        slots, hits, self._hand = kernels.hot_rows.pass_hand(self._hits, self._hand, int(self._due))
        self._due -= int(self._due)
        order = np.argsort(hits, kind="stable")
        # An entry keeps half of its earlier hits, so in the long run it shows twice its worth.
        if len(hits) > 3:
            self._coldest += 0.2 * (hits[order[: len(hits) // 4]].mean() / 2 - self._coldest)
        order = order[: len(frequencies)]
        worth = frequencies[: len(order)]
        # A sketch keeps half of its counts, too, and may count too much: it must be clearly more.
        worth = worth - 1 if len(self._sketch) else 2 * worth
        worth_it = worth > hits[order]
        return self._remove(slots[order[worth_it]])

    def _remove(self, entries: Any) -> int:
        before = self._free_count
        self._free_count = kernels.hot_rows.remove(entries, *self._table(), self._free, before)
        self.rows.free(self._free[before : self._free_count])
        return int(self._free_count - before)

    def _adapt(self, admitted: int, offered: int) -> None:
        """Offer fewer rows when most are turned down, and more when most are taken."""
        if admitted < offered // 2:
            self.threshold = min(self.threshold + 1, 250)
        elif self.threshold > 1 and admitted > offered * 7 // 8:
            self.threshold -= 1

    def adopt(self, other: HotRows) -> None:
        """Take over the most used rows of another one with the same columns."""
        entries = np.flatnonzero(other._hits).astype(np.int32)
        entries = entries[np.argsort(-other._hits[entries].astype(np.int32), kind="stable")]
        # Hot and cold rows stay mixed: what the hand sees of a few must tell of all.
        entries = np.sort(entries[: self.capacity])
        for start in range(0, len(entries), _ADOPTED_AT_ONCE):
            some = entries[start : start + _ADOPTED_AT_ONCE]
            slots, counts = kernels.hot_rows.rows_of(some, other._sibling)
            starts, every = np.cumsum(counts) - counts, np.arange(len(some))
            every = every[: np.searchsorted(np.cumsum(counts), self._free_count, side="right")]
            columns, rows = other.rows.take(slots), np.arange(len(slots))
            hits = other._hits[some].astype(np.int64) - 1
            self._enter(other._held[some], counts, hits, columns, rows, starts, every)

    def drop(self, codes: Codes) -> int:
        """Forget these keys: their rows have changed. Returns the rows dropped."""
        entries = kernels.hot_rows.held_entries(codes, *self._table()[:3])
        return self._remove(np.unique(entries[entries >= 0]))

    def clear(self) -> int:
        return self._remove(np.flatnonzero(self._hits).astype(np.int32))


class KnownAbsent:
    """Keys that a version of the master does not have, as far as it was found out lately."""

    def __init__(self, nbytes: int) -> None:
        self._table = np.empty(nbytes // 9 // _SETS_OF * _SETS_OF, np.int64)
        self._used = np.zeros(len(self._table), np.bool_)
        self._empty = True

    @property
    def nbytes(self) -> int:
        return int(self._table.nbytes + self._used.nbytes)

    def add(self, codes: Codes) -> None:
        if len(codes) and len(self._table):
            self._empty = False
            kernels.hot_rows.remember(codes, self._table, self._used)

    def among(self, codes: Codes, rows: Rows) -> Mask | None:
        """Which of the tuples ``codes[rows]`` are known to match nothing; None for none."""
        if self._empty:
            return None
        return kernels.hot_rows.remembered(codes, rows, self._table, self._used)  # type: ignore[no-any-return]

    def forget(self) -> None:
        """The master has changed: any key may be there now."""
        self._used[:] = False
        self._empty = True
