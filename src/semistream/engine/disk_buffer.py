"""The disk buffer: the pages that were read last, and the read counters.

A *partition* is a range of pages. It is scanned in buffer-sized reads; a :class:`Scan` is the
cursor (partition, page, row, tuple), so that a scan can resume after any output batch or failed
read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from semistream.engine.context import Context
from semistream.engine.page_rows import AddressedRows, BatchRows, Openers, PageRows
from semistream.engine.rows.page_columns import PageColumns
from semistream.keys import Codes, Mask
from semistream.master.index import PageIndex
from semistream.master.pages import PageSource

Read = TypeVar("Read")


class DiskBuffer:
    """Reads up to ``pages`` pages at a time, and updates the read counters."""

    def __init__(self, context: Context, source: PageSource, pages: int) -> None:
        self._context = context
        self._source = source
        self.pages = pages
        self.reader: Any = source.reader(pages, context.direct)
        self._openers = Openers(source)

    @property
    def nbytes(self) -> int:
        return int(self.reader.nbytes)

    def close(self) -> None:
        self.reader.close()

    def resize(self, pages: int) -> None:
        """Hold up to this many pages instead. If this fails, it holds none until it is repeated."""
        self.reader.close()
        self.pages = 0
        self.reader = self._source.reader(pages, self._context.direct)
        self.pages = pages

    def read(self, first: int, count: int) -> list[pa.RecordBatch]:
        reader = self.reader
        return self._counted(first, count, lambda: reader.read(first, count))

    def fill(self, scan: Scan) -> None:
        """Read the next pages of the scan's partition."""
        numbers = scan.following(self.pages)
        first, count = int(numbers[0]), len(numbers)
        rows: PageRows
        if self._source.can_address:
            read = self.reader.plan(numbers)
            addresses = self._counted(first, count, lambda: self.reader.load(read))
            rows = AddressedRows(self._openers, numbers, addresses, read.sizes)
        else:
            rows = BatchRows(self.read(first, count), self._context.binding)  # adjacent pages
        scan.fill(rows)
        scan.first = first
        if self._source.index is not None:
            scan.hide(self._source.index)
        if not self._context.binding.has_key:
            scan.codes = np.zeros(len(scan.codes), np.int64)  # every row meets every tuple
        scan.passed(count)

    def _counted(self, first: int, count: int, read: Callable[[], Read]) -> Read:
        reader = self.reader
        return count_read(self._context, reader, first, count, reader.bytes_read, read)


def count_read(
    context: Context,
    reader: Any,
    first: int,
    count: int,
    before: int,
    read: Callable[[], Read],
) -> Read:
    """Run a read and count it; ``before`` is the reader's ``bytes_read`` before it started."""
    started = context.clock()
    pages = read()
    nbytes = reader.bytes_read - before
    context.stats.pages_read += count
    context.stats.bytes_read += nbytes
    context.observer.page_read(first, count, nbytes, context.clock() - started)
    return pages


class Scan:
    """The position in a partition: pages ``next`` to ``last`` are still to be read.

    The pages in the disk buffer are probed together, as one run of rows. ``Scan(0, -1)`` is a
    partition without pages. ``wanted``: only these pages; default: all.
    """

    def __init__(self, first: int, last: int, wanted: Any = None) -> None:
        self.begin = first  # number of the partition's first page
        self.next = first
        self.last = last
        self.first = first  # number of the first page in the buffer
        self._rows: PageRows | None = None  # of the pages in the buffer, not fully probed
        self.codes: Codes = np.zeros(0, np.int64)
        self.valid: Mask | None = None
        self.counts: Any = None  # tuples that each row met
        self.cursor = np.array([0, -1], np.int64)  # row and slot to go on with; -1: a row's first
        self._wanted = wanted
        if wanted is not None and not len(wanted):
            self.next = last + 1

    def following(self, most: int) -> Any:
        """The next pages to read, at most this many."""
        if self._wanted is None:
            return np.arange(self.next, min(self.next + most, self.last + 1))
        return self._wanted[:most]

    def passed(self, count: int) -> None:
        """So many of them were read."""
        if self._wanted is None:
            self.next += count
            return
        self._wanted = self._wanted[count:]
        self.next = int(self._wanted[0]) if len(self._wanted) else self.last + 1

    @property
    def pages(self) -> int:
        """Pages in the buffer that are not fully probed."""
        return 0 if self._rows is None else self._rows.pages

    @property
    def ended(self) -> bool:
        return self._rows is None and self.next > self.last

    def fill(self, rows: PageRows) -> None:
        """Start with pages that were read into the buffer."""
        self._rows = rows
        self.codes, self.valid = rows.codes, rows.valid
        self.counts = np.zeros(len(self.codes), np.int32)
        self.cursor[:] = 0, -1

    def clear(self) -> None:
        """The pages in the buffer are done with."""
        self._rows = None

    def hide(self, index: PageIndex) -> None:
        """Rows that a delta has replaced or deleted are not valid. For joins that probe whole
        pages; one that looks a tuple up where the index locates its key never meets such rows."""
        assert self._rows is not None
        shown = index.visible(self.first, self.codes, self._rows.ends)
        if shown is not None:
            self.valid = shown if self.valid is None else self.valid & shown

    def take(self, rows: Any, names: list[str]) -> list[pa.Array]:
        """These columns of these rows of the buffer."""
        return self.columns(names).take(*self.places(rows))

    def columns(self, names: Sequence[str]) -> PageColumns:
        """These columns of all pages in the buffer."""
        assert self._rows is not None
        return self._rows.columns(names)

    def places(self, rows: Any) -> tuple[Any, Any]:
        """The page of each of these buffer rows, and the row within that page."""
        assert self._rows is not None
        return self._rows.places(rows)
