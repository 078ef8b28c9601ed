"""One open file of a table's folder: positional reads, buffered or direct, and maps of a range."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from semistream.errors import MasterTableError
from semistream.master.disk_read import address_of
from semistream.master.files import Files

if TYPE_CHECKING:
    from semistream.master.extents import Extents

ALIGNMENT = 4096
_MADV_POPULATE_READ = 22  # Linux 5.14; Python has no constant for it
_ADVISED = 8  # ranges: more of them are small, and the advice would cost more than it saves


class RangeFile(Protocol):
    """An open file that readers share; reads are positional."""

    name: str

    def read_into(self, target: memoryview, offset: int, direct: bool = False) -> int:
        """Fill ``target`` from ``offset``; the count is short only at the end of the file."""

    def read_ranges(self, target: memoryview, extents: Extents) -> bool:
        """Read many small ranges through the page cache; False if one failed or is short."""

    def descriptors(self) -> list[tuple[int, int]]:
        """Of each file, its place and the descriptor for reads through the page cache, as long as
        this is open."""

    def prefetch(self, extents: Extents) -> None:
        """Start reading these ranges into the page cache."""

    def located(self, extents: Extents) -> tuple[Any, Extents]:
        """For direct reads: the descriptor of the ranges' file, or of the file of each, and the
        ranges with their offsets inside it."""

    def map(self, begin: int, length: int) -> tuple[mmap.mmap, int] | None:
        """Map a range without a copy; None if that is not possible."""

    def extent(self, nbytes: int) -> list[tuple[int, int, int]]:
        """What to map for the first ``nbytes``: for each file its descriptor, its place and the
        bytes that it has there. The last one is short if a file is truncated."""

    def reopen(self) -> None:
        """Open the file again after a failed read: the fault may be transient."""

    def close(self) -> None: ...


class LocalFile:
    """Positional reads into a caller's buffer, buffered or direct.

    The file is mapped as a whole only if the user asks for it: mapped pages count as resident
    memory of the process, which must stay within its budget.
    """

    def __init__(self, path: Path, files: Files) -> None:
        self.path = path
        self.name = path.name
        self._files = files
        self._cached = _open(files, path, 0)
        self._direct: int | None = None
        # Tables and readers share this object; the file is closed with the last reference.
        self._descriptors = [self._cached]
        self._finalizer = weakref.finalize(self, _close_all, self._descriptors)

    def read_into(self, target: memoryview, offset: int, direct: bool = False) -> int:
        descriptor = self._direct_descriptor() if direct else self._cached
        done, wanted = 0, len(target)
        while done < wanted:
            try:
                count = os.preadv(descriptor, [target[done:]], offset + done)
            except OSError as error:
                raise unreadable(self.path, error) from error
            if count == 0:
                break
            done += count
            if direct and done % ALIGNMENT:  # only the end of the file is unaligned
                break
        return done

    def read_ranges(self, target: memoryview, extents: Extents) -> bool:
        from semistream import kernels

        address = address_of(target)
        ranges = extents.places, extents.offsets, extents.sizes
        return int(kernels.disk.read_ranges(self._cached, address, *ranges)) == len(extents)

    def descriptors(self) -> list[tuple[int, int]]:
        return [(0, self._cached)]

    def prefetch(self, extents: Extents) -> None:
        if hasattr(os, "posix_fadvise") and len(extents) <= _ADVISED:
            with contextlib.suppress(OSError):  # it is only advice
                for offset, size in zip(extents.offsets, extents.sizes, strict=True):
                    os.posix_fadvise(self._cached, offset, size, os.POSIX_FADV_WILLNEED)

    def located(self, extents: Extents) -> tuple[int, Extents]:
        return self._direct_descriptor(), extents

    def map(self, begin: int, length: int) -> tuple[mmap.mmap, int] | None:
        """A map of a range with all its pages resident, and the offset of the range in it.

        None if it cannot be mapped; the caller then reads, which raises if that fails, too.
        """
        if sys.platform != "linux":
            return None
        base = begin // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        size = begin + length - base
        try:
            mapped = mmap.mmap(self._cached, size, access=mmap.ACCESS_READ, offset=base)
            with contextlib.suppress(OSError):  # a kernel without huge pages
                mapped.madvise(mmap.MADV_HUGEPAGE)  # reads from disk use large pieces
            # Raises where accessing the memory would kill the process (SIGBUS).
            mapped.madvise(_MADV_POPULATE_READ)
        except (OSError, ValueError):
            return None
        return mapped, begin - base

    def extent(self, nbytes: int) -> list[tuple[int, int, int]]:
        return [(self._cached, 0, min(nbytes, os.fstat(self._cached).st_size))]

    def reopen(self) -> None:
        # dup2 replaces the file under the same descriptor, so that concurrent reads of other
        # threads never use a closed or reused descriptor.
        with contextlib.suppress(MasterTableError):
            fresh = _open(self._files, self.path, 0)
            os.dup2(fresh, self._cached, inheritable=False)
            os.close(fresh)
            if self._direct is not None:
                fresh = _open(self._files, self.path, _direct_flag())
                os.dup2(fresh, self._direct, inheritable=False)
                os.close(fresh)

    def close(self) -> None:
        self._finalizer()

    def _direct_descriptor(self) -> int:
        if self._direct is None:
            self._direct = _open(self._files, self.path, _direct_flag())
            self._descriptors.append(self._direct)
        return self._direct


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _direct_flag() -> int:
    flag = getattr(os, "O_DIRECT", None)
    if flag is None:
        raise MasterTableError(
            "direct=True needs O_DIRECT, which this system does not have; use direct=False"
        )
    return int(flag)


def _open(files: Files, path: Path, flags: int) -> int:
    try:
        return files.open(path, flags)
    except FileNotFoundError as error:
        raise unreadable(path, error) from error
    except OSError as error:
        hint = "; the file system may not support direct=True" if flags else ""
        raise MasterTableError(f"{path} cannot be opened: {error.strerror}{hint}") from error


def unreadable(path: Path, error: OSError) -> MasterTableError:
    """The error for a file that cannot be read."""
    if error.errno in (errno.ENOENT, errno.ESTALE):
        return MasterTableError(
            f"{path} is missing; it was deleted or vacuumed, perhaps on another machine. Open the "
            "newest version, vacuum with a larger keep, or build the table again"
        )
    return MasterTableError(f"{path} cannot be read: {error.strerror}; check the disk and retry")
