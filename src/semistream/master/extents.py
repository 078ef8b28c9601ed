"""The byte ranges of some pages in a file, and where they go in a buffer.

Pages that are adjacent in the file are one range, read with one request.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from semistream.master.local_file import ALIGNMENT


class Extents:
    """The ranges of ascending ``pages``, side by side in a buffer.

    ``offsets`` and ``sizes`` are the ranges in the file, ``places`` their positions in the buffer
    and ``starts`` the position of every page. Ranges of ``direct`` reads are rounded out to whole
    blocks; the first ``least`` bytes of each are those up to the end of its last page. ``needed``
    are the bytes of the pages, ``nbytes`` those of the buffer.
    """

    def __init__(self, begins: Any, ends: Any, direct: bool) -> None:
        from semistream.kernels import extents

        ranges = np.empty((4, len(begins)), np.int64)
        self.starts = np.empty(len(begins), np.int64)
        count, self.needed, self.nbytes = extents.merge(
            begins, ends, ALIGNMENT if direct else 1, ranges, self.starts
        )
        self.offsets, self.sizes, self.places, self.least = ranges[:, :count]

    @classmethod
    def apart(cls, begins: Any, sizes: Any, needed: int, direct: bool, places: Any) -> Extents:
        """Every page as a range of its own, at these positions in the buffer; ``needed`` is the sum
        of the ``sizes``."""
        self = cls.__new__(cls)
        self.offsets = begins
        self.sizes = self.least = sizes
        self.places = self.starts = places
        self.needed = self.nbytes = needed
        if direct:
            slack = begins % ALIGNMENT
            self.offsets = begins - slack
            self.least = sizes + slack
            self.sizes = -(-self.least // ALIGNMENT) * ALIGNMENT
            self.starts = self.places + slack
            self.nbytes = int(self.sizes.sum())
        return self

    def part(self, chosen: Any) -> Extents:
        """Some of the ranges (a slice or a mask), without what belongs to pages."""
        part = Extents.__new__(Extents)
        part.offsets, part.sizes, part.places, part.least = (
            values[chosen] for values in (self.offsets, self.sizes, self.places, self.least)
        )
        return part

    def __len__(self) -> int:
        return len(self.offsets)
