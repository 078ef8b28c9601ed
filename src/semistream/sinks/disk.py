"""How the file sinks change a folder: steps of :class:`~semistream.master.files.Files` only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from semistream.errors import SemistreamError
from semistream.master.files import Files


class Unsynced(Files):
    """Never waits for the disk: outlives every process, but not a loss of power."""

    def sync(self, file: BinaryIO) -> None:
        file.flush()

    def sync_folder(self, folder: Path) -> None:
        pass


def make_folders(disk: Files, folder: Path) -> None:
    """Also the folders above it. A new folder is lost in a crash until its parent is synced."""
    if not folder.is_dir():
        make_folders(disk, folder.parent)
        with contextlib.suppress(FileExistsError):  # another task makes it, too
            disk.mkdir(folder)
        with contextlib.suppress(PermissionError):  # a folder above may be closed to us
            disk.sync_folder(folder.parent)


def sync_folders(disk: Files, folder: Path, top: Path) -> None:
    """A folder and those above it up to ``top``: their makers may have died before they did it."""
    while True:
        disk.sync_folder(folder)
        if folder == top:
            break
        folder = folder.parent


def names(disk: Files, folder: Path) -> list[str]:
    try:
        return disk.list(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def remove(disk: Files, path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        disk.unlink(path)


def remove_folder(disk: Files, folder: Path, spare: frozenset[str] = frozenset()) -> None:
    """A folder of files. What cannot be removed stays for the next time."""
    with contextlib.suppress(OSError):
        for name in names(disk, folder):
            if name not in spare:
                remove(disk, folder / name)
        disk.rmdir(folder)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """A full disk or a folder without permission, in words. Never wrap the user's rows in it:
    what they raise is not about writing."""
    try:
        yield
    except OSError as error:
        raise SemistreamError(
            f"{error.filename or path} cannot be written: {error.strerror or error}; make room, "
            "or check disk and permissions, and start the query again: it repeats this batch"
        ) from error
