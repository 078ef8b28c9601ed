"""How old a table's data is: when it was last known to be in step with its source.

A sync that finds no change publishes nothing, but leaves a note in ``manifests/checked.json``. The
note is written by a rename, without sync to disk: losing it makes the data appear older, not newer.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from datetime import datetime, timezone

from semistream.master.manifest import FOLDER, Manifest
from semistream.master.store import LocalStore, writing

_NOTE = f"{FOLDER}/checked.json"


def timestamp() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def note_check(store: LocalStore, manifest: Manifest, as_of: str) -> None:
    """This version, the newest, still equals its source as of this time."""
    assert manifest.sync is not None
    draft = f"{FOLDER}/checked-{uuid.uuid4().hex}"
    note = {"version": manifest.version, "source": manifest.sync.source, "as_of": as_of}
    try:
        store.write(draft, json.dumps(note).encode())
        with writing(store.path(_NOTE)):
            store.files.rename(store.path(draft), store.path(_NOTE))
    except BaseException:
        with contextlib.suppress(OSError):
            store.files.unlink(store.path(draft))
        raise


def as_of(store: LocalStore, manifest: Manifest) -> datetime | None:
    """When the source was last found to be like this version; None if it follows no source."""
    if manifest.sync is None:
        return None
    times = [manifest.sync.as_of]
    with contextlib.suppress(ValueError, TypeError, KeyError):
        note = json.loads(store.find(_NOTE) or b"null")
        if note["source"] == manifest.sync.source and note["version"] <= manifest.version:
            times.append(str(note["as_of"]))
    return max(datetime.fromisoformat(time) for time in times)


def age_of(store: LocalStore, manifest: Manifest) -> float | None:
    """Seconds since then."""
    time = as_of(store, manifest)
    return None if time is None else max(0.0, (datetime.now(timezone.utc) - time).total_seconds())
