"""A writer's private corner of the table's folder, and how to tell that its owner died.

Every build, upsert, delete or compaction draws a token, holds a lock on ``work/<token>.lock``
for as long as it lives, spills into ``work/<token>/`` and names its segments after the token.
The operating system drops the lock when the process dies, however it dies. So a token whose
lock can be taken is dead, and what carries its name and no manifest mentions is litter.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path
from types import TracebackType

from semistream.master.files import Files
from semistream.master.store import LocalStore, writing

_FOLDER = "work"


class Workspace:
    """Use with ``with``; leaving it removes everything that was spilled."""

    def __init__(self, store: LocalStore) -> None:
        self.store = store
        self.token = uuid.uuid4().hex[:16]
        self.folder = store.path(f"{_FOLDER}/{self.token}")
        self._lock = store.path(f"{_FOLDER}/{self.token}.lock")
        self._descriptor = -1

    def __enter__(self) -> Workspace:
        with writing(self.folder):
            self.store.make_folder(self._lock.parent)
            while True:
                descriptor = self.store.files.lock(self._lock, wait=True)
                assert descriptor is not None
                if _same_file(descriptor, self._lock):
                    break
                os.close(descriptor)  # a cleaner took it for dead before the lock was held
            self._descriptor = descriptor
            self.store.files.mkdir(self.folder)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.store.files.rmtree(self.folder)
        with contextlib.suppress(FileNotFoundError):
            self.store.files.unlink(self._lock)
        os.close(self._descriptor)

    def scratch(self, name: str) -> str:
        """A name inside this workspace, relative to the table's folder."""
        return f"{_FOLDER}/{self.token}/{name}"


def living_tokens(store: LocalStore) -> set[str]:
    """Tokens whose writer is at work; the workspaces of the dead are removed on the way."""
    alive = set()
    for name in store.list(_FOLDER):
        token = name.removesuffix(".lock")
        lock = store.path(f"{_FOLDER}/{token}.lock")
        if _bury(store.files, lock, lock.with_suffix("")):
            continue
        alive.add(token)
    return alive


def _bury(files: Files, lock: Path, folder: Path) -> bool:
    """Remove a dead writer's workspace; False if the writer lives."""
    try:
        descriptor = files.lock(lock, wait=False)
    except FileNotFoundError:
        # Its owner is leaving or a cleaner was here: the folder holds nothing of value.
        files.rmtree(folder)
        return True
    if descriptor is None:
        return False
    try:
        files.rmtree(folder)
        with contextlib.suppress(FileNotFoundError):
            files.unlink(lock)
        return True
    finally:
        os.close(descriptor)


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
