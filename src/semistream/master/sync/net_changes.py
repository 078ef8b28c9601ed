"""From entries to changes: the last entry of each key, if it differs from the table's row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from semistream.errors import MasterTableError
from semistream.keys import int64_view
from semistream.master.changes import sync_schema
from semistream.master.lookup import matching_rows
from semistream.master.merge import joined
from semistream.master.sync.entries import ABSENT, CHANGE, KEEP, UPSERT, Entries
from semistream.master.sync.same_rows import same_rows

if TYPE_CHECKING:
    from semistream.master.table import MasterTable


class NetChanges:
    """Counts what it found: rows inserted, updated, deleted."""

    def __init__(self, table: MasterTable, entries: Entries, source: str) -> None:
        self._table = table
        self._codes = entries.codes
        self._refuses_repeats = not entries.is_repeatable
        self._source = source
        self._schema = sync_schema(table)
        self.inserted = self.updated = self.deleted = 0

    def of(self, entries: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What differs from the table, in code order, with the columns of ``sync_schema``."""
        for batch in _whole_groups(entries, self._codes.column):
            changed = self._different(self._last_of_each_key(batch))
            if changed.num_rows:
                yield changed

    def _last_of_each_key(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        codes = self._codes.stored(batch)
        change = int64_view(batch.column(CHANGE))
        order = np.lexsort((change, codes))
        codes, change = codes[order], change[order]
        is_last = np.append(codes[1:] != codes[:-1], True)
        group = np.cumsum(is_last) - is_last  # the number of each row's group
        mixed = self._with_several_keys(batch, order, np.flatnonzero(is_last)[group], group)
        chosen = is_last & ~mixed[group]
        if self._refuses_repeats:
            given = np.bincount(group, weights=_is_row(change))
            self._refuse_repeats(batch, order, (given[group] > 1) & chosen)
        places = [order[chosen]]
        for number in np.flatnonzero(mixed):
            places.append(self._last_by_key(batch, order[group == number]))
        return batch.take(pa.array(np.concatenate(places)))

    def _with_several_keys(self, batch: pa.RecordBatch, order: Any, last: Any, group: Any) -> Any:
        """Per group of equal codes, whether it has more than one key: codes may be hashes."""
        mixed = np.zeros(int(group[-1]) + 1, np.bool_)
        if not self._codes.codec.exact and len(mixed) < len(group):
            keys = [column.take(pa.array(order)) for column in self._codes.keys(batch)]
            others = [column.take(pa.array(last)) for column in keys]
            mixed[group[~self._codes.codec.same(keys, others)]] = True
        return mixed

    def _last_by_key(self, batch: pa.RecordBatch, rows: Any) -> Any:
        """The same one by one, for different keys with one code."""
        some = batch.take(pa.array(rows))
        change = int64_view(some.column(CHANGE))
        last: dict[Any, int] = {}
        for place, key in enumerate(self._codes.codec.sortable(self._codes.keys(some))):
            if self._refuses_repeats and key in last and _is_row(change[[last[key], place]]).all():
                self._refuse_repeats(some, np.arange(len(rows)), np.arange(len(rows)) == place)
            last[key] = place
        return rows[sorted(last.values())]

    def _refuse_repeats(self, batch: pa.RecordBatch, order: Any, repeated: Any) -> None:
        if not repeated.any():
            return
        row = int(order[np.flatnonzero(repeated)[0]])
        key = ", ".join(f"{name}={batch.column(name)[row].as_py()!r}" for name in self._codes.key)
        raise MasterTableError(
            f"{self._source} has more than one row with {key}; a table that follows a source has "
            "one row per key. Nothing was changed; remove the duplicates in the source"
        )

    def _different(self, last: pa.RecordBatch) -> pa.RecordBatch:
        change = int64_view(last.column(CHANGE))
        is_upsert = (change != ABSENT) & (change & 3 == UPSERT)
        is_delete = (change == ABSENT) | (change & 3 == 0)
        asked = np.flatnonzero(is_upsert | (is_delete & (change != ABSENT)))
        exists, unchanged = change == ABSENT, np.zeros(len(change), np.bool_)
        if len(asked):
            known, rows = self._current(last.take(pa.array(asked)))
            exists[asked[known]] = True
            ups = is_upsert[asked[known]]
            given = last.select(self._table.schema.names).take(pa.array(asked[known[ups]]))
            unchanged[asked[known[ups]]] = same_rows(given, rows.filter(pa.array(ups)))
        changed = is_upsert & ~unchanged
        removed = is_delete & exists
        self.inserted += int(np.count_nonzero(changed & ~exists))
        self.updated += int(np.count_nonzero(changed & exists))
        self.deleted += int(np.count_nonzero(removed))
        places = np.flatnonzero(changed | removed)
        rows = last.select(self._table.schema.names).take(pa.array(places))
        return pa.RecordBatch.from_arrays(
            [*rows.columns, pa.array(removed[places])], schema=self._schema
        )

    def _current(self, wanted: pa.RecordBatch) -> tuple[Any, pa.RecordBatch]:
        """Which of these keys the table has, by number, and their rows, in the same order."""
        names = self._table.schema.names
        empty = pa.RecordBatch.from_pylist([], schema=self._table.schema)
        parts, numbers = [empty], [np.zeros(0, np.int64)]
        for page, rows, asking in matching_rows(self._table, self._codes.keys(wanted)):
            if len(rows):
                found = page.select(names).take(pa.array(rows))  # copies: the page is overwritten
                parts.append(pa.RecordBatch.from_arrays(found.columns, schema=empty.schema))
                numbers.append(asking)
        return np.concatenate(numbers), joined(parts)


def _is_row(change: Any) -> Any:
    """Whether the entry stands for a row of the source, given or unchanged."""
    return (change != ABSENT) & (change & 3 >= KEEP)


def _whole_groups(batches: Iterator[pa.RecordBatch], column: str) -> Iterator[pa.RecordBatch]:
    """Cut batches so that all rows with one code are in one."""
    held: pa.RecordBatch | None = None
    for batch in batches:
        whole = batch if held is None else joined([held, batch])
        codes = int64_view(whole.column(column))
        end = int(np.searchsorted(codes, codes[-1], side="left"))
        held = whole.slice(end)
        if end:
            yield whole.slice(0, end)
    if held is not None:
        yield held
