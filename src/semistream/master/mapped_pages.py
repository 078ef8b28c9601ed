"""A segment whose pages compiled code maps by itself, a few huge pages at a time."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from semistream import kernels
from semistream.errors import SemistreamError
from semistream.master.page_buffer import HUGE, PageBuffer
from semistream.master.reader import OpenSegment

LEAST_MAPPED = 3 * HUGE  # two adjacent pages may lie on three huge pages


class Places(NamedTuple):
    """Where pages are, for :func:`kernels.row_copies.copy`."""

    offsets: Any  # of every page of the segment
    lengths: Any
    base: int  # address of the map
    limit: int  # where it ends
    most_mapped: int  # huge pages at a time


class MappedPages:
    """Pages of which up to ``most_mapped`` bytes are mapped at a time.

    What is mapped counts as memory of the process, so the memory of ``buffer`` is given back before
    pages are mapped. A page is mapped by a call that fails where the page cannot be read; reading
    it then raises an error that names it.
    """

    def __init__(self, segment: OpenSegment, buffer: PageBuffer, most_mapped: int) -> None:
        self._segment = segment
        self._buffer = buffer
        self._most_mapped = most_mapped
        self._memory: Any = None  # the map in use, which another thread may have replaced

    def places(self) -> Places | None:
        """None if the file cannot be mapped as a whole: reads tell why."""
        segment = self._segment
        if sys.platform != "linux":
            return None
        try:
            memory = segment.whole_map().memory
        except SemistreamError:
            return None
        # Of a block that is truncated, the rest would be zeros.
        *_, (_, at, length) = segment.file.extent(memory.size)
        if at + length < memory.size:
            return None
        self._memory = memory
        self._buffer.release_used()
        limit = memory.address + memory.size
        return Places(
            segment.offsets, segment.pages.lengths, memory.address, limit, self._most_mapped // HUGE
        )

    def unchecked(self, pages: Any) -> Any:
        """Those of these pages that were not checked before."""
        if not kernels.page_places.unchecked(pages, self._segment.checked):
            return pages[:0]
        return pages[~self._segment.checked[pages]]

    def huge_pages(self, pages: Any) -> int:
        """Huge pages that these ascending pages lie on."""
        return int(kernels.row_copies.huge_pages(pages, self._segment.offsets))
