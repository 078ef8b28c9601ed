"""Memory that pages are read into."""

from __future__ import annotations

import mmap
from contextlib import suppress

import pyarrow as pa

from semistream.master.store import ALIGNMENT

_HUGE = 2 << 20  # bytes of a huge page


class PageBuffer:
    """Page-aligned memory that reads go into; Arrow looks at it without a copy.

    It lies in huge pages as far as whole ones fit. A read past the page cache pins every page
    that it goes to: 512 small ones for 2 MB, which takes the processor several times as long.
    """

    def __init__(self, nbytes: int, within: tuple[mmap.mmap, int] | None = None) -> None:
        self.nbytes = aligned(nbytes)
        memory, at = within or _mapped(self.nbytes)
        self.view = memoryview(memory)[at : at + self.nbytes]
        self.arrow = pa.py_buffer(memory).slice(at, self.nbytes)

    @classmethod
    def side_by_side(cls, nbytes: int, count: int) -> list[PageBuffer]:
        """Several that share huge pages, which each alone might be too small for."""
        nbytes = aligned(nbytes)
        memory, at = _mapped(count * nbytes)
        return [cls(nbytes, (memory, at + i * nbytes)) for i in range(count)]


def aligned(nbytes: int) -> int:
    """The bytes that a buffer for so many takes."""
    return max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT)


def _mapped(nbytes: int) -> tuple[mmap.mmap, int]:
    """Anonymous memory, and where in it so many bytes begin that may lie in huge pages."""
    if not hasattr(mmap, "MADV_HUGEPAGE") or nbytes < _HUGE:
        return mmap.mmap(-1, nbytes), 0
    # Private: shared memory has huge pages only where the administrator says so. What lies
    # before ``at`` is never touched, so it takes no memory.
    memory = mmap.mmap(-1, nbytes + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    at = -pa.py_buffer(memory).address % _HUGE
    with suppress(OSError):  # a kernel without them
        memory.madvise(mmap.MADV_HUGEPAGE, at, nbytes - nbytes % _HUGE)
    return memory, at
