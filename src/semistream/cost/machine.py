"""What a unit of work costs on a machine: the factors of every model.

The papers fit one constant per operation (c_H, c_O, c_E, c_S, c_A) and a disk cost c_I/O(b).
Ours are the same in kind, but measured on the machine and the table at hand
(``tuning/calibrate.py``). The defaults below are for a machine without a calibration, and a
calibration keeps their proportions: they were fitted to measured runs of all joins
(``lab.cost_fit``, R = 2 million rows of 113 bytes), beside the accesses to memory, which were
measured by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

FACTORS: Mapping[str, tuple[float, str]] = MappingProxyType(
    {
        "push": (60e-6, "one call of push, or of flush"),
        "admit": (65e-6, "admitting one slice of a batch: the calls, not the tuples"),
        "tuple": (8.2e-9, "encoding a tuple's key and looking at it"),
        "batch": (62e-6, "returning one output batch: the calls, not the rows"),
        "look_up": (42e-9, "probing the front stage with a tuple"),
        "hit": (38e-9, "an output row of the front stage"),
        "learn": (
            15e-6,
            "offering the hot rows of a disk buffer to the front stage: the fixed part",
        ),
        "learn.row": (11e-9, "looking whether a row of the disk buffer is hot, and offering it"),
        "mesh.read": (130e-6, "MESHJOIN: one read of the scan, and probing it: the fixed part"),
        "mesh.page": (1.5e-6, "MESHJOIN: a page of the scan, read and opened"),
        "mesh.row": (4.4e-9, "MESHJOIN: probing the window with a row of the scan"),
        "mesh.tuple": (180e-9, "MESHJOIN: adding, joining and removing a waiting tuple"),
        "hybrid.read": (160e-6, "HYBRIDJOIN: one iteration: the fixed part"),
        "hybrid.page": (2.0e-6, "HYBRIDJOIN: a page of the partition, read and opened"),
        "hybrid.row": (4.9e-9, "HYBRIDJOIN: probing the window with a row of the partition"),
        "hybrid.tuple": (180e-9, "HYBRIDJOIN: adding, joining and removing a waiting tuple"),
        "pinned.scan": (36e-6, "X-HYBRIDJOIN: probing with the pinned pages: the fixed part"),
        "pinned.row": (7.5e-9, "X-HYBRIDJOIN: probing the window with a pinned row"),
        "pool.wave": (10e-6, "INLJ: one wave of look-ups, fixed part"),
        "pool.page": (3.0e-6, "INLJ: a page read into the pool"),
        "pool.tuple": (70e-9, "INLJ: looking a tuple up in its page, and its output row"),
        "recent.tuple": (100e-9, "CINLJ: counting a tuple's key in the temporary buffer"),
        "recent.offer": (90e-6, "CINLJ: offering a wave's hot rows: the fixed part"),
        "recent.row": (850e-9, "CINLJ: offering a row that a wave has fetched"),
        "sweep.visit": (70e-6, "SweepJoin: one visit, fixed part"),
        "sweep.request": (810e-9, "SweepJoin: one read of adjacent pages: the fixed part"),
        "sweep.page": (1.9e-6, "SweepJoin: a page of a visit, read and opened"),
        "sweep.single": (2.0e-6, "SweepJoin: a page that is read by itself, to copy its rows"),
        "sweep.part": (
            25e-6,
            "SweepJoin: rows of a visit that are copied at a time: the fixed part",
        ),
        "sweep.row": (150e-9, "SweepJoin: a row that is copied before it is output"),
        "sweep.huge": (2.8e-6, "SweepJoin: a huge page of the page cache, mapped and unmapped"),
        "sweep.copied": (250e-9, "SweepJoin: a mapped page, whose rows are copied"),
        "sweep.tuple": (67e-9, "SweepJoin: adding, sorting, joining and removing a tuple"),
    }
)
"""Name: (default seconds, what it is the cost of)."""

# Random accesses to a structure of this many bytes, measured: (bytes, seconds of an access that
# does not depend on the one before, seconds of one that does). Steps: the processor's caches, then
# main memory.
ACCESS = (
    (1 << 18, 0.7e-9, 5e-9),
    (1 << 21, 0.9e-9, 14e-9),
    (1 << 23, 1.7e-9, 19e-9),
    (1 << 24, 3.7e-9, 59e-9),
    (1 << 25, 5.0e-9, 119e-9),
    (1 << 26, 6.5e-9, 124e-9),
    (1 << 28, 8.6e-9, 154e-9),
)
# Dependent accesses for different tuples overlap: a processor looks some hundred instructions
# ahead, and one such access is followed by some 50 to 100.
IN_FLIGHT = 4
# A direct request of this many bytes with this many in flight: seconds per request.
DISK = (
    (16 << 10, 1, 90e-6),
    (64 << 10, 1, 105e-6),
    (1 << 20, 1, 370e-6),
    (8 << 20, 1, 2.8e-3),
    (16 << 10, 4, 28e-6),
    (64 << 10, 4, 45e-6),
    (1 << 20, 4, 330e-6),
    (8 << 20, 4, 2.6e-3),
)
PAGE_BYTES = 16 << 10  # of the table that the defaults were measured with


@dataclass(frozen=True)
class Machine:
    """Prices of the work that a join does."""

    factors: Mapping[str, float] = field(
        default_factory=lambda: {name: default for name, (default, _) in FACTORS.items()}
    )
    access: tuple[tuple[float, float, float], ...] = ACCESS
    disk: tuple[tuple[int, int, float], ...] = DISK
    is_cached: bool = True  # the page cache holds the table
    origin: str = "the package's defaults"

    def price(self, factor: str, page_bytes: int = 0) -> float:
        """Seconds of one unit of this factor.

        The price of a page is proportional to its size, above a fixed half.
        """
        price = self.factors.get(factor, FACTORS[factor][0])
        if factor.endswith(".page") and page_bytes:
            price *= 0.5 + 0.5 * page_bytes / PAGE_BYTES
        return price

    def access_seconds(self, nbytes: float, dependent: bool = False) -> float:
        """Seconds of a random access to a structure of this size.

        ``dependent``: where to access is known only after an access before it, as in a chain.
        """
        sizes, alone, after = zip(*self.access, strict=True)
        seconds = [each / IN_FLIGHT for each in after] if dependent else alone
        return float(np.interp(np.log(max(nbytes, 1.0)), np.log(sizes), seconds))

    def request_seconds(self, nbytes: float, in_flight: int = 1) -> float:
        """Seconds per direct request; with several in flight, the time from one to the next."""
        depth = max({d for _, d, _ in self.disk if d <= in_flight}, default=1)
        points = sorted((size, seconds) for size, d, seconds in self.disk if d == depth)
        sizes, seconds = zip(*points, strict=True)
        if nbytes > sizes[-1]:
            return float(seconds[-1] * nbytes / sizes[-1])
        return float(np.exp(np.interp(np.log(max(nbytes, 1.0)), np.log(sizes), np.log(seconds))))
