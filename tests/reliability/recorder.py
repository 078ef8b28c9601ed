"""Records what is done to a folder, by looking at it before every file operation of Python.

The interpreter announces each open, link, rename, unlink, mkdir and rmdir before it happens, and
``os.fsync`` is replaced. Between two announcements at most one name changed; whatever else is new
was written in between. So nothing bypasses the recorder, not even the C++ of Arrow's Parquet
writer. Only a sync made by foreign code goes unseen, and then counts as not made.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from reliability.disk import FOLDER, Disk, Names, Operation, Sync, SyncFolder, Write

_EVENTS = {"open", "os.link", "os.rename", "os.remove", "os.mkdir", "os.rmdir"}
_active: list[Recorder] = []


class Recorder:
    """What has been done to ``root`` since :func:`recording` began."""

    def __init__(self, root: Path, is_atomic: Callable[[str], bool]) -> None:
        self.root = root
        self.start = Disk()
        self.operations: list[Operation] = []
        self._is_atomic = is_atomic
        self._numbers: dict[int, int] = {}  # inode -> our number of the file
        self._held: list[int] = []  # descriptors: an inode number is not used again meanwhile
        self._names: dict[str, int] = {}
        self._content: dict[int, bytes] = {}
        self._is_looking = False

    def begin(self) -> None:
        self.observe()
        for operation in self.operations:
            self.start.apply(operation)
        self.start.sync_all()
        self.operations.clear()

    def end(self) -> None:
        self.observe()
        for descriptor in self._held:
            os.close(descriptor)

    def observe(self) -> None:
        if self._is_looking:
            return
        self._is_looking = True
        try:
            self._compare()
        finally:
            self._is_looking = False

    def sync(self, descriptor: int) -> None:
        self.observe()
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            for folder in ["", *(name for name, to in self._names.items() if to == FOLDER)]:
                if os.path.samestat(os.stat(self.root / folder), status):
                    self.operations.append(SyncFolder(folder))
        elif status.st_ino in self._numbers:
            self.operations.append(Sync(self._numbers[status.st_ino]))

    def _compare(self) -> None:
        before, now, content = self._names, {}, {}
        for path, inode in sorted(_walk(self.root, "")):
            if inode is None:
                now[path] = FOLDER
                continue
            if inode not in self._numbers:
                self._held.append(os.open(self.root / path, os.O_RDONLY))
                self._numbers[inode] = len(self._numbers)
            number = now[path] = self._numbers[inode]
            if number not in content:
                content[number] = (self.root / path).read_bytes()
        self._names = now
        come = [path for path, target in now.items() if before.get(path) != target]
        come.sort(key=self._is_atomic)  # it is linked when the files that it names are there
        gone = [path for path in before if path not in now]
        for path in come:
            self._come(path, now[path], [old for old in gone if before[old] == now[path]], content)
        renamed = {before[old] for old in gone} & {now[path] for path in come} - {FOLDER}
        for path in sorted(gone, reverse=True):  # what is in a folder goes before the folder
            if before[path] not in renamed:
                self.operations.append(_names({path: None}))
        for number, data in content.items():
            self._write(number, data)

    def _come(self, path: str, target: int, old: list[str], content: dict[int, bytes]) -> None:
        if target != FOLDER and target not in self._content and self._is_atomic(path):
            self._write(target, content[target])
        moved: dict[str, int | None] = {path: target}
        if target != FOLDER:
            moved |= dict.fromkeys(old)
        self.operations.append(_names(moved))

    def _write(self, number: int, data: bytes) -> None:
        """In two halves: a process may be killed in the middle."""
        before = self._content.get(number, b"")
        if data == before and number in self._content:
            return
        half = data[: (len(before) + len(data)) // 2]
        if half not in (before, data):
            self.operations.append(Write(number, half))
        self.operations.append(Write(number, data))
        self._content[number] = data


@contextmanager
def recording(
    root: Path, is_atomic: Callable[[str], bool] = lambda path: False
) -> Iterator[Recorder]:
    """Record everything that happens in ``root``; what is in it now counts as synced.

    ``is_atomic``: files that foreign code links to this name only when they are complete.
    """
    if not _installed:
        sys.addaudithook(_hook)  # for good: a hook cannot be removed
        _installed.append(True)
    recorder = Recorder(root, is_atomic)
    recorder.begin()
    _active.append(recorder)
    try:
        with mock.patch("os.fsync", recorder.sync), mock.patch("os.fdatasync", recorder.sync):
            yield recorder
    finally:
        _active.clear()
        recorder.end()


_installed: list[bool] = []


def _hook(event: str, args: Any) -> None:
    if _active and event in _EVENTS:
        _active[0].observe()


def _walk(folder: Path, prefix: str) -> Iterator[tuple[str, int | None]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            path = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                yield path, None
                yield from _walk(folder / entry.name, f"{path}/")
            else:
                yield path, entry.inode()


def _names(changes: dict[str, int | None]) -> Names:
    folders: dict[str, dict[str, int | None]] = {}
    for path, target in changes.items():
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, {})[name] = target
    return Names(folders)
