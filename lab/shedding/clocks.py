"""Clocks: of this machine, by its disk or its page cache, and of one with a disk of 2011."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import semistream as ss
from semistream.master.files import Files

SEEK_SECONDS = 0.0085  # a seek and half a rotation at 7,200 turns a minute
BYTES_PER_SECOND = 100e6


class WallClock(ss.Observer):
    """Seconds of this machine. ``direct``: pages come from the disk, not from the page cache."""

    def __init__(self, direct: bool) -> None:
        self.direct = direct
        self.files: Files | None = None

    def __call__(self) -> float:
        return time.perf_counter()


class Disk2011(ss.Observer):
    """A virtual clock: the CPU's seconds, and a seek and a transfer for every request to the disk.

    Pages and shed tuples are on one disk, so every file of shed tuples costs a seek, too.
    """

    direct = False

    def __init__(self) -> None:
        self.disk_seconds = 0.0
        self.files: Files | None = _Charged(self)

    def __call__(self) -> float:
        return time.process_time() + self.disk_seconds

    def charge(self, nbytes: int) -> None:
        self.disk_seconds += SEEK_SECONDS + nbytes / BYTES_PER_SECOND

    def page_read(self, first: int, count: int, nbytes: int, seconds: float) -> None:
        self.charge(nbytes)


class _Charged(Files):
    """Charges a file when it is synced; nothing is synced really."""

    def __init__(self, clock: Disk2011) -> None:
        self._clock = clock

    def sync(self, file: Any) -> None:
        file.flush()
        self._clock.charge(file.tell())

    def sync_folder(self, folder: Path) -> None:
        pass


CLOCKS: dict[str, Any] = {
    "this": lambda: WallClock(direct=True),
    "cached": lambda: WallClock(direct=False),
    "2011": Disk2011,
}
