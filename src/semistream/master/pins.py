"""Pins: the version of the table that a (query, batch) was joined with, so that a replay reads it.

A pin is a small file ``pins/<query>.<batch>`` that contains a version. The first process creates
it exclusively; all others, now or after a crash, read it. The newest pins of a query protect their
versions from vacuum. While a version is being chosen, a ``pins/hold-<id>`` protects it, so a pin
never contains a version that vacuum removes concurrently (see :mod:`semistream.master.retire`).

The pins of a query that has pinned nothing for a week expire, in two steps, because a clock may
jump: a vacuum that finds them too old only marks them (``pins/idle.<newest pin>``), and one that
runs at least a day later removes them, if the query has pinned nothing in between. All ages are
measured with the clock of the file system.
"""

from __future__ import annotations

import contextlib
import json
import re
import uuid
from collections.abc import Iterator

from semistream.errors import ConfigError, MasterTableError
from semistream.master import manifest as manifests
from semistream.master.format_version import check_format_version
from semistream.master.retire import keep as keep_version
from semistream.master.store import LocalStore

FOLDER = "pins"
FORMAT = "semistream-pin"
FORMAT_VERSION = 1
KEEP_BATCHES = 100  # the default of spark.sql.streaming.minBatchesToRetain
REPLAYABLE = 2  # batches of a query that a restart may replay: the last, and the running one
IDLE_AFTER = 7 * 24 * 3600.0  # seconds without a new pin after which a query is marked as idle
EXPIRES_AFTER = 24 * 3600.0  # seconds after the mark when its pins are removed

_QUERY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_\-]*")
_NAME = re.compile(rf"({_QUERY.pattern})\.(\d{{20}})")
_HOLD = "hold-"
_SCRATCH = "new-"
_IDLE = "idle."


def pin(
    store: LocalStore,
    query: str,
    batch: int,
    keep: int = KEEP_BATCHES,
    version: int | None = None,
) -> int:
    """The version that this batch of this query reads, now and in every replay.

    The first call pins ``version`` (default: the newest).
    """
    name = pin_name(query, batch)
    if not manifests.list_versions(store):  # do not recreate a deleted table's folder
        manifests.read_manifest(store)
    found = _read(store, name)
    if found is not None:
        return found
    with _held(store, version) as chosen:
        if _publish(store, name, query, batch, _content(chosen)):
            _remove_older(store, query, batch - keep)
            return chosen
    found = _read(store, name)
    if found is None:
        raise MasterTableError(
            f"the pin {store.path(name)} was deleted while it was being read; check whether "
            "another program deletes files of this table, and run the batch again"
        )
    return found


def _publish(store: LocalStore, name: str, query: str, batch: int, content: bytes) -> bool:
    """Whether this process was the first. When it returns, the pin survives a power failure.

    Most batches read the version of the batch before them, whose pin is on disk: a second name for
    it needs one sync, of the folder; a new file needs a second one, of its content.
    """
    if batch > 0:
        before = pin_name(query, batch - 1)
        if store.find(before) == content and store.publish_link(name, before):
            return True
    return store.publish(name, content, f"{FOLDER}/{_SCRATCH}{uuid.uuid4().hex}")


def pin_name(query: str, batch: int) -> str:
    if not _QUERY.fullmatch(query) or batch < 0:
        raise ConfigError(f"query={query!r}, batch={batch!r} is not a query and batch id of Spark")
    return f"{FOLDER}/{query}.{batch:020d}"


def refresh(store: LocalStore, query: str, batch: int) -> None:
    """Refresh the pin of a long-running batch."""
    store.files.touch(store.path(pin_name(query, batch)))


def unpin(store: LocalStore, query: str, batch: int) -> None:
    store.delete(pin_name(query, batch))


def pinned_versions(store: LocalStore) -> set[int]:
    """Versions that a replay may still read, and those that are being pinned now."""
    # Holds first: a hold that is removed meanwhile was replaced by a pin, which is listed next.
    names = [name for name in store.list(FOLDER) if name.startswith(_HOLD)]
    for pins in _by_query(store.list(FOLDER)).values():
        names += pins[-REPLAYABLE:]
    found = (_read(store, f"{FOLDER}/{name}") for name in names)
    return {version for version in found if version is not None}


def expire_idle(store: LocalStore, now: float) -> None:
    """Mark the pins of idle queries; remove those that were marked a day ago."""
    listed = store.list(FOLDER)

    def age(name: str) -> float:
        modified = store.modified(f"{FOLDER}/{name}")
        return 0.0 if modified is None else now - modified

    marks = set()
    for names in _by_query(listed).values():
        mark = f"{_IDLE}{names[-1]}"
        if age(names[-1]) <= IDLE_AFTER:
            continue
        if mark not in listed:
            with contextlib.suppress(MasterTableError):  # another vacuum marked it first
                store.write(f"{FOLDER}/{mark}", _content(0))
        elif age(mark) > EXPIRES_AFTER:
            for name in names:
                store.delete(f"{FOLDER}/{name}")
            continue
        marks.add(mark)
    for name in listed:
        is_stale_mark = name.startswith(_IDLE) and name not in marks
        is_litter = name.startswith((_HOLD, _SCRATCH)) and age(name) > IDLE_AFTER
        if is_stale_mark or is_litter:
            store.delete(f"{FOLDER}/{name}")


@contextlib.contextmanager
def _held(store: LocalStore, version: int | None) -> Iterator[int]:
    """Choose a version, and protect it from vacuum inside the block."""
    while True:
        chosen = manifests.list_versions(store)[-1] if version is None else version
        hold = f"{FOLDER}/{_HOLD}{uuid.uuid4().hex}"
        try:
            store.write(hold, _content(chosen))
            if keep_version(store, chosen):
                yield chosen
                return
        finally:
            store.delete(hold)
        if version is not None:
            manifests.read_manifest(store, version)  # raises: it does not exist


def _by_query(names: list[str]) -> dict[str, list[str]]:
    """The pins of each query, oldest batch first."""
    queries: dict[str, list[str]] = {}
    for name in names:
        match = _NAME.fullmatch(name)
        if match is not None:
            queries.setdefault(match[1], []).append(name)
    return queries


def _content(version: int) -> bytes:
    body = {"format": FORMAT, "format_version": FORMAT_VERSION, "version": version}
    return json.dumps(body).encode()


def _read(store: LocalStore, name: str) -> int | None:
    data = store.find(name)
    if data is None:
        return None
    path = store.path(name)
    try:
        body = json.loads(data)
        if type(body) is int:  # written before pins had a format version
            return body
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            raise ValueError("not a pin")
    except ValueError as error:
        # The owner is still writing it, or died while writing: it has not read the version yet.
        if path.name.startswith(_HOLD):
            return None
        raise MasterTableError(_damaged(path)) from error
    check_format_version(path, body.get("format_version"), FORMAT_VERSION)
    if type(body.get("version")) is not int:
        raise MasterTableError(_damaged(path))
    return int(body["version"])


def _damaged(path: object) -> str:
    return (
        f"the pin {path} is damaged: it does not contain a version; delete it, and the batch "
        "reads the newest version"
    )


def _remove_older(store: LocalStore, query: str, before: int) -> None:
    for name in store.list(FOLDER):
        match = _NAME.fullmatch(name)
        if match is not None and match[1] == query and int(match[2]) < before:
            store.delete(f"{FOLDER}/{name}")
