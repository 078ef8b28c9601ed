"""One upsert, delete or sync: its rows in code order, and the codes that it changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.keys import Codes
from semistream.master.changed import ChangedCodes
from semistream.master.codes import KeyCodes
from semistream.master.history import Validity
from semistream.master.merge import joined
from semistream.master.replaced import ReplacedRows
from semistream.master.sort import ExternalSort

if TYPE_CHECKING:
    from semistream.master.table import MasterTable


DELETED = "__deleted"  # a column of a sync's rows: the key is deleted


class Change:
    """``codes`` are the distinct codes of its keys. ``replaced`` and ``added`` are complete
    after :meth:`rows`."""

    def __init__(self, table: MasterTable, sort: ExternalSort, kind: str, codes: Codes) -> None:
        self._table = table
        self._sort = sort
        self._kind = kind
        history = table.manifest.history if kind == "upsert" else None
        self._lookup = ReplacedRows(table, history)
        self._validity = (
            None if history is None else Validity(KeyCodes(table.schema, table.key), history)
        )
        self.codes = codes
        self._present = np.full(len(codes), kind == "upsert")
        self.added = 0

    @property
    def replaced(self) -> int:
        """Rows of the table that the change replaces or deletes."""
        return self._lookup.count

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The delta's rows: those that are new, and those that must be carried over."""
        return self._rows() if self._validity is None else self._validity.added(self._rows())

    def _rows(self) -> Iterator[pa.RecordBatch]:
        codes = self._table.codes
        for batch, carried in self._lookup.pair(self._sort.sorted()):
            new = self._new(batch)
            for rows in carried:
                self._present[np.searchsorted(self.codes, codes.stored(rows))] = True
            if carried:
                together = joined([*new, *carried])
                order = np.argsort(codes.stored(together), kind="stable")
                yield together.take(pa.array(order))
            else:
                yield from new

    def _new(self, batch: pa.RecordBatch | None) -> list[pa.RecordBatch]:
        """The rows of this part of the change, besides the deleted keys."""
        if batch is None or self._kind == "delete":
            return []
        if self._kind == "sync":
            schema = self._table.page_schema
            kept = batch.filter(pc.invert(batch.column(DELETED))).select(schema.names)
            batch = pa.RecordBatch.from_arrays(kept.columns, schema=schema)
            self._present[np.searchsorted(self.codes, self._table.codes.stored(batch))] = True
        self.added += batch.num_rows
        return [batch] if batch.num_rows else []

    def changed(self) -> ChangedCodes:
        """The codes, after :meth:`rows`."""
        return ChangedCodes(self.codes, self._present)
