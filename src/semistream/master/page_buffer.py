"""Memory that pages are read into."""

from __future__ import annotations

import mmap
from contextlib import suppress

import pyarrow as pa

from semistream.master.local_file import ALIGNMENT

HUGE = 2 << 20  # bytes of a huge page
_UNUSED = 64 << 10  # bytes of the last huge page that may be beyond the buffers


class PageBuffer:
    """Page-aligned memory for reads; Arrow uses it without a copy.

    It uses huge pages where whole ones fit. A direct read pins every memory page of its target:
    512 small pages for 2 MB, which takes several times as much CPU time as one huge page.
    """

    def __init__(self, nbytes: int, within: tuple[mmap.mmap, int] | None = None) -> None:
        self.nbytes = aligned(nbytes)
        self.used = 0  # bytes that reads have filled since the last release
        memory, at = within or _mapped(self.nbytes)
        self._memory, self._at = memory, at
        self.view = memoryview(memory)[at : at + self.nbytes]
        self.arrow = pa.py_buffer(memory).slice(at, self.nbytes)

    def release(self, nbytes: int) -> None:
        """Give the first ``nbytes`` back to the system; the next read allocates them again."""
        if nbytes and hasattr(mmap, "MADV_DONTNEED"):
            self._memory.madvise(mmap.MADV_DONTNEED, self._at, aligned(nbytes))

    def release_used(self) -> None:
        """The same for all that reads have filled."""
        self.release(self.used)
        self.used = 0

    @classmethod
    def side_by_side(cls, nbytes: int, count: int) -> list[PageBuffer]:
        """Several buffers that share huge pages, for which each alone might be too small."""
        nbytes = aligned(nbytes)
        memory, at = _mapped(count * nbytes)
        return [cls(nbytes, (memory, at + i * nbytes)) for i in range(count)]


def aligned(nbytes: int) -> int:
    """The size of a buffer for ``nbytes``, rounded up to whole pages."""
    return max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT)


def _mapped(nbytes: int) -> tuple[mmap.mmap, int]:
    """Anonymous memory, and the offset of a range in it that can use huge pages."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return mmap.mmap(-1, nbytes), 0
    # Private: shared memory gets huge pages only if the administrator enables them, and is not
    # freed when it is released. Memory before ``at`` is never touched, so it is never allocated.
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    huge = -(-nbytes // HUGE) * HUGE
    if huge - nbytes > _UNUSED:
        huge -= HUGE
    if not huge:
        return mmap.mmap(-1, nbytes, flags=private), 0
    memory = mmap.mmap(-1, max(nbytes, huge) + HUGE, flags=private)
    at = -pa.py_buffer(memory).address % HUGE
    with suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE, at, huge)
    return memory, at
