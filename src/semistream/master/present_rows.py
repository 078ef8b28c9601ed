"""Counts the rows that a version has with some codes, in compiled code.

An upsert of n random keys of a large table touches n pages: opening each as a record batch took ten
times as long as reading it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semistream.keys import Codes

if TYPE_CHECKING:
    from semistream.master.table import MasterTable

_PAGES = 256  # read together


class PresentRows:
    """Pages are read through one buffer, in the order of their numbers."""

    def __init__(self, table: MasterTable) -> None:
        from semistream.engine.rows.page_opener import PageOpener

        self._table = table
        self._reader: Any = table.reader(_PAGES)
        self._opener = PageOpener(table.page_schema, (), table.code_column)

    def count(self, codes: Codes) -> int:
        """Rows with one of these codes, each of which is given once."""
        low, high = self._table.index.locate_codes(codes)
        counts = np.maximum(high - low + 1, 0)  # a key with many rows continues in the next page
        asking = np.repeat(np.arange(len(codes)), counts)
        nth = np.arange(len(asking)) - np.repeat(np.cumsum(counts) - counts, counts)
        pages, places = np.unique(low[asking] + nth, return_inverse=True)
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

        opened = self._opener.open(read.pages, self._reader.load(read), read.sizes)
        low, high = np.empty(len(codes), np.int64), np.empty(len(codes), np.int64)
        kernels.pages.find(opened.codes, opened.sizes, places.astype(np.int32), codes, low, high)
        return int((high - low).sum())

    def close(self) -> None:
        self._reader.close()
