"""A master table whose segments are small JSON files: all steps on disk, none of the sorting.

Locks, files, manifests and pins, whose order a schedule varies, use the real code. Segments would
take more time than all of that together, so they are replaced by a few lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any
from unittest import mock

import pyarrow as pa
import xxhash

from semistream.errors import MasterTableError
from semistream.master import MasterTable, build, change, changes, manifest, vacuum
from semistream.master.changed import ChangedCodes
from semistream.master.manifest import Manifest, SegmentInfo
from semistream.master.newest import NewestVersion
from semistream.master.store import LocalStore

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


def write_segment(
    store: LocalStore, name: str, kind: str, ids: list[int], texts: list[str]
) -> SegmentInfo:
    data = json.dumps([ids, texts]).encode()
    for suffix in ("arrow", "index.arrow"):
        with store.create(f"segments/{name}.{suffix}") as file:
            file.write(data)
    checksum = xxhash.xxh3_64_hexdigest(data)
    return SegmentInfo(
        f"{name}.arrow", kind, len(ids), 1, len(data), checksum, f"{name}.index.arrow", checksum,
        distinct=True,
    )  # fmt: skip


@dataclass(frozen=True)
class _OpenSegment:
    file: BytesIO

    def close(self) -> None: ...


def _open_segment(store: LocalStore, manifest: Manifest, info: SegmentInfo) -> _OpenSegment:
    if xxhash.xxh3_64_hexdigest(store.read(info.index_file)) != info.index_checksum:
        raise MasterTableError(f"{info.index_file} is damaged")
    return _OpenSegment(BytesIO(store.read(info.file)))


class LightTable(MasterTable):
    """Opens what :func:`light` makes the real code write."""

    def __init__(
        self,
        path: str,
        manifest: Manifest,
        pinned: bool,
        mapped: bool = False,
        known: Any = None,
        awaited: int = 0,
    ) -> None:
        self.path = path
        self.manifest = manifest
        self.pinned = pinned
        self.mapped = mapped
        self.version, self.key = manifest.version, manifest.key  # type: ignore[misc]
        self.unique, self.created = manifest.unique, manifest.created  # type: ignore[misc]
        self.store = LocalStore(path)
        self.codes = manifest.key_codes()
        self._newest_number = NewestVersion(self.store, manifest.version)
        self.contents = []
        for info in manifest.segments:
            data = _open_segment(self.store, manifest, info).file.getvalue()
            if xxhash.xxh3_64_hexdigest(data) != info.checksum:
                raise MasterTableError(f"{info.file} is damaged")
            changed = []
            if info.changed is not None:
                changed = ChangedCodes.read(self.store, info.changed).codes.tolist()
            self.contents.append((changed, json.loads(data)))

    @property
    def rows(self) -> dict[int, str]:
        rows: dict[int, str] = {}
        for changed, (ids, texts) in self.contents:
            for key in changed:
                rows.pop(key, None)
            rows |= zip(ids, texts, strict=True)
        return rows

    def coded_batches(self) -> Iterator[pa.RecordBatch]:
        rows = self.rows
        yield pa.record_batch([list(rows), list(rows.values())], schema=SCHEMA)


class _LightWriter:
    """Replaces SegmentWriter."""

    def __init__(self, store: LocalStore, name: str, kind: str, *args: Any) -> None:
        self._place = store, name, kind
        self._rows: dict[str, list[Any]] = {"id": [], "text": []}

    def __enter__(self) -> _LightWriter:
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        for name, values in batch.to_pydict().items():
            self._rows[name] += values

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            self.info = write_segment(*self._place, self._rows["id"], self._rows.get("text", []))


class _LightSort:
    """Replaces ExternalSort."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows.combine_chunks()
        self.rows = len(rows)

    def sorted(self) -> Iterator[pa.RecordBatch]:
        yield from self._rows.to_batches()


def _sort_by_code(
    source: Any, *args: Any, note: Any = lambda codes: None
) -> tuple[_LightSort, int]:
    rows = pa.Table.from_batches(source.batches(1 << 20)).sort_by("id")
    note(rows["id"].to_numpy())
    return _LightSort(rows), 0


class _LightReplaced:
    """Replaces ReplacedRows."""

    def __init__(self, table: LightTable, history: object = None) -> None:
        self._table = table
        self.count = 0

    def pair(self, changes: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, list[Any]]]:
        for batch in changes:
            self.count += len(self._table.rows.keys() & set(batch["id"].to_pylist()))
            yield batch, []


def _delta_rows(table: LightTable, delta: SegmentInfo, hidden: Any) -> Iterator[pa.RecordBatch]:
    at = table.manifest.segments.index(delta)
    ids, texts = table.contents[at][1]
    rows = [(key, text) for key, text in zip(ids, texts, strict=True) if key not in hidden]
    yield pa.record_batch([[k for k, _ in rows], [text for _, text in rows]], schema=SCHEMA)


# Paths and parsed manifests are kept: they are half of what is left.
_path_of = LocalStore.path
_paths: dict[tuple[str, str], Any] = {}
_find = manifest.find_manifest
_manifests: dict[tuple[bytes, int], Manifest | None] = {}


def _path(store: LocalStore, name: str) -> Any:
    place = str(store.root), name
    path = _paths.get(place)
    if path is None:
        path = _paths[place] = _path_of(store, name)
    return path


def _find_manifest(store: LocalStore, name: str, version: int) -> Manifest | None:
    data = store.find(name)
    if data is None:
        return None
    found = _manifests.get((data, version))
    if found is None:
        if len(_manifests) > 1_000:
            _manifests.clear()
        found = _manifests[data, version] = _find(_Read(store.root, data), name, version)
    return found


class _Read(LocalStore):
    """A store in which all files are the one that was just read."""

    def __init__(self, root: Any, data: bytes) -> None:
        self.root = root
        self._data = data

    def find(self, name: str) -> bytes | None:
        return self._data


@contextmanager
def light() -> Iterator[None]:
    with ExitStack() as stack:
        for module, name, replacement in (
            (build, "sort_by_code", _sort_by_code),
            (changes, "sort_by_code", _sort_by_code),
            (change, "ReplacedRows", _LightReplaced),
            (changes, "_delta_rows", _delta_rows),
            (build, "SegmentWriter", _LightWriter),
            (changes, "SegmentWriter", _LightWriter),
            (vacuum, "open_segment", _open_segment),
            (manifest, "find_manifest", _find_manifest),
            (LocalStore, "path", _path),
        ):
            stack.enter_context(mock.patch.object(module, name, replacement))
        yield
