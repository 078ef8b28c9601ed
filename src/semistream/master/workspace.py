"""A writer's private corner of the table's folder, and how to tell that its owner died.

Every build, upsert, delete or compaction draws a token, holds a lock on ``work/<token>.lock``
for as long as it lives, spills into ``work/<token>/`` and names its segments after the token.
The operating system drops the lock when the process dies, however it dies. So a token whose
lock can be taken is dead, and what carries its name and no manifest mentions is litter.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from pathlib import Path
from types import TracebackType

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
            self._lock.parent.mkdir(parents=True, exist_ok=True)
            while True:
                descriptor = os.open(self._lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if _same_file(descriptor, self._lock):
                    break
                os.close(descriptor)  # a cleaner took it for dead before the lock was held
            self._descriptor = descriptor
            self.folder.mkdir()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.unlink(missing_ok=True)
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
        if _bury(lock, lock.with_suffix("")):
            continue
        alive.add(token)
    return alive


def _bury(lock: Path, folder: Path) -> bool:
    """Remove a dead writer's workspace; False if the writer lives."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        # Its owner is leaving or a cleaner was here: the folder holds nothing of value.
        shutil.rmtree(folder, ignore_errors=True)
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        shutil.rmtree(folder, ignore_errors=True)
        lock.unlink(missing_ok=True)
        return True
    finally:
        os.close(descriptor)


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
