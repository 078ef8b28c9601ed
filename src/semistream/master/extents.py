"""The byte ranges of some pages in a file, and where they go in a buffer.

Pages that are adjacent in the file are one range, read with one request.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from semistream.master.store import ALIGNMENT

_FIRST = np.zeros(1, np.int64)


class Extents:
    """The ranges of ascending ``pages``, side by side in a buffer.

    ``offsets`` and ``sizes`` are the ranges in the file, ``places`` their positions in the buffer
    and ``starts`` the position of every page. Ranges of ``direct`` reads are rounded out to whole
    blocks; the first ``least`` bytes of each are those up to the end of its last page.
    """

    def __init__(self, begins: Any, ends: Any, direct: bool) -> None:
        cuts = np.flatnonzero(begins[1:] != ends[:-1])
        first = np.concatenate((_FIRST, cuts + 1))
        last = np.concatenate((cuts, [len(begins) - 1]))
        self.offsets = begins[first]
        sizes = ends[last] - self.offsets
        self.needed = int(sizes.sum())
        self.least = sizes
        if direct:
            slack = self.offsets % ALIGNMENT
            self.offsets = self.offsets - slack
            self.least = sizes + slack
            sizes = -(-self.least // ALIGNMENT) * ALIGNMENT
        self.sizes = sizes
        self.places = np.cumsum(sizes) - sizes
        shift = np.repeat(self.places - self.offsets, last - first + 1)
        self.starts = begins + shift
        self.nbytes = int(self.places[-1] + sizes[-1])  # of the buffer

    @classmethod
    def apart(cls, begins: Any, ends: Any, direct: bool, places: Any) -> Extents:
        """Every page as a range of its own, at these positions in the buffer."""
        self = cls.__new__(cls)
        slack = begins % ALIGNMENT if direct else 0 * begins
        self.offsets = begins - slack
        self.sizes = self.least = ends - self.offsets
        if direct:
            self.sizes = -(-self.least // ALIGNMENT) * ALIGNMENT
        self.places = places.astype(np.int64)
        self.starts = self.places + slack
        self.needed = int((ends - begins).sum())
        self.nbytes = int(self.sizes.sum())
        return self

    def __len__(self) -> int:
        return len(self.offsets)
