"""A writer's private folder inside the table's folder, and how to detect that its owner died.

Every build, upsert, delete or compaction generates a token, works in the folder ``work/<token>``
and names its segments after the token. The folder has a lock, held while the writer lives, and a
lease with the machine's id. So a writer is dead

- on the same machine, if its lock can be taken: the system drops it when the process dies for any
  reason;
- on another machine, where locks may not work, if its folder has not changed for ``GRACE``, by the
  clock of the table's file system.

A writer that is considered dead may be alive, on a machine that was paused for a week. Therefore
its folder is renamed first. The manifest that it is about to publish is in
it (:data:`UNPUBLISHED`), so from then on it cannot publish; and if it published before, its version
is listed, and its segments are in use. Clocks only decide how long garbage is kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import uuid
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from semistream.master.format_version import check_format_version
from semistream.master.store import LocalStore, writing

GRACE = 7 * 24 * 3600.0  # seconds of inactivity after which a writer on another machine is dead
UNPUBLISHED = "manifest.json"
FORMAT = "semistream-lease"
FORMAT_VERSION = 1
_FOLDER = "work"
_TOKEN = re.compile(r"[0-9a-f]{16}")
_DEAD = ".dead"


class Workspace:
    """A context manager; its exit removes all spilled files."""

    def __init__(self, store: LocalStore) -> None:
        self.store = store
        self.token = uuid.uuid4().hex[:16]
        self.folder = store.path(f"{_FOLDER}/{self.token}")
        self._descriptor = -1

    def __enter__(self) -> Workspace:
        with writing(self.folder):
            self.store.make_folder(self.folder.parent)
            self.store.files.mkdir(self.folder)
            descriptor = self.store.files.lock(self.folder / "lock", wait=True)
        assert descriptor is not None
        self._descriptor = descriptor
        # After the lock: a lease with a free lock means that the owner died.
        self.store.write(self.scratch("lease"), _lease())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.store.files.rmtree(self.folder)
        os.close(self._descriptor)

    def scratch(self, name: str) -> str:
        """A name inside this workspace, relative to the table's folder."""
        return f"{_FOLDER}/{self.token}/{name}"


class Writers(NamedTuple):
    """Tokens of live and of dead writers.

    A writer in neither set has finished: whatever it publishes is published already.
    """

    alive: set[str]
    dead: set[str]


def survey(store: LocalStore, now: float) -> Writers:
    """Find live and dead writers; removes the workspaces of the dead."""
    alive: set[str] = set()
    dead: set[str] = set()
    for name in store.list(_FOLDER):
        token = name.removesuffix(_DEAD)
        if not _TOKEN.fullmatch(token):
            if _age(store, name, now) > GRACE:
                store.files.rmtree(store.path(f"{_FOLDER}/{name}"))
                store.delete(f"{_FOLDER}/{name}")
        elif name != token:  # left by a vacuum that crashed
            store.files.rmtree(store.path(f"{_FOLDER}/{name}"))
            dead.add(token)
        elif _is_alive(store, token, now):
            alive.add(token)
        elif _remove_dead(store, token):
            dead.add(token)
    return Writers(alive, dead)


def stop_superseded(store: LocalStore, newest: int) -> None:
    """Remove the scratch manifests that ``newest`` supersedes, so that they are never published.

    Otherwise a writer that paused between its last check and its link could reuse the number of a
    version that was vacuumed since. A writer whose scratch manifest is completed later checks after
    that, and finds ``newest`` itself.
    """
    for token in store.list(_FOLDER):
        if not _TOKEN.fullmatch(token):
            continue
        name = f"{_FOLDER}/{token}/{UNPUBLISHED}"
        try:
            parent = json.loads(store.find(name) or b"")["parent"]
        except (ValueError, KeyError, TypeError):
            continue
        if parent is None or parent < newest:
            store.delete(name)


def _is_alive(store: LocalStore, token: str, now: float) -> bool:
    if _host(store, f"{_FOLDER}/{token}/lease") != this_machine():
        return _age(store, token, now) <= GRACE
    try:
        descriptor = store.files.lock(store.path(f"{_FOLDER}/{token}/lock"), wait=False)
    except FileNotFoundError:
        return False
    if descriptor is None:
        return True
    os.close(descriptor)  # no other writer uses this lock
    return False


def _remove_dead(store: LocalStore, token: str) -> bool:
    """Prevent a writer from publishing and remove its workspace; False if it just finished."""
    folder: Path = store.path(f"{_FOLDER}/{token}")
    grave: Path = store.path(f"{_FOLDER}/{token}{_DEAD}")
    try:
        store.files.rename(folder, grave)
    except OSError:
        return False
    store.files.rmtree(grave)
    return True


def _host(store: LocalStore, name: str) -> str | None:
    """The machine of the writer; None if it has not written its lease yet."""
    data = store.find(name)
    try:
        body = json.loads(data or b"")
    except ValueError:
        return None
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        return None
    check_format_version(store.path(name), body.get("format_version"), FORMAT_VERSION)
    return str(body.get("machine"))


def _lease() -> bytes:
    body = {"format": FORMAT, "format_version": FORMAT_VERSION, "machine": this_machine()}
    return json.dumps(body).encode()


def this_machine() -> str:
    """An id shared by all processes between which locks work: this machine until it restarts."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()}-{uuid.getnode():x}"


def _age(store: LocalStore, name: str, now: float) -> float:
    modified = store.modified(f"{_FOLDER}/{name}")
    return 0.0 if modified is None else now - modified
