"""Folder operations of the file sinks, built on :class:`~semistream.master.files.Files` only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from semistream.errors import SemistreamError
from semistream.master.files import Files


class Unsynced(Files):
    """Never syncs: files survive a crash of any process, but not a power failure."""

    def sync(self, file: BinaryIO) -> None:
        file.flush()

    def sync_folder(self, folder: Path) -> None:
        pass


def make_folders(disk: Files, folder: Path) -> None:
    """Create a folder and its parents. A crash loses a new folder until its parent is synced."""
    if not folder.is_dir():
        make_folders(disk, folder.parent)
        with contextlib.suppress(FileExistsError):  # another task created it
            disk.mkdir(folder)
        with contextlib.suppress(PermissionError):  # no permission on the parent folder
            disk.sync_folder(folder.parent)


def sync_folders(disk: Files, folder: Path, top: Path) -> None:
    """Sync a folder and its parents up to ``top``: their creators may have crashed before it."""
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
    """Remove a folder of files. Files that cannot be removed stay for the next sweep."""
    with contextlib.suppress(OSError):
        for name in names(disk, folder):
            if name not in spare:
                remove(disk, folder / name)
        disk.rmdir(folder)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an OSError (full disk, no permission) into a readable error. Do not wrap code that
    produces the user's rows: its errors are not about writing."""
    try:
        yield
    except OSError as error:
        raise SemistreamError(
            f"{error.filename or path} cannot be written: {error.strerror or error}; free space, "
            "or check the disk and permissions, then restart the query: it replays this batch"
        ) from error
