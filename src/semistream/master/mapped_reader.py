"""Readers that map pages from the page cache instead of copying them.

Copying is most of the cost of a page in the page cache when few of its rows are used. The risk of
any map: if the file is truncated or the disk fails while its pages are in use, the process dies
(SIGBUS), where a read would raise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from semistream.errors import ConfigError
from semistream.master.page_buffer import PageBuffer
from semistream.master.reader import (
    OpenSegment,
    PlainReader,
    PlannedRead,
    check_loaded,
)

_SPARSE = 2  # a range is mapped as a whole if at least half of its bytes are needed,
MAPPED_PAGES = 160  # or so many of its pages: reading them takes as long as mapping some 20 MB
RESIDENT = "resident"


def reader_kind(mapped: bool | str, direct: bool) -> type[PlainReader]:
    """The reader for a table that was opened with ``mapped``."""
    if direct or not mapped:
        return PlainReader
    return ResidentReader if mapped == RESIDENT else MappedReader


def check_mapped(mapped: bool | str) -> None:
    """Raise for a value that :func:`reader_kind` does not know."""
    if not isinstance(mapped, bool) and mapped != RESIDENT:
        raise ConfigError(f"mapped={mapped!r}; use True, False or {RESIDENT!r}")


class MappedReader(PlainReader):
    """Maps the part of the file that has the pages, instead of copying it.

    Copying is most of the cost of a page in the page cache when few of its rows are used. The
    resident memory is the same as with a copy. Mapping ahead in threads would not help: every
    munmap would then interrupt the other cores. The risk: if the file is truncated or the disk
    fails while its pages are in use, the process dies (SIGBUS), where a read would raise.
    """

    def prefetch(self, read: PlannedRead) -> None:
        """A no-op: read-ahead would fill the page cache with small pages, which map slowly."""

    def load(self, read: PlannedRead) -> Any:
        assert self._buffer is not None
        self._arrow = None  # unmap before mapping again
        segment, pages = self._segment, read.pages
        begin, end = int(segment.offsets[pages[0]]), int(segment.ends(pages[-1]))
        is_dense = len(pages) >= MAPPED_PAGES or end - begin <= _SPARSE * read.extents.needed
        mapped = None
        if is_dense and end - begin <= self.nbytes:
            self._buffer.release_used()  # the map and the copies are never resident together
            mapped = segment.file.map(begin, end - begin)
        if mapped is None:
            return super().load(read)
        memory, at = mapped
        self._arrow = pa.py_buffer(memory)
        starts = segment.offsets[pages] + (at - begin)
        self._arrived(pages, starts)
        self.bytes_read += end - begin
        return starts + self._arrow.address


class InPlace(NamedTuple):
    """Where pages start in a map, and the bytes of all: as an Extents has them."""

    starts: Any
    nbytes: int


def _in_place(segment: OpenSegment, pages: Any) -> PlannedRead:
    starts, sizes, nbytes = segment.located(pages)
    return PlannedRead(pages, sizes, InPlace(starts, nbytes))


class ResidentReader(PlainReader):
    """Maps all pages once, and leaves them mapped, as a key-value store does.

    A page that the page cache has costs nothing but its access. It stays in the resident memory of
    the process until the system needs the memory for something else: this memory is not part of
    the budget, so it must be wanted (``mapped="resident"``).
    """

    def __init__(self, segment: OpenSegment, pages_at_once: int, direct: bool = False) -> None:
        super().__init__(segment, pages_at_once, direct, PageBuffer(0))
        self._arrow = segment.whole_map().memory

    @staticmethod
    def bytes_for(segment: OpenSegment, pages_at_once: int, direct: bool) -> int:
        return 0

    @property
    def nbytes(self) -> int:
        return 0

    def plan(self, pages: Any) -> PlannedRead:
        """All of these pages, up to ``pages_at_once``: nothing is copied."""
        return _in_place(self._segment, pages[: self._at_once])

    def prefetch(self, read: PlannedRead) -> None:
        """A no-op: the pages are expected to be in the page cache."""

    def load(self, read: PlannedRead) -> Any:
        self._arrived(read.pages, read.extents.starts)
        self.bytes_read += read.extents.nbytes
        return read.extents.starts + self._arrow.address

    def frames(self, count: int) -> ResidentFrames:
        return ResidentFrames(self._segment)


class ResidentFrames:
    """Frames for pages that stay where they are: as a FrameReader has."""

    def __init__(self, segment: OpenSegment) -> None:
        self._segment = segment
        self._memory = segment.whole_map().memory
        self.bytes_read = 0

    def load(self, frames: Any, pages: Any) -> Any:
        """The address and the bytes of each page."""
        _, sizes, (starts, nbytes) = _in_place(self._segment, pages)
        check_loaded(self._segment, pages, self._memory, starts)
        self.bytes_read += nbytes
        return starts + self._memory.address, sizes

    def close(self) -> None:
        self._memory = None
