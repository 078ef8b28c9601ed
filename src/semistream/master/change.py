"""One upsert or delete: its rows in code order, and the codes that it changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.keys import Codes
from semistream.master.changed import ChangedCodes
from semistream.master.codes import KeyCodes
from semistream.master.history import Validity
from semistream.master.merge import joined
from semistream.master.replaced import ReplacedRows
from semistream.master.sort import ExternalSort

if TYPE_CHECKING:
    from semistream.master.table import MasterTable


class Change:
    """``codes`` are the distinct codes of its keys. ``replaced`` is complete after :meth:`rows`."""

    def __init__(self, table: MasterTable, sort: ExternalSort, kind: str, codes: Codes) -> None:
        self._table = table
        self._sort = sort
        self._is_upsert = kind == "upsert"
        history = table.manifest.history if self._is_upsert else None
        self._lookup = ReplacedRows(table, history)
        self._validity = (
            None if history is None else Validity(KeyCodes(table.schema, table.key), history)
        )
        self.codes = codes
        self._present = np.full(len(codes), self._is_upsert)

    @property
    def replaced(self) -> int:
        """Rows of the table that the change replaces or deletes."""
        return self._lookup.count

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The delta's rows: those of an upsert, and those that must be carried over."""
        return self._rows() if self._validity is None else self._validity.added(self._rows())

    def _rows(self) -> Iterator[pa.RecordBatch]:
        codes = self._table.codes
        for batch, carried in self._lookup.pair(self._sort.sorted()):
            new = [batch] if self._is_upsert and batch is not None else []
            for rows in carried:
                self._present[np.searchsorted(self.codes, codes.stored(rows))] = True
            if carried:
                together = joined([*new, *carried])
                order = np.argsort(codes.stored(together), kind="stable")
                yield together.take(pa.array(order))
            else:
                yield from new

    def changed(self) -> ChangedCodes:
        """The codes, after :meth:`rows`."""
        return ChangedCodes(self.codes, self._present)
