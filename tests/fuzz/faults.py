"""Fault injection for all reads of the process."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Any

from semistream.errors import MasterTableError
from semistream.master.disk_read import DiskRead
from semistream.master.local_file import LocalFile
from semistream.master.store import LocalStore


class Disk:
    """Reads of pages, mapped pages, and of indexes when a version is opened."""

    def __init__(self) -> None:
        self.broken = False
        self.every = 0
        self._reads = 0

    def mend(self) -> None:
        self.broken, self.every = False, 0

    @property
    def whole(self) -> bool:
        return not self.broken and not self.every

    def _fails(self) -> bool:
        self._reads += 1
        return self.broken or bool(self.every and self._reads % self.every == 0)

    @contextlib.contextmanager
    def installed(self) -> Iterator[Disk]:
        """All reads of this process use this disk."""
        preadv, finish = os.preadv, DiskRead.finish
        mapped, read, ranges = LocalFile.map, LocalStore.read, LocalFile.read_ranges

        def failing_preadv(*arguments: Any) -> int:
            if self._fails():
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return preadv(*arguments)

        def failing_finish(ahead: DiskRead) -> int:
            got = finish(ahead)
            return -errno.EIO if self._fails() else got

        def failing_map(file: LocalFile, begin: int, length: int) -> Any:
            return None if self._fails() else mapped(file, begin, length)

        def failing_ranges(file: LocalFile, *arguments: Any) -> bool:
            return not self._fails() and ranges(file, *arguments)

        def failing_read(store: LocalStore, name: str) -> bytes:
            if self._fails():
                raise MasterTableError(f"{store.path(name)} cannot be read: this disk is broken")
            return read(store, name)

        os.preadv, DiskRead.finish = failing_preadv, failing_finish  # type: ignore[assignment]
        LocalFile.map, LocalStore.read = failing_map, failing_read  # type: ignore[method-assign]
        LocalFile.read_ranges = failing_ranges  # type: ignore[method-assign]
        try:
            yield self
        finally:
            os.preadv, DiskRead.finish = preadv, finish  # type: ignore[method-assign]
            LocalFile.map, LocalStore.read = mapped, read  # type: ignore[method-assign]
            LocalFile.read_ranges = ranges  # type: ignore[method-assign]
