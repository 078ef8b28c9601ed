"""Counts the rows that a version has with some codes, in compiled code.

An upsert of n random keys of a large table touches n pages: opening each as a record batch took ten
times as long as reading it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semistream.errors import MasterTableError
from semistream.keys import Codes
from semistream.master.index import page_requests
from semistream.master.page_spec import NODE_PARTS, PageSpec

if TYPE_CHECKING:
    from semistream.master.table import MasterTable

_PAGES = 256  # read together


class PresentRows:
    """Pages are read through one buffer, in the order of their numbers."""

    def __init__(self, table: MasterTable) -> None:
        self._table = table
        self._reader: Any = table.reader(_PAGES)
        schema = table.page_schema
        self._spec = PageSpec(schema)
        self._code = self._spec.buffers_of(schema.get_field_index(table.code_column))[1]

    def count(self, codes: Codes) -> int:
        """Rows with one of these codes, each of which is given once."""
        asking, needed = page_requests(*self._table.index.locate_codes(codes))
        pages, places = np.unique(needed, return_inverse=True)
        order = np.argsort(places, kind="stable")
        places, wanted = places[order], codes[asking[order]]
        done = found = 0
        while done < len(pages):
            read = self._reader.plan(pages[done:])
            end = done + len(read.pages)
            begin, stop = np.searchsorted(places, [done, end])
            found += self._found(read, places[begin:stop] - done, wanted[begin:stop])
            done = end
        return found

    def _found(self, read: Any, places: Any, codes: Codes) -> int:
        from semistream import kernels

        there, sizes = self._open(read)
        low, high = np.empty(len(codes), np.int64), np.empty(len(codes), np.int64)
        kernels.pages.find(there, sizes, places.astype(np.int32), codes, low, high)
        return int((high - low).sum())

    def _open(self, read: Any) -> tuple[Any, Any]:
        """The addresses of these pages' codes, and their numbers of rows."""
        from semistream import kernels
        from semistream.kernels.column_forms import PAGE_ROWS

        pages, spec = len(read.pages), self._spec
        codes, rows = np.empty(pages, np.int64), np.empty(pages, np.int64)
        no_columns = np.empty((NODE_PARTS, 0), np.int64), np.empty((PAGE_ROWS, 0, pages), np.int64)
        bad = kernels.page_columns.open_columns(
            self._reader.load(read), read.sizes, spec.nodes, spec.buffers, no_columns[0],
            self._code, no_columns[1], codes, rows,
        )  # fmt: skip
        if bad >= 0:
            raise MasterTableError(
                f"page {read.pages[bad]} of {self._table.path} is damaged; run "
                f"`semistream master verify {self._table.path}`"
            )
        return codes, rows
