"""How old a table's data is: when it was last known to be in step with its source.

A sync that finds no change publishes nothing, but leaves a note in ``manifests/checked.json``. The
note is written by a rename, without sync to disk: losing it makes the data appear older, not newer.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from semistream.master.manifest import FOLDER, SyncInfo
from semistream.master.store import LocalStore, writing

if TYPE_CHECKING:
    from semistream.master.table import MasterTable

_NOTE = f"{FOLDER}/checked.json"


def timestamp() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def note_check(store: LocalStore, info: SyncInfo, as_of: str) -> None:
    """The newest version still equals its source, as of this time."""
    draft = f"{FOLDER}/checked-{uuid.uuid4().hex}"
    store.write(draft, json.dumps({"source": info.source, "as_of": as_of}).encode())
    with writing(store.path(_NOTE)):
        store.files.rename(store.path(draft), store.path(_NOTE))


def as_of(table: MasterTable) -> datetime | None:
    """When the source was last read; None if the table follows no source."""
    info = table.manifest.sync
    if info is None:
        return None
    times = [info.as_of]
    with contextlib.suppress(ValueError, TypeError, KeyError):
        note = json.loads(table.store.find(_NOTE) or b"null")
        if note["source"] == info.source:
            times.append(str(note["as_of"]))
    return max(datetime.fromisoformat(time) for time in times)


def age_of(table: MasterTable) -> float | None:
    """Seconds since then."""
    time = as_of(table)
    return None if time is None else max(0.0, (datetime.now(timezone.utc) - time).total_seconds())
