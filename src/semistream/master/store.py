"""A table's folder: list, read a range, write, publish if absent, delete.

Callers name files relative to the table's folder, with ``/`` between parts. A name outside the
folder raises, even if a manifest contains it. An object store can implement this interface if it
has a conditional put for :meth:`Store.publish`. Every change of the folder is a call of
:class:`~semistream.master.files.Files`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from semistream.errors import MasterTableError
from semistream.master.files import Files
from semistream.master.local_file import LocalFile, RangeFile, unreadable

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
Condition = Callable[[], bool]


# Errors of link() that mean that nothing was done.
_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMLINK)


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
            raise unreadable(self.path(name), error) from error

    def read_array(self, name: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
        try:
            return self.files.read_array(self.path(name))
        except OSError as error:
            raise unreadable(self.path(name), error) from error

    def find(self, name: str) -> bytes | None:
        """As :meth:`read`; None if there is no such file."""
        try:
            return self.files.read(self.path(name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise unreadable(self.path(name), error) from error

    def open(self, name: str) -> LocalFile:
        return LocalFile(self.path(name), self.files)

    @contextlib.contextmanager
    def create(
        self, name: str, parents: bool = True, is_scratch: bool = False, is_read_next: bool = False
    ) -> Iterator[BinaryIO]:
        """Write a new file; it is synced to disk when the block ends.

        A scratch file is one whose name need not survive a crash: its folder is not synced. A
        file of a delta is read next, by every run that follows the table. It stays in the page
        cache: otherwise the push in which a run moves to the new version waits for the disk.
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
                if not is_read_next:
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


def _drop_from_page_cache(descriptor: int) -> None:
    """Drop a synced file from the page cache.

    Written data is cached in small pages; read again, it is cached in huge ones, which are ten
    times cheaper to map. Also, writing a large table then evicts nothing that is in use.
    """
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):  # it is only advice
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


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
