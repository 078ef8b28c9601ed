"""The changes that a source reports, collected and sorted by code.

An entry is a row of the table (only its key, if it is deleted or unchanged) and a number,
``order * 4 + operation``: of several entries of one key, the one with the highest number counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from semistream.master.codes import KeyCodes
from semistream.master.merge import merge_by_code
from semistream.master.progress import Report
from semistream.master.sort import ExternalSort
from semistream.master.storage_types import drop_null_keys, to_storage
from semistream.master.workspace import Workspace

if TYPE_CHECKING:
    from semistream.master.table import MasterTable

DELETE, KEEP, UPSERT = 0, 1, 2
CHANGE = "__change"
ABSENT = -1  # a key of the table of which the source may have nothing: deleted unless it does
Scope = Callable[[pa.RecordBatch], Any]


class Entries:
    """``rows_read`` counts what was read from the source."""

    def __init__(
        self, table: MasterTable, workspace: Workspace, memory: int, report: Report
    ) -> None:
        self.table = table
        self.rows_read = 0
        self.is_repeatable = False
        schema = pa.schema([field.with_nullable(True) for field in table.schema])
        self.codes = KeyCodes(schema.append(pa.field(CHANGE, pa.int64())), table.key)
        self._schema = schema
        self._sort = ExternalSort(self.codes.schema, self.codes.column, memory, workspace.folder)
        self._report = report
        self._total: int | None = None
        self._order = 0
        self._scopes: list[Scope] = []

    def expect(self, rows: int | None) -> None:
        """How many rows will come, for progress."""
        self._total = rows

    def allow_repeats(self) -> None:
        """The source may report a key more than once: the last change counts."""
        self.is_repeatable = True

    def upsert(self, rows: pa.RecordBatch) -> None:
        self.add(rows, UPSERT)

    def delete(self, keys: pa.RecordBatch) -> None:
        """Only the key columns are used."""
        self.add(keys, DELETE)

    def keep(self, keys: pa.RecordBatch) -> None:
        """Keys that the source has, for :meth:`delete_others`. An upsert has precedence."""
        self.add(keys, KEEP, np.zeros(keys.num_rows, np.int64))

    def delete_others(self, scope: Scope | None = None) -> None:
        """Delete all keys of the table, or those in ``scope``, that have no entry.

        ``scope`` returns a mask for rows of the table.
        """
        everything: Scope = lambda rows: np.ones(rows.num_rows, np.bool_)  # noqa: E731
        self._scopes.append(scope or everything)

    def add(self, rows: pa.RecordBatch, operation: Any, order: Any = None) -> None:
        """``operation`` of all rows or of each; ``order``: default the order of the calls."""
        if not rows.num_rows:
            return
        self.rows_read += rows.num_rows
        if order is None:
            order = self._order + np.arange(rows.num_rows, dtype=np.int64)
            self._order += rows.num_rows
        self._sort.add(self._entry(rows, np.asarray(order) * 4 + operation))
        self._report("read", self.rows_read, self._total)

    def sorted(self) -> Iterator[pa.RecordBatch]:
        streams = [self._sort.sorted()]
        if self._scopes:
            streams.append(self._absent())
        return merge_by_code(streams, self.codes.column)

    def _absent(self) -> Iterator[pa.RecordBatch]:
        """The keys of the table that are deleted if the source has no row of them."""
        done, total = 0, self.table.num_rows
        for batch in self.table.coded_batches():
            mask = np.zeros(batch.num_rows, np.bool_)
            for scope in self._scopes:
                mask |= scope(batch)
            keys = batch.select(list(self.table.key)).filter(pa.array(mask))  # copies
            if keys.num_rows:
                yield self._entry(keys, np.full(keys.num_rows, ABSENT))
            done += batch.num_rows
            self._report("compare", done, total)

    def _entry(self, rows: pa.RecordBatch, change: Any) -> pa.RecordBatch:
        names = set(rows.schema.names)
        if names != set(self._schema.names):  # keys only
            key = pa.schema([self._schema.field(name) for name in self.table.key])
            keys = to_storage(rows.select(key.names), key)
            columns = [
                keys.column(field.name)
                if field.name in key.names
                else pa.nulls(rows.num_rows, field.type)
                for field in self._schema
            ]
        else:
            columns = to_storage(rows, self._schema).columns
        schema = self.codes.rows_schema
        entry = pa.RecordBatch.from_arrays([*columns, pa.array(change, pa.int64())], schema=schema)
        return self.codes.add(drop_null_keys(entry, self.table.key))
