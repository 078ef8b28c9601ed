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
from semistream.master import MasterTable, build, changes, manifest, vacuum
from semistream.master.manifest import Manifest, SegmentInfo
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
        f"{name}.arrow", kind, len(ids), 1, len(data), checksum, f"{name}.index.arrow", checksum
    )


@dataclass(frozen=True)
class _OpenSegment:
    file: BytesIO


def _open_segment(store: LocalStore, manifest: Manifest, info: SegmentInfo) -> _OpenSegment:
    if xxhash.xxh3_64_hexdigest(store.read(info.index_file)) != info.index_checksum:
        raise MasterTableError(f"{info.index_file} is damaged")
    return _OpenSegment(BytesIO(store.read(info.file)))


class LightTable(MasterTable):
    """Opens what :func:`light` makes the real code write."""

    def __init__(self, path: str, manifest: Manifest, pinned: bool, mapped: bool = False) -> None:
        self.path = path
        self.manifest = manifest
        self.pinned = pinned
        self.store = LocalStore(path)
        self.contents = []
        for info in manifest.segments:
            data = _open_segment(self.store, manifest, info).file.getvalue()
            if xxhash.xxh3_64_hexdigest(data) != info.checksum:
                raise MasterTableError(f"{info.file} is damaged")
            self.contents.append((info.kind, json.loads(data)))

    @property
    def rows(self) -> dict[int, str]:
        rows: dict[int, str] = {}
        for kind, (ids, texts) in self.contents:
            for key in ids:
                rows.pop(key, None)
            if kind != "delete":
                rows |= zip(ids, texts, strict=True)
        return rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        rows = self.rows
        yield pa.record_batch([list(rows), list(rows.values())], schema=SCHEMA)


class _LightWriter:
    """Replaces SegmentWriter, for compact."""

    def __init__(self, store: LocalStore, name: str, kind: str, *args: Any) -> None:
        self._place = store, name, kind
        self._rows: dict[str, list[Any]] = {"id": [], "text": []}

    def __enter__(self) -> _LightWriter:
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        self._rows = batch.to_pydict()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            self.info = write_segment(*self._place, self._rows["id"], self._rows["text"])


def _write_sorted(source: Any, schema: Any, key: Any, kind: str, store: Any, workspace: Any,
                  *args: Any) -> tuple[SegmentInfo, int]:  # fmt: skip
    rows = pa.Table.from_batches(source.batches(1 << 20)).to_pydict()
    return write_segment(store, workspace.token, kind, rows["id"], rows.get("text", [])), 0


def _count_replaced_rows(table: LightTable, segment: SegmentInfo) -> int:
    (ids, _) = json.loads(table.store.read(segment.file))
    return len(table.rows.keys() & set(ids))


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
            (build, "write_sorted", _write_sorted),
            (changes, "write_sorted", _write_sorted),
            (changes, "_count_replaced_rows", _count_replaced_rows),
            (changes, "SegmentWriter", _LightWriter),
            (vacuum, "open_segment", _open_segment),
            (manifest, "find_manifest", _find_manifest),
            (LocalStore, "path", _path),
        ):
            stack.enter_context(mock.patch.object(module, name, replacement))
        yield
