"""The interface between a join and its master: pages by number, and sizes for memory planning.

Implementations are :class:`~semistream.master.table.MasterTable` (sorted, with an index),
:class:`~semistream.master.parquet.ParquetPages` (neither) and
:class:`~semistream.master.sql.SqlMaster`. A source declares its capabilities (``ordered``,
``mapped``, ``can_address``, ``can_copy_rows``, ``can_prefetch``); a join never checks its class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import pyarrow as pa

from semistream.keys import Codes
from semistream.master.index import PageIndex


class PageReader(Protocol):
    """Reads pages into a reused buffer. Not thread-safe: use one reader per thread.

    Where the source says ``can_address``, a reader also has ``plan``, ``load``, ``parse`` and
    ``frames``; where it says ``can_prefetch``, ``prefetch``, ``in_flight`` and ``more_readers``;
    where it says ``can_copy_rows``, ``scattered_pages``. ``master/reader.py`` documents them.
    """

    bytes_read: int

    @property
    def nbytes(self) -> int:
        """The most bytes that this reader ever holds."""

    def read(self, first: int, count: int = 1) -> list[pa.RecordBatch]:
        """Pages ``first .. first + count - 1``, valid until the next ``read`` or ``close``."""

    def close(self) -> None:
        """Free the buffer."""


class PageSource(Protocol):
    """A relation on disk, cut into pages."""

    @property
    def schema(self) -> pa.Schema: ...
    @property
    def key(self) -> tuple[str, ...]: ...
    @property
    def version(self) -> int: ...
    @property
    def pinned(self) -> bool: ...
    @property
    def ordered(self) -> bool: ...
    @property
    def unique(self) -> bool: ...
    @property
    def distinct(self) -> bool:
        """Whether every key has at most one row."""

    @property
    def code_column(self) -> str | None:
        """The column of a page with the codes of its keys, ascending; None if there is none."""

    @property
    def page_schema(self) -> pa.Schema:
        """The schema of pages in memory: the columns, and codes if there are any."""

    @property
    def num_rows(self) -> int: ...
    @property
    def num_pages(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def index(self) -> PageIndex | None: ...
    @property
    def max_page_bytes(self) -> int: ...
    @property
    def max_row_bytes(self) -> int: ...
    @property
    def row_bytes(self) -> float: ...
    @property
    def column_bytes(self) -> Mapping[str, float] | None:
        """Bytes of an average value of each column, of a sample; None: not known."""

    @property
    def mapped(self) -> bool | str:
        """Whether readers map pages from the page cache instead of copying them; "resident" if
        they leave them mapped."""

    @property
    def can_address(self) -> bool:
        """Whether readers can ``load`` pages and return their addresses, unparsed."""

    @property
    def can_copy_rows(self) -> bool:
        """Whether compiled code can read the pages of readers by itself, and copy a few rows."""

    def can_prefetch(self, direct: bool) -> bool:
        """Whether readers can prefetch."""

    def buffer_bytes(self, pages_at_once: int, direct: bool) -> int:
        """The bytes that a reader for ``pages_at_once`` pages will hold."""

    def at_version(self, version: int, awaited: int = 0) -> PageSource:
        """Another version of the same relation. ``awaited``: tuples wait for pages of this version
        before this one. Those that a newer one does not have come after its own."""

    def pages_shared_with(self, other: PageSource) -> int:
        """Pages, from the first on, that another version has as well; 0: it has another base."""

    def reader(self, pages_at_once: int = 1, direct: bool = False) -> PageReader: ...
    def newest_version(self) -> int: ...
    def changed_codes(self, since: int) -> Iterator[Codes] | None: ...
    def changed_since(self, other: PageSource) -> Iterator[Codes] | None:
        """Codes that changed after another version, perhaps with a few more; None if unknown."""
