"""A version of the table is one JSON file, a manifest; publishing it is the commit.

The manifest lists the schema, the key and the segments, oldest first. It contains a checksum of
itself and of every file that it lists.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import xxhash

from semistream.errors import MasterTableError
from semistream.master.codes import KeyCodes
from semistream.master.format_version import check_format_version
from semistream.master.history import END_COLUMN, History
from semistream.master.store import LocalStore

FORMAT = "semistream-master"
FORMAT_VERSION = 2
FOLDER = "manifests"
_ATTEMPTS = 10  # retries for a manifest that disappears between listing and reading
_NAME = re.compile(r"(\d{20})\.json")
_RETIRED = re.compile(r"(\d{20})\.[0-9a-f]+\.retired")


@dataclass(frozen=True)
class ChangedInfo:
    """A file with the codes that a change has touched; see :mod:`semistream.master.changed`."""

    name: str
    codes: int
    checksum: str

    @property
    def file(self) -> str:
        return f"segments/{self.name}"


@dataclass(frozen=True)
class SegmentInfo:
    """One file of pages, sorted by code. ``kind``: ``base`` or ``delta``.

    ``distinct``: no key has two rows in it. A delta also lists the codes that it ``changed``: it
    hides all rows that older segments have with them.
    """

    name: str
    kind: str
    rows: int
    pages: int
    bytes: int
    checksum: str
    index: str
    index_checksum: str
    distinct: bool
    changed: ChangedInfo | None = None

    @property
    def file(self) -> str:
        return f"segments/{self.name}"

    @property
    def index_file(self) -> str:
        return f"segments/{self.index}"

    @property
    def files(self) -> tuple[str, ...]:
        """All files of the segment."""
        changed = () if self.changed is None else (self.changed.file,)
        return (self.file, self.index_file, *changed)

    @property
    def changes(self) -> int:
        """The size of a delta: its rows, or the codes that it changed if these are more."""
        return max(self.rows, 0 if self.changed is None else self.changed.codes)


@dataclass(frozen=True)
class SyncInfo:
    """What a table follows, and how far: published with the rows that were read up to there.

    ``position`` belongs to the source: a version, offsets, a list of files. ``as_of``: when
    reading began, ISO 8601. ``source`` identifies it and contains no secrets.
    """

    source: str
    position: dict[str, Any]
    as_of: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    rows_read: int = 0

    @property
    def changes(self) -> int:
        return self.inserted + self.updated + self.deleted


@dataclass(frozen=True)
class Manifest:
    """``kind`` is how this version changed its parent: build, upsert, delete, sync or compact.

    ``changed`` lists the codes that an upsert or delete has touched, itself. ``history``: rows of a
    key are valid one after the other.
    """

    version: int
    parent: int | None
    kind: str
    created: str
    schema: pa.Schema
    key: tuple[str, ...]
    unique: bool
    page_bytes: int
    num_rows: int
    rows_without_key: int
    segments: tuple[SegmentInfo, ...]
    changed: ChangedInfo | None = None
    history: History | None = None
    sync: SyncInfo | None = None

    @property
    def rows_schema(self) -> pa.Schema:
        """The columns that a user sees; ``schema`` are those on disk."""
        if self.history is None:
            return self.schema
        return self.schema.remove(self.schema.get_field_index(END_COLUMN))

    @property
    def base(self) -> tuple[SegmentInfo, ...]:
        return tuple(segment for segment in self.segments if segment.kind == "base")

    @property
    def deltas(self) -> tuple[SegmentInfo, ...]:
        """Oldest first."""
        return tuple(segment for segment in self.segments if segment.kind == "delta")

    @property
    def delta_share(self) -> float:
        """Changed rows per row of the base."""
        base = sum(segment.rows for segment in self.base)
        return sum(delta.changes for delta in self.deltas) / max(1, base)

    @property
    def files(self) -> set[str]:
        """All files of this version, besides its manifest."""
        files = {file for segment in self.segments for file in segment.files}
        return files if self.changed is None else {*files, self.changed.file}

    @property
    def key_schema(self) -> pa.Schema:
        return pa.schema([self.schema.field(name) for name in self.key])

    @property
    def distinct(self) -> bool:
        """Whether every key has at most one row: declared, or measured when it was written."""
        return self.unique or all(segment.distinct for segment in self.segments)

    def key_codes(self) -> KeyCodes:
        """How pages store their codes."""
        return KeyCodes(self.schema, self.key)

    def to_json(self) -> bytes:
        body: dict[str, Any] = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "version": self.version,
            "parent": self.parent,
            "kind": self.kind,
            "created": self.created,
            "schema": base64.b64encode(self.schema.serialize().to_pybytes()).decode(),
            "key": list(self.key),
            "unique": self.unique,
            "page_bytes": self.page_bytes,
            "num_rows": self.num_rows,
            "rows_without_key": self.rows_without_key,
            "segments": [asdict(segment) for segment in self.segments],
            "changed": None if self.changed is None else asdict(self.changed),
        }
        if self.history is not None:
            body["history"] = asdict(self.history)
        if self.sync is not None:  # a release that does not know it ignores it
            body["sync"] = asdict(self.sync)
        body["checksum"] = _checksum(body)
        return json.dumps(body, indent=1).encode()


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def manifest_name(version: int) -> str:
    return f"{FOLDER}/{version:020d}.json"


def retired_name(version: int, token: str) -> str:
    """The name of a manifest that vacuum is deleting; see :mod:`semistream.master.retire`."""
    return f"{FOLDER}/{version:020d}.{token}.retired"


def list_versions(store: LocalStore) -> list[int]:
    """All published versions, oldest first."""
    found = (_NAME.fullmatch(name) for name in store.list(FOLDER))
    return sorted(int(match[1]) for match in found if match)


def list_retired(store: LocalStore) -> dict[str, int]:
    """Files of manifests that a vacuum is about to delete, and their versions."""
    found = (_RETIRED.fullmatch(name) for name in store.list(FOLDER))
    return {f"{FOLDER}/{match[0]}": int(match[1]) for match in found if match}


def read_manifest(store: LocalStore, version: int | None = None) -> Manifest:
    """The manifest of one version; default: the newest."""
    versions = list_versions(store)
    for _ in range(_ATTEMPTS):
        if not versions:
            raise MasterTableError(_not_a_table(store))
        number = versions[-1] if version is None else version
        found = find_manifest(store, manifest_name(number), number)
        if found is None:  # a vacuum may have retired it, and restore it if it is pinned
            retired = [name for name, of in list_retired(store).items() if of == number]
            found = next(filter(None, (find_manifest(store, n, number) for n in retired)), None)
        if found is not None:
            return found
        versions = list_versions(store)
        if version is not None and version not in versions:
            break
    raise MasterTableError(
        f"version {number} of {store.root} does not exist, or was vacuumed; "
        f"the table has {_version_list(versions)}"
    )


def find_manifest(store: LocalStore, name: str, version: int) -> Manifest | None:
    """The manifest in a file; None if there is no such file."""
    data = store.find(name)
    if data is None:
        return None
    path = store.path(name)
    try:
        body = json.loads(data)
        if not isinstance(body, dict):
            raise ValueError("not an object")
    except ValueError as error:
        raise MasterTableError(_damaged(path, str(error))) from error
    if body.get("format") != FORMAT:
        raise MasterTableError(
            f"{path} is not a manifest of a master table (format {body.get('format')!r}); "
            "give the folder that MasterTable.build wrote"
        )
    check_format_version(path, body.get("format_version"), FORMAT_VERSION)
    if body.pop("checksum", None) != _checksum(body):
        raise MasterTableError(_damaged(path, "its checksum does not match"))
    try:
        segments = tuple(
            SegmentInfo(**{**_known(SegmentInfo, item), "changed": _changed(item["changed"])})
            for item in body["segments"]
        )
        manifest = Manifest(
            version=int(body["version"]),
            parent=body["parent"],
            kind=body["kind"],
            created=body["created"],
            schema=pa.ipc.read_schema(pa.py_buffer(base64.b64decode(body["schema"]))),
            key=tuple(body["key"]),
            unique=bool(body["unique"]),
            page_bytes=int(body["page_bytes"]),
            num_rows=int(body["num_rows"]),
            rows_without_key=int(body["rows_without_key"]),
            segments=segments,
            changed=_changed(body["changed"]),
            history=_history(body.get("history")),
            sync=_sync(body.get("sync")),
        )
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise MasterTableError(_damaged(path, repr(error))) from error
    if manifest.version != version:
        raise MasterTableError(_damaged(path, f"its content is version {manifest.version}"))
    for file in manifest.files:
        store.path(file)  # raises for a name outside the folder
        if file.count("/") != 1:
            raise MasterTableError(_damaged(path, f"{file!r} is not a valid segment name"))
    return manifest


def _known(kind: Any, item: dict[str, Any]) -> dict[str, Any]:
    """The fields that this release knows."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in item.items() if name in names}


def _changed(item: dict[str, Any] | None) -> ChangedInfo | None:
    return None if item is None else ChangedInfo(**_known(ChangedInfo, item))


def _history(item: dict[str, Any] | None) -> History | None:
    return None if item is None else History(**_known(History, item))


def _sync(item: dict[str, Any] | None) -> SyncInfo | None:
    return None if item is None else SyncInfo(**_known(SyncInfo, item))


def _checksum(body: dict[str, Any]) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return xxhash.xxh3_64_hexdigest(canonical.encode())


def _damaged(path: object, why: str) -> str:
    return (
        f"{path} is damaged: {why}; open an older version, restore the file from a copy, "
        "or build the table again"
    )


def _not_a_table(store: LocalStore) -> str:
    if not store.root.exists():
        return (
            f"there is no master table at {store.root}: the folder does not exist; check the path, "
            "or build one with MasterTable.build or semistream master build"
        )
    if not store.root.is_dir():
        return f"{store.root} is a file; a master table is a folder that MasterTable.build writes"
    if store.list("segments") or store.list("work"):
        return f"{store.root} contains an unfinished build, not a master table; build it again"
    return f"{store.root} is not a master table: it has no manifests; check the path"


def _version_list(versions: list[int]) -> str:
    if len(versions) <= 5:
        return ", ".join(map(str, versions))
    return f"{len(versions)} versions from {versions[0]} to {versions[-1]}"
