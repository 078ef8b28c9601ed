"""Pins: which version of the table a (query, batch) was joined with, so that a replay sees it too.

A pin is a small file ``pins/<query>.<batch>`` that says a version. Whoever comes first creates
it, exclusively; all others, today or after a crash, read it. The newest pins of a query keep
their versions from being vacuumed.
"""

from __future__ import annotations

import re
import time
import uuid

from semistream.errors import ConfigError, MasterTableError
from semistream.master import manifest as manifests
from semistream.master.store import LocalStore

FOLDER = "pins"
KEEP_BATCHES = 100  # as many as Spark keeps in a checkpoint unless told otherwise
REPLAYABLE = 2  # batches of a query that a restart may run again: the last, and the one under way
FORGOTTEN_AFTER = 7 * 24 * 3600.0  # seconds after which a query that pinned nothing is gone

_QUERY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_\-]*")
_NAME = re.compile(rf"({_QUERY.pattern})\.(\d{{20}})")


def pin(store: LocalStore, query: str, batch: int, keep: int = KEEP_BATCHES) -> int:
    """The version that this batch of this query sees: the newest one, if nobody has said yet."""
    if not _QUERY.fullmatch(query) or batch < 0:
        raise ConfigError(f"query={query!r}, batch={batch!r}: not something that Spark hands out")
    versions = manifests.list_versions(store)
    if not versions:  # before anything is written: a pin must not bring a lost folder back
        manifests.read_manifest(store)
    name = f"{FOLDER}/{query}.{batch:020d}"
    found = _read(store, name)
    if found is not None:
        return found
    scratch = f"{FOLDER}/new-{uuid.uuid4().hex}"
    if store.publish(name, str(versions[-1]).encode(), scratch):
        _forget(store, query, batch - keep)
        return versions[-1]
    found = _read(store, name)
    if found is None:
        raise MasterTableError(
            f"the pin {store.path(name)} vanished while it was read; is someone deleting files "
            "of this table? Run the batch again"
        )
    return found


def pinned_versions(store: LocalStore) -> set[int]:
    """Versions that a replay may still ask for. Pins of queries long gone are removed here."""
    batches: dict[str, list[str]] = {}
    for name in store.list(FOLDER):
        match = _NAME.fullmatch(name)
        if match is not None:
            batches.setdefault(match[1], []).append(name)
    versions = set()
    for names in batches.values():
        if _age(store, names[-1]) > FORGOTTEN_AFTER:
            for name in names:
                store.delete(f"{FOLDER}/{name}")
            continue
        for name in names[-REPLAYABLE:]:
            found = _read(store, f"{FOLDER}/{name}")
            if found is not None:
                versions.add(found)
    return versions


def _read(store: LocalStore, name: str) -> int | None:
    if store.size(name) is None:
        return None
    try:
        return int(store.read(name))
    except ValueError as error:
        raise MasterTableError(
            f"the pin {store.path(name)} is damaged: it does not hold a version; delete it, and "
            "the batch runs with the newest version"
        ) from error


def _forget(store: LocalStore, query: str, before: int) -> None:
    for name in store.list(FOLDER):
        match = _NAME.fullmatch(name)
        if match is not None and match[1] == query and int(match[2]) < before:
            store.delete(f"{FOLDER}/{name}")


def _age(store: LocalStore, name: str) -> float:
    try:
        return time.time() - store.files.stat(store.path(f"{FOLDER}/{name}")).st_mtime
    except FileNotFoundError:
        return 0.0
