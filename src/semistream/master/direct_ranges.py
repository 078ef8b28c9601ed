"""Direct reads of many ranges, all of them in flight together.

A single direct read of a page takes as long as the disk's latency. A disk serves many requests at
once, so a group of them takes a fraction of the sum of their latencies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistream.master.disk_read import DiskRead, address_of

if TYPE_CHECKING:
    from semistream.master.extents import Extents
    from semistream.master.local_file import RangeFile

MOST_IN_FLIGHT = 256  # requests that Linux queues for a disk by default


class DirectRanges:
    """Reads one group of ranges at a time; the kernel's queue is made when it is first needed."""

    def __init__(self) -> None:
        self._reads: DiskRead | None = None

    def begin(self, file: RangeFile, target: memoryview, extents: Extents) -> bool:
        """Request all these ranges; False if the system has no asynchronous reads."""
        self.finish()
        if self._reads is None or self._reads.most < len(extents):
            self._reads = DiskRead.make(_rounded(len(extents)))
        if self._reads is None:
            return False
        descriptors, inside = file.located(extents)
        self._reads.begin(descriptors, address_of(target), inside)
        return True

    @property
    def in_flight(self) -> bool:
        return self._reads is not None and self._reads.in_flight

    def finish(self) -> bool:
        """Wait; returns whether all ranges were read completely."""
        return self._reads is not None and self._reads.pending and self._reads.finish() > 0

    def read(self, file: RangeFile, target: memoryview, extents: Extents) -> bool:
        """Read all these ranges; False if one failed or is short, or none can be requested."""
        for first in range(0, len(extents), MOST_IN_FLIGHT):
            group = extents.part(slice(first, first + MOST_IN_FLIGHT))
            if not (self.begin(file, target, group) and self.finish()):
                return False
        return True

    def close(self) -> None:
        """Wait for reads in flight, and release the kernel's queue."""
        self.finish()
        self._reads = None


def _rounded(ranges: int) -> int:
    """A power of two, so that the queue is seldom made anew."""
    return 1 << max(0, ranges - 1).bit_length()
