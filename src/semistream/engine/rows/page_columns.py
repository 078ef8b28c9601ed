"""Gathers rows from several pages at once.

Arrow's ``take`` works on one page, and a call per page and column costs more than copying the
rows. Here one compiled call per column reads the buffers of all pages. Columns with nulls,
booleans or nested values are not *plain* and fall back to Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.engine.rows.layout import is_large, is_text, width_of
from semistream.errors import MasterTableError


class PageColumns:
    """Buffer addresses of some columns, for a fixed number of pages."""

    def __init__(self, types: Sequence[pa.DataType], places: int) -> None:
        self._types = list(types)
        self._widths = [width_of(kind) or 0 for kind in types]
        self._text = [is_text(kind) for kind in types]
        self._large = [is_large(kind) for kind in types]
        self._pages: list[Any] = [None] * places
        self._values = np.zeros((len(types), places), np.int64)
        self._texts = np.zeros((len(types), places), np.int64)
        self._sizes = np.zeros((len(types), places), np.int64)  # bytes of the texts' contents
        self._plain = np.ones((len(types), places), np.bool_)
        self.known_plain = False

    def at_addresses(self, values: Any, texts: Any, sizes: Any) -> PageColumns:
        """The same columns of other pages, all plain, whose buffers have these addresses."""
        other = PageColumns.__new__(PageColumns)
        other.__dict__.update(self.__dict__)
        other._values, other._texts, other._sizes = values, texts, sizes
        other.known_plain = True
        return other

    @property
    def addresses(self) -> tuple[Any, Any, Any]:
        """Addresses of values and of texts, and the bytes of texts, by column and page."""
        return self._values, self._texts, self._sizes

    @property
    def all_plain(self) -> Any:
        """Per page, whether all columns are plain."""
        return self._plain.all(axis=0)

    def offsets_from(self, addresses: Any) -> tuple[Any, Any, Any]:
        """Offsets of plain columns' buffers from the start of their page; the bytes of texts."""
        return self._values - addresses, self._texts - addresses, self._sizes

    def put(self, place: int, columns: Sequence[pa.Array]) -> None:
        """Set the columns of the page at this place."""
        self._pages[place] = columns
        for i, column in enumerate(columns):
            width, text = self._widths[i], self._text[i]
            plain = not column.null_count and (text or width > 0)
            plain = plain and not pa.types.is_boolean(self._types[i])
            self._plain[i, place] = plain
            if plain and len(column):
                buffers = column.buffers()
                step = (8 if self._large[i] else 4) if text else width
                self._values[i, place] = buffers[1].address + column.offset * step
                if text:
                    self._texts[i, place] = buffers[2].address if buffers[2] else 0
                    self._sizes[i, place] = buffers[2].size if buffers[2] else 0

    def drop(self, place: int) -> None:
        self._pages[place] = None

    def take(self, pages: Any, rows: Any) -> list[pa.Array]:
        """All columns of row ``rows[i]`` of the page at place ``pages[i]``, for every i."""
        pages = pages.astype(np.int64, copy=False)
        rows = rows.astype(np.int64, copy=False)
        used = None if self.known_plain else np.unique(pages)
        return [
            self._gather(i, pages, rows)
            if used is None or self._plain[i, used].all()
            else self.take_with_arrow(i, pages, rows)
            for i in range(len(self._types))
        ]

    def _gather(self, i: int, pages: Any, rows: Any) -> pa.Array:
        kind = self._types[i]
        if not self._text[i]:
            values = np.empty(len(rows) * self._widths[i], np.uint8)
            self.copy_fixed(i, pages, rows, values)
            return pa.Array.from_buffers(kind, len(rows), [None, pa.py_buffer(values)])
        offsets = np.empty(len(rows) + 1, np.int64 if self._large[i] else np.int32)
        content = np.empty(self.measure_text(i, pages, rows, offsets), np.uint8)
        self.copy_text(i, pages, rows, offsets, content)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
        return pa.Array.from_buffers(kind, len(rows), buffers)

    def plain(self, i: int) -> bool:
        """Whether this column is plain in every page, as the three methods below require."""
        return self.known_plain or bool(self._plain[i].all())

    def copy_fixed(self, i: int, pages: Any, rows: Any, values: Any) -> None:
        kernels.pages.gather_fixed(self._values[i], pages, rows, self._widths[i], values)

    def measure_text(self, i: int, pages: Any, rows: Any, offsets: Any, start: int = 0) -> int:
        """Write the texts' offsets in the output, from ``start`` on; returns the last one's end."""
        end = kernels.pages.measure_text(
            self._values[i], self._sizes[i], pages, rows, self._large[i], offsets, start
        )
        if end < 0:
            raise corrupt_text()
        return int(end)

    def copy_text(self, i: int, pages: Any, rows: Any, offsets: Any, content: Any) -> None:
        large = self._large[i]
        kernels.pages.gather_text(
            self._values[i], self._texts[i], pages, rows, large, offsets, content
        )

    def take_with_arrow(self, i: int, pages: Any, rows: Any) -> pa.Array:
        order = np.argsort(pages, kind="stable")
        cuts = np.flatnonzero(np.diff(pages[order])) + 1
        parts = [
            self._pages[pages[members[0]]][i].take(pa.array(rows[members]))
            for members in np.split(order, cuts)
        ]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_arrays(parts).take(pa.array(back))


def corrupt_text() -> MasterTableError:
    """The error for text offsets that point outside the page: the file was modified in use."""
    return MasterTableError(
        "text offsets point outside their page, although the page was valid when first read; files "
        "of a master table must not be modified: restore them from a backup or rebuild the table"
    )
