"""A table's folder: list, read a range, write, publish if absent, delete.

Callers name files relative to the table's folder, with ``/`` between parts. A name outside the
folder raises, even if a manifest contains it. An object store can implement this interface if it
has a conditional put for :meth:`Store.publish`. Every change of the folder is a call of
:class:`~semistream.master.files.Files`.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
import sys
import uuid
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from semistream.errors import MasterTableError
from semistream.master.disk_read import DiskRead, address_of
from semistream.master.files import Files

if TYPE_CHECKING:
    from semistream.master.extents import Extents

ALIGNMENT = 4096
_MADV_POPULATE_READ = 22  # Linux 5.14; Python has no constant for it
_ADVISED = 8  # ranges: more of them are small, and the advice would cost more than it saves
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
Condition = Callable[[], bool]


# Errors of link() that mean that nothing was done.
_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMLINK)


class RangeFile(Protocol):
    """An open file that readers share; reads are positional."""

    name: str

    def read_into(self, target: memoryview, offset: int, direct: bool = False) -> int:
        """Fill ``target`` from ``offset``; the count is short only at the end of the file."""

    def read_ranges(self, target: memoryview, extents: Extents) -> bool:
        """Read many small ranges through the page cache; False if one failed or is short."""

    def prefetch(self, ahead: DiskRead | None, target: memoryview, extents: Extents) -> None:
        """Start reading these ranges: directly into ``target`` with ``ahead``, otherwise into
        the page cache."""

    def map(self, begin: int, length: int) -> tuple[mmap.mmap, int] | None:
        """Map a range without a copy; None if that is not possible."""

    def extent(self, nbytes: int) -> list[tuple[int, int, int]]:
        """What to map for the first ``nbytes``: for each file its descriptor, its place and the
        bytes that it has there. The last one is short if a file is truncated."""

    def reopen(self) -> None:
        """Open the file again after a failed read: the fault may be transient."""

    def close(self) -> None: ...


class PublishInDoubtError(MasterTableError):
    """The outcome of publishing is unknown. Files that the version refers to must be kept."""


class Store(Protocol):
    def list(self, folder: str) -> list[str]: ...
    def size(self, name: str) -> int | None: ...
    def read(self, name: str) -> bytes: ...
    def find(self, name: str) -> bytes | None: ...
    def open(self, name: str) -> RangeFile: ...
    def create(
        self, name: str, parents: bool = True
    ) -> contextlib.AbstractContextManager[BinaryIO]: ...
    def write(self, name: str, data: bytes) -> None: ...
    def publish(self, name: str, data: bytes, scratch: str, allowed: Condition) -> bool: ...
    def delete(self, name: str) -> None: ...


class LocalStore:
    """A folder of a local or mounted file system."""

    files = Files()

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)

    def path(self, name: str) -> Path:
        parts = name.split("/")
        if not all(_PART.fullmatch(part) for part in parts):
            raise MasterTableError(
                f"{name!r} is not a file name inside a master table; "
                f"{self.root} is damaged or was written by another program; build the table again"
            )
        return self.root.joinpath(*parts)

    def list(self, folder: str) -> list[str]:
        try:
            names = self.files.list(self.path(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [name for name in names if _PART.fullmatch(name)]  # skip foreign files

    def size(self, name: str) -> int | None:
        try:
            return self.files.stat(self.path(name)).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def modified(self, name: str) -> float | None:
        """The modification time of a file, by the clock of the file system; see :meth:`clock`."""
        try:
            return self.files.stat(self.path(name)).st_mtime
        except (FileNotFoundError, NotADirectoryError):
            return None

    def clock(self) -> float:
        """The present time of the file system's clock.

        A file server's clock may differ from this machine's, so ages are measured with the file
        system's own.
        """
        probe = f"work/clock-{uuid.uuid4().hex}"
        self.write(probe, b"")
        try:
            return self.files.stat(self.path(probe)).st_mtime
        finally:
            self.delete(probe)

    def read(self, name: str) -> bytes:
        try:
            return self.files.read(self.path(name))
        except OSError as error:
            raise _unreadable(self.path(name), error) from error

    def find(self, name: str) -> bytes | None:
        """As :meth:`read`; None if there is no such file."""
        try:
            return self.files.read(self.path(name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(self.path(name), error) from error

    def open(self, name: str) -> LocalFile:
        return LocalFile(self.path(name), self.files)

    @contextlib.contextmanager
    def create(
        self, name: str, parents: bool = True, is_scratch: bool = False
    ) -> Iterator[BinaryIO]:
        """Write a new file; it is synced to disk when the block ends.

        A scratch file is one whose name need not survive a crash: its folder is not synced.
        """
        path = self.path(name)
        with writing(path):
            if parents:
                self.make_folder(path.parent)
            file = self.files.create(path)
        try:
            yield file
            with writing(path):
                self.files.sync(file)
                _drop_from_page_cache(file.fileno())
        finally:
            # A full disk fails here again; report the first error.
            with contextlib.suppress(OSError):
                file.close()
        if not is_scratch:
            with writing(path):
                self.files.sync_folder(path.parent)

    def write(self, name: str, data: bytes) -> None:
        """Write a new file without sync; it may be lost in a crash of this machine."""
        path = self.path(name)
        with writing(path):
            self.make_folder(path.parent)
            with self.files.create(path) as file:
                file.write(data)

    def publish(
        self, name: str, data: bytes, scratch: str, allowed: Condition = lambda: True
    ) -> bool:
        """Publish ``name`` atomically; False if another process was first.

        ``allowed`` is called when ``scratch``, with the same bytes, exists. Deleting the scratch
        file or its folder prevents publishing.
        """
        target = self.path(name)
        with writing(target):
            self.make_folder(target.parent)
        try:
            with self.create(scratch, parents=False, is_scratch=True) as file:
                file.write(data)
            if not allowed() or not self._link(self.path(scratch), target, data):
                return False
        except MasterTableError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return False
            raise
        finally:
            self.delete(scratch)
        self._sync_published(target)
        return True

    def publish_link(self, name: str, published: str) -> bool:
        """Publish ``name`` as a second name of a published file, whose content is on disk.

        False if another process was first, ``published`` is gone, or it belongs to another user:
        the caller then publishes a new file, and has any other error again.
        """
        target = self.path(name)
        try:
            self.files.touch(self.path(published))  # both names have one age: that of the newest
            self.files.link(self.path(published), target)
        except OSError:
            return False
        self._sync_published(target)
        return True

    def _sync_published(self, target: Path) -> None:
        try:
            self.files.sync_folder(target.parent)
        except OSError as error:
            raise PublishInDoubtError(
                f"{target} was published, but its folder cannot be synced: "
                f"{error.strerror or error}; a power failure may lose it. Check the disk"
            ) from error

    def _link(self, scratch: Path, target: Path, data: bytes) -> bool:
        """Whether ``target`` is ours. An error is no proof: a file server may have created the
        link and lost its reply."""
        try:
            self.files.link(scratch, target)
        except OSError as error:
            try:
                return self.files.read(target) == data
            except FileNotFoundError:
                if isinstance(error, FileNotFoundError):
                    return False  # the scratch file was removed
                if error.errno in _REFUSALS:
                    with writing(target):
                        raise
            except OSError:  # the state of the name is unknown
                pass
            raise PublishInDoubtError(
                f"{target} may or may not have been published: the link failed with "
                f"{error.strerror or error}, and the file cannot be found now. Nothing was "
                "deleted; open the newest version to see whether the change is in it"
            ) from error
        return True

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.files.unlink(self.path(name))

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents. A crash loses a folder until its parent is synced."""
        missing = []
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for new in reversed(missing):
            with contextlib.suppress(FileExistsError):  # another process created it
                self.files.mkdir(new)
            with writing(new):
                self.files.sync_folder(new.parent)


class LocalFile:
    """Positional reads into a caller's buffer, buffered or direct.

    The file is never mapped as a whole: mapped pages count as resident memory of the process,
    which must stay within its budget.
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
                raise _unreadable(self.path, error) from error
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

    def prefetch(self, ahead: DiskRead | None, target: memoryview, extents: Extents) -> None:
        if ahead is not None:
            descriptor = self._direct_descriptor()
            ahead.begin(descriptor, address_of(target), extents)
        elif hasattr(os, "posix_fadvise") and len(extents) <= _ADVISED:
            with contextlib.suppress(OSError):  # it is only advice
                for offset, size in zip(extents.offsets, extents.sizes, strict=True):
                    os.posix_fadvise(self._cached, offset, size, os.POSIX_FADV_WILLNEED)

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


def _drop_from_page_cache(descriptor: int) -> None:
    """Drop a synced file from the page cache.

    Written data is cached in small pages; read again, it is cached in huge ones, which are ten
    times cheaper to map. Also, writing a large table then evicts nothing that is in use.
    """
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):  # it is only advice
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


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
        raise _unreadable(path, error) from error
    except OSError as error:
        hint = "; the file system may not support direct=True" if flags else ""
        raise MasterTableError(f"{path} cannot be opened: {error.strerror}{hint}") from error


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an OSError (full disk, no permission) into a readable error. Do not wrap code that
    produces the user's data: its errors are not about writing."""
    try:
        yield
    except OSError as error:
        raise MasterTableError(
            f"{path} cannot be written: {error.strerror or error}; nothing was published. "
            "Free space or choose another path, and repeat"
        ) from error


def _unreadable(path: Path, error: OSError) -> MasterTableError:
    if error.errno in (errno.ENOENT, errno.ESTALE):
        return MasterTableError(
            f"{path} is missing; it was deleted or vacuumed, perhaps on another machine. Open the "
            "newest version, vacuum with a larger keep, or build the table again"
        )
    return MasterTableError(f"{path} cannot be read: {error.strerror}; check the disk and retry")
