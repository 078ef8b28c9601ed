"""What a join may ask of a master: pages by number, and bytes that it can plan with.

Two sources keep this contract: :class:`~semistream.master.table.MasterTable` (sorted, with an
index) and :class:`~semistream.master.parquet.ParquetPages` (neither). A source says what it can
do (``ordered``, ``mapped``, ``can_address``, ``can_prefetch``); a join never asks which class it
was given.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from semistream.master.index import PageIndex


class PageReader(Protocol):
    """A reused buffer in front of the pages. One reader belongs to one thread."""

    bytes_read: int

    @property
    def nbytes(self) -> int:
        """All bytes that this reader may ever hold."""

    def read(self, first: int, count: int = 1) -> list[pa.RecordBatch]:
        """Pages ``first .. first + count - 1``, valid until the next ``read`` or ``close``."""

    def close(self) -> None:
        """Give the buffer back."""


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
    def mapped(self) -> bool:
        """Whether readers look at pages in the page cache instead of copying them."""

    @property
    def can_address(self) -> bool:
        """Whether readers can ``load`` pages and return their addresses, unparsed."""

    def can_prefetch(self, direct: bool) -> bool:
        """Whether readers can be asked for pages ahead of time."""

    def buffer_bytes(self, pages_at_once: int, direct: bool) -> int:
        """What a reader of so many pages at once will hold."""

    def at_version(self, version: int) -> PageSource:
        """Another version of the same relation."""

    def reader(self, pages_at_once: int = 1, direct: bool = False) -> PageReader: ...
    def newest_version(self) -> int: ...
    def changed_keys(self, since: int) -> Iterator[pa.RecordBatch] | None: ...
