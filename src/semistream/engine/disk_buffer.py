"""The disk buffer: the pages that were read last, and the read counters.

A *partition* is a range of pages. It is scanned in buffer-sized reads; a :class:`Scan` is the
cursor (partition, page, row, tuple), so that a scan can resume after any output batch or failed
read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import pyarrow as pa

from semistream.engine.binding import Binding
from semistream.engine.context import Context
from semistream.engine.rows.page_columns import PageColumns
from semistream.keys import Codes, Mask
from semistream.master.pages import PageReader, PageSource

Read = TypeVar("Read")


class DiskBuffer:
    """Reads up to ``pages`` pages at a time, and updates the read counters."""

    def __init__(self, context: Context, source: PageSource, pages: int) -> None:
        self._context = context
        self.pages = pages
        self.reader: PageReader = source.reader(pages, context.direct)

    @property
    def nbytes(self) -> int:
        return self.reader.nbytes

    def close(self) -> None:
        self.reader.close()

    def read(self, first: int, count: int) -> list[pa.RecordBatch]:
        reader = self.reader
        return count_read(
            self._context,
            reader,
            first,
            count,
            reader.bytes_read,
            lambda: reader.read(first, count),
        )

    def fill(self, scan: Scan) -> None:
        """Read the next pages of the scan's partition."""
        count = min(self.pages, scan.last - scan.next + 1)
        scan.fill(self.read(scan.next, count), self._context.binding)
        scan.first = scan.next
        scan.next += count


def count_read(
    context: Context,
    reader: PageReader,
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
    partition without pages.
    """

    mapped: ClassVar[Literal[False]] = False  # its pages are parsed by Arrow

    def __init__(self, first: int, last: int) -> None:
        self.begin = first  # number of the partition's first page
        self.next = first
        self.last = last
        self.first = first  # number of the first page in the buffer
        self.pages: list[pa.RecordBatch] = []  # in the buffer, not fully probed
        self.codes: Codes = np.zeros(0, np.int64)
        self.valid: Mask | None = None
        self.counts: Any = None  # tuples that each row met
        self.cursor = np.array([0, -1], np.int64)  # row and slot to go on with; -1: a row's first

    @property
    def ended(self) -> bool:
        return not self.pages and self.next > self.last

    def fill(self, pages: list[pa.RecordBatch], binding: Binding) -> None:
        """Start with pages that were read into the buffer."""
        self.pages = pages
        self.starts = np.cumsum([0] + [page.num_rows for page in pages])
        self.codes, self.valid = codes_of(pages, binding)
        self.counts = np.zeros(len(self.codes), np.int32)
        self.cursor[:] = 0, -1
        self._columns: dict[tuple[str, ...], PageColumns] = {}

    def take(self, rows: Any, names: list[str]) -> list[pa.Array]:
        """These columns of these rows of the buffer."""
        return self.columns(names).take(*self.places(rows))

    def places(self, rows: Any) -> tuple[Any, Any]:
        """The page of each of these buffer rows, and the row within that page."""
        pages = np.searchsorted(self.starts, rows, side="right") - 1
        return pages, rows - self.starts[pages]

    def columns(self, names: list[str]) -> PageColumns:
        """These columns of all pages in the buffer."""
        columns = self._columns.get(tuple(names))
        if columns is None:
            schema = self.pages[0].schema
            kinds = [schema.field(name).type for name in names]
            columns = PageColumns(kinds, len(self.pages))
            for place, page in enumerate(self.pages):
                columns.put(place, [page.column(name) for name in names])
            self._columns[tuple(names)] = columns
        return columns


def codes_of(pages: list[pa.RecordBatch], binding: Binding) -> tuple[Codes, Mask | None]:
    """The codes of all rows of these pages, and the mask of non-null keys (None: all)."""
    parts = [binding.master_codes(page) for page in pages]
    if len(parts) == 1:
        return parts[0]
    codes = np.concatenate([codes for codes, _ in parts])
    if all(valid is None for _, valid in parts):
        return codes, None
    masks = [np.ones(len(codes), np.bool_) if valid is None else valid for codes, valid in parts]
    return codes, np.concatenate(masks)
