"""Buffer offsets of the columns within each page, so that a page is parsed only once.

Arrow finds the buffers of a page by parsing its metadata, which costs as much as joining a
hundred tuples with it. Segments are immutable, so each page is parsed once: the offsets from its
start are recorded, and later reads only add the address.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from semistream.engine.rows.page_columns import PageColumns
from semistream.master.pages import PageSource

_BYTES = 1 + 4 + 4  # per page: known, rows, offset of the keys


class PageMap:
    """Offsets of the key (whose values must be its codes) and of some columns, page by page."""

    def __init__(self, source: PageSource, key: str, names: Sequence[str]) -> None:
        self._key = key
        self._names = list(names)
        self._types = [source.schema.field(name).type for name in names]
        self._columns = PageColumns(self._types, 1)
        pages = source.num_pages
        self._known = np.zeros(pages, np.bool_)
        self._rows = np.zeros(pages, np.int32)
        # The key's values, every column's values (or offsets), every text column's content.
        self._offsets = np.zeros((1 + 2 * len(names), pages), np.int32)
        self._sizes = np.zeros((len(names), pages), np.int32)  # bytes of the contents

    @staticmethod
    def bytes_for(pages: int, columns: int) -> int:
        return pages * (_BYTES + 12 * columns)

    def knows(self, first: int, count: int) -> bool:
        return bool(self._known[first : first + count].all())

    def learn(self, first: int, pages: Sequence[pa.RecordBatch], addresses: Any) -> None:
        """Record the offsets of these pages' columns; pages with nulls stay unknown."""
        columns = PageColumns(self._types, len(pages))
        names = len(self._names)
        for place, page in enumerate(pages):
            columns.put(place, [page.column(name) for name in self._names])
            self._rows[first + place] = page.num_rows
            key = page.column(self._key).buffers()[1]
            self._offsets[0, first + place] = key.address - addresses[place]
        here = slice(first, first + len(pages))
        values, contents, self._sizes[:, here] = columns.offsets_from(addresses)
        self._offsets[1 : 1 + names, here], self._offsets[1 + names :, here] = values, contents
        self._known[here] = columns.all_plain

    def scan(self, first: int, addresses: Any) -> MappedScan:
        """A scan of known pages that were loaded to these addresses."""
        end, names = first + len(addresses), len(self._names)
        at = self._offsets[:, first:end] + addresses
        values, contents, sizes = at[1 : 1 + names], at[1 + names :], self._sizes[:, first:end]
        columns = self._columns.at_addresses(values, contents, sizes)
        return MappedScan(first, columns, at[0], self._rows[first:end])


class MappedScan:
    """Pages in the buffer that are accessed by address, without parsing."""

    mapped: ClassVar[Literal[True]] = True

    def __init__(self, first: int, columns: PageColumns, keys: Any, sizes: Any) -> None:
        self.first = first
        self.columns = columns
        self.keys = keys
        self.sizes = sizes
