"""A writer's private corner of the table's folder, and how to know that its owner died.

Every build, upsert, delete or compaction draws a token, works in the folder ``work/<token>`` and
names its segments after the token. The folder holds a lock, for as long as the writer lives, and
a lease that names the machine. So a writer is dead

- on the same machine, when its lock can be taken: the system drops it however a process dies;
- on another machine, where locks may not reach, when nothing happened in its folder for ``GRACE``,
  by the clock of the file system that the table lies on.

A writer can be taken for dead and be alive: a machine that was paused for a week. Therefore its
folder is renamed before anything else is done. The manifest that it wants to publish lies in there
(:data:`UNPUBLISHED`), so from then on it cannot publish; and if it had done so before, its version
is listed, and its segments are in use. No clock is trusted with more than how long litter stays.
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

from semistream.master.manifest import check_format_version
from semistream.master.store import LocalStore, writing

GRACE = 7 * 24 * 3600.0  # seconds without a sign of a writer on another machine
UNPUBLISHED = "manifest.json"
FORMAT = "semistream-lease"
FORMAT_VERSION = 1
_FOLDER = "work"
_TOKEN = re.compile(r"[0-9a-f]{16}")
_DEAD = ".dead"


class Workspace:
    """Use with ``with``; leaving it removes everything that was spilled."""

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
        # After the lock: who reads the lease may conclude from a free lock that the owner died.
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
    """Tokens of writers at work, and of those that died.

    A writer that is in neither set has left by itself: what it wanted to publish is published.
    """

    alive: set[str]
    dead: set[str]


def survey(store: LocalStore, now: float) -> Writers:
    """Who is at work and who died; the workspaces of the dead are removed."""
    alive: set[str] = set()
    dead: set[str] = set()
    for name in store.list(_FOLDER):
        token = name.removesuffix(_DEAD)
        if not _TOKEN.fullmatch(token):
            if _age(store, name, now) > GRACE:
                store.files.rmtree(store.path(f"{_FOLDER}/{name}"))
                store.delete(f"{_FOLDER}/{name}")
        elif name != token:  # a cleaner died at it
            store.files.rmtree(store.path(f"{_FOLDER}/{name}"))
            dead.add(token)
        elif _is_alive(store, token, now):
            alive.add(token)
        elif _bury(store, token):
            dead.add(token)
    return Writers(alive, dead)


def stop_overtaken(store: LocalStore, newest: int) -> None:
    """Take the manifests away that can no longer be published, because ``newest`` is there.

    Otherwise a writer that stopped between its last look and its link could give a version the
    number of one that was vacuumed since. One whose scratch manifest comes, or is complete, only
    later looks after that, and finds ``newest`` itself.
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
    os.close(descriptor)  # no other writer can want it
    return False


def _bury(store: LocalStore, token: str) -> bool:
    """Stop a writer from publishing, and remove its workspace; False if it has just left."""
    folder: Path = store.path(f"{_FOLDER}/{token}")
    grave: Path = store.path(f"{_FOLDER}/{token}{_DEAD}")
    try:
        store.files.rename(folder, grave)
    except OSError:
        return False
    store.files.rmtree(grave)
    return True


def _host(store: LocalStore, name: str) -> str | None:
    """The machine of the writer; None if it has not come to say so."""
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
    """The same for all processes between which locks work, on this machine until it restarts."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()}-{uuid.getnode():x}"


def _age(store: LocalStore, name: str, now: float) -> float:
    modified = store.modified(f"{_FOLDER}/{name}")
    return 0.0 if modified is None else now - modified
