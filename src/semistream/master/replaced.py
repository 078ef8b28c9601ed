"""The rows of a version that a change replaces, and those that it must carry over.

A change replaces all rows that have one of its *codes*. Where codes are hashes, another key may
share a code with a changed one. The rows of that key are carried over: they are written again,
together with the change. With 64-bit hashes this is rare, but it must be exact.

In a table with history, a change replaces single rows of a key: the others are carried over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from semistream.keys import int64_of
from semistream.keys.distinct import distinct
from semistream.master.changed import contains
from semistream.master.history import END_COLUMN, History
from semistream.master.merge import joined
from semistream.master.present_rows import PresentRows

if TYPE_CHECKING:
    from semistream.master.table import MasterTable

_FEW = 64  # keys, for which compiled code need not be loaded


class ReplacedRows:
    """Looks changed keys up in a table; :attr:`count` is the number of rows that they replace."""

    def __init__(self, table: MasterTable, history: History | None = None) -> None:
        self._table = table
        self._history = history
        self._codes = table.codes
        self._reader = table.reader()
        self._group: pa.RecordBatch | None = None  # the distinct keys of the last code, so far
        # Where codes are keys, there is nothing to carry over, and rows need only be counted.
        self._counts_only = table.codec.exact and history is None
        self._present: PresentRows | None = None
        self.count = 0

    def pair(self, changes: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, list[pa.RecordBatch]]]:
        """Each batch of a change with the rows to carry over, whose codes are not beyond the
        batch's; at the end ``None`` with the last of them. Batches are in code order."""
        names = [*self._codes.key, *([self._codes.column] if not self._codes.codec.native else [])]
        if self._history is not None:
            names.append(self._history.valid_from)
        for batch in changes:
            keys = batch.select(names)
            codes = self._codes.stored(keys)
            # The last code may continue in the next batch: its keys are not complete yet.
            end = int(np.searchsorted(codes, codes[-1], side="left"))
            last, done = keys.slice(end), [keys.slice(0, end)]
            if self._group is not None:
                if self._codes.stored(self._group)[0] == codes[-1]:
                    last = joined([self._group, last])
                else:
                    done.insert(0, self._group)
            self._group = self._distinct(last)
            yield batch, self._carried(joined(done))
        if self._group is not None:
            yield None, self._carried(self._group)

    def _distinct(self, group: pa.RecordBatch) -> pa.RecordBatch:
        """One row per key of rows with the same code; a copy."""
        if self._history is not None:
            return group
        rows = [0]
        if not self._codes.codec.exact:
            keys = self._codes.codec.sortable(self._codes.keys(group))
            rows = sorted({key: row for row, key in enumerate(keys)}.values())
        return group.take(pa.array(rows))

    def _carried(self, changed: pa.RecordBatch) -> list[pa.RecordBatch]:
        """The table's rows that have a code, but not a key, of these changes."""
        table, carried = self._table, []
        codes = self._codes.stored(changed)
        if not table.num_pages or not len(codes):
            return []
        if self._counts_only and len(codes) > _FEW:
            self._present = self._present or PresentRows(table)
            self.count += self._present.count(distinct(codes))
            return []
        for page in _union(*table.index.locate_codes(codes)):
            (batch,) = self._reader.read(int(page))
            here = self._codes.stored(batch)
            changes = contains(codes, here)
            shown = table.index.visible(int(page), here, np.array([len(here)]))
            hit = np.flatnonzero(changes if shown is None else changes & shown)
            kept = (self._other_keys if self._history is None else self._other_rows)(
                batch, hit, changed
            )
            self.count += len(hit) - len(kept)
            if len(kept):
                if self._history is not None:  # the end of their validity is computed again
                    batch = batch.drop_columns([END_COLUMN])
                carried.append(batch.take(pa.array(kept)))
        return carried

    def _other_rows(self, batch: pa.RecordBatch, rows: Any, changed: pa.RecordBatch) -> Any:
        """Of these rows, those whose key and begin of validity are not among the changes."""
        history, codec = self._history, self._codes.codec
        assert history is not None
        if not len(rows):
            return rows
        ours = batch.take(pa.array(rows))
        # Both are in code order: compare with the changes of this page's codes only, as a change
        # of many rows touches many pages.
        here, there = self._codes.stored(ours), self._codes.stored(changed)
        first = int(np.searchsorted(there, here[0], side="left"))
        changed = changed.slice(first, int(np.searchsorted(there, here[-1], side="right")) - first)
        begins, others = (int64_of(some.column(history.valid_from)) for some in (ours, changed))
        if codec.exact:
            there = self._codes.stored(changed)
        else:  # number the keys, as equal codes do not mean equal keys
            numbers: dict[Any, int] = {}
            here, there = (
                np.array(
                    [
                        numbers.setdefault(key, len(numbers))
                        for key in codec.sortable(self._codes.keys(some))
                    ],
                    np.int64,
                )
                for some in (ours, changed)
            )
        return rows[~np.isin(_identities(here, begins), _identities(there, others))]

    def _other_keys(self, batch: pa.RecordBatch, rows: Any, changed: pa.RecordBatch) -> Any:
        """Of these rows, those whose key is not among the changes."""
        codec = self._codes.codec
        if codec.exact or not len(rows):
            return rows[:0]
        codes = self._codes.stored(changed)
        here = self._codes.stored(batch)[rows]
        ours = batch.select(self._codes.key).take(pa.array(rows))
        first = pa.array(np.searchsorted(codes, here))
        differ = ~codec.same(ours.columns, changed.select(self._codes.key).take(first).columns)
        if not differ.any():
            return rows[:0]
        # Another key has the code. The change may have several keys with it, too: compare all.
        among = changed.filter(pa.array(contains(np.sort(here[differ]), codes)))
        known = set(codec.sortable(self._codes.keys(among)))
        suspects = np.flatnonzero(differ)
        keys = codec.sortable(ours.take(pa.array(suspects)).columns)
        return rows[suspects[[key not in known for key in keys]]]


def _identities(keys: Any, begins: Any) -> Any:
    """Pairs of numbers, as values that can be compared."""
    pairs = np.empty(len(keys), np.dtype([("key", np.int64), ("begin", np.int64)]))
    pairs["key"], pairs["begin"] = keys, begins
    return pairs


def _union(low: np.ndarray[Any, Any], high: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The union of ranges in ascending order, as an array of numbers; some may be empty."""
    low, high = low[low <= high], high[low <= high]
    if len(low) == 0:
        return low
    reach = np.zeros(int(high.max()) - int(low.min()) + 2, dtype=np.int64)
    np.add.at(reach, low - low.min(), 1)
    np.add.at(reach, high - low.min() + 1, -1)
    return np.asarray(np.flatnonzero(np.cumsum(reach) > 0) + low.min())
