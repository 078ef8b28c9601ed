"""A segment of whose pages compiled code needs a few rows each: it reads or maps them by itself."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from semistream import kernels
from semistream.errors import SemistreamError
from semistream.master.page_buffer import HUGE, PageBuffer
from semistream.master.reader import OpenSegment

LEAST_MAPPED = 3 * HUGE  # two adjacent pages may lie on three huge pages
_FRAME_BYTES = 256 << 10  # of all frames: what is read should be in the CPU cache when it is used
_LEAST_FRAMES = 2  # a key may go on in the next page
_ALIGNED = 64
_NO_FILES = np.zeros((2, 0), np.int64)  # of places that are mapped


class Places(NamedTuple):
    """Where pages are, for :func:`kernels.row_copies.copy`."""

    offsets: Any  # of every page of the segment
    lengths: Any
    base: int  # address of the map, or of the frames
    limit: int  # where it ends
    most: int  # huge pages that are mapped at a time, or frames
    frame: int = 0  # bytes of a frame; 0: pages are mapped
    files: Any = _NO_FILES  # for every file: where it begins in the segment, and its descriptor


class ScatteredPages:
    """Pages that are read into frames, a few at a time, or of which up to ``most_mapped`` bytes are
    mapped at a time.

    The frames are a part of ``buffer``. What is mapped counts as memory of the process, so the
    memory of ``buffer`` is given back before pages are mapped; ``forget`` gives back what else the
    reader has mapped. A page is mapped by a call that fails where the page cannot be read; reading
    it then raises an error that names it.
    """

    def __init__(
        self,
        segment: OpenSegment,
        buffer: PageBuffer,
        most_mapped: int,
        forget: Callable[[], None],
    ) -> None:
        self._segment = segment
        self._buffer = buffer
        self._most_mapped = most_mapped
        self._forget = forget
        self._memory: Any = None  # the map in use, which another thread may have replaced
        self._frame = -(-max(1, segment.window_bytes(1)) // _ALIGNED) * _ALIGNED
        frames = max(_LEAST_FRAMES, _FRAME_BYTES // self._frame)
        self._frames = min(frames, buffer.nbytes // self._frame)
        files = np.array(segment.file.descriptors(), np.int64).T
        base, nbytes = buffer.arrow.address, self._frames * self._frame
        self._in_frames = Places(
            segment.offsets, segment.pages.lengths, base, base + nbytes, self._frames, self._frame,
            np.ascontiguousarray(files),
        )  # fmt: skip

    @property
    def can_read(self) -> bool:
        return self._frames >= _LEAST_FRAMES

    @property
    def can_map(self) -> bool:
        return self._most_mapped >= LEAST_MAPPED

    def in_frames(self) -> Places:
        """Pages that are read."""
        self._forget()
        places = self._in_frames
        self._buffer.used = max(self._buffer.used, places.limit - places.base)
        return places

    def mapped(self) -> Places | None:
        """Pages that are mapped; None if the file cannot be mapped as a whole: reads tell why."""
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
        self._forget()
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
