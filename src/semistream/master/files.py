"""The file operations that a master table's safety depends on, each one system call.

Every durable change of a table's folder is a sequence of calls of this class, and of nothing else.
They determine what is on disk after a crash, and what other processes see in between. A test
replaces ``LocalStore.files`` by a subclass that records, fails, or pauses at a chosen call.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np


class Files:
    """A local or mounted file system. Raises OSError as the system does."""

    def list(self, folder: Path) -> list[str]:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries)

    def exists(self, path: Path | str, folder: int | None = None) -> bool:
        """Whether there is a file; also False if the system cannot tell, where ``stat`` raises.

        ``folder``: a descriptor of the folder that a relative path begins at.
        """
        return os.access(path, os.F_OK, dir_fd=folder)

    def stat(self, path: Path) -> os.stat_result:
        return path.stat()

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def read_array(self, path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The same as an array, which can be written to, and of a large file takes less time."""
        return np.fromfile(path, np.uint8)

    def open(self, path: Path, flags: int) -> int:
        """A read-only file descriptor; ``flags`` are added."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)

    def create(self, path: Path) -> BinaryIO:
        """Create a file for writing. Raises FileExistsError if the name exists."""
        return open(path, "xb", buffering=1 << 20)

    def sync(self, file: BinaryIO) -> None:
        """Sync the file's content to disk; its name needs :meth:`sync_folder`."""
        file.flush()
        os.fsync(file.fileno())

    def sync_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def link(self, source: Path, target: Path) -> None:
        """Create a hard link. Raises if the name exists, which decides races between writers."""
        os.link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def touch(self, path: Path) -> None:
        """Set a file's modification time to now, by the file system's clock."""
        os.utime(path)

    def mkdir(self, folder: Path) -> None:
        folder.mkdir()

    def rmdir(self, folder: Path) -> None:
        folder.rmdir()

    def rmtree(self, folder: Path) -> None:
        """Remove a workspace, which no reader uses. Not atomic, and need not be."""
        shutil.rmtree(folder, ignore_errors=True)

    def lock(self, path: Path, wait: bool) -> int | None:
        """A descriptor that holds the file's lock until it is closed; None if it is taken."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if wait else 0)
        descriptor = os.open(path, flags, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def share_lock(self, path: Path) -> int | None:
        """The same, held together with others who share it; None if it is taken."""
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor
