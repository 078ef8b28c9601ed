"""Upsert, delete, compact: publish the next version as a small segment on top of this one.

Every change writes its segment first and publishes a manifest last. A change is based on the
version that it is called on; if that is no longer the newest, it raises and leaves nothing behind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from semistream.errors import MasterTableError
from semistream.master import manifest as manifests
from semistream.master.build import publish, write_sorted
from semistream.master.index import single
from semistream.master.key_values import key_table
from semistream.master.manifest import Manifest, SegmentInfo
from semistream.master.merge import contains
from semistream.master.reader import OpenSegment, PlainReader, open_segment
from semistream.master.segment import SegmentWriter
from semistream.master.source import open_source
from semistream.master.storage_types import storage_schema, to_storage
from semistream.master.workspace import Workspace
from semistream.memory import parse_size

if TYPE_CHECKING:
    from semistream.master.table import MasterTable


def upsert(table: MasterTable, data: Any, memory: int | str) -> int:
    """Publish a version with these rows. Returns its number."""
    source = open_source(data)
    _check_columns(table, source.schema)
    duplicates = "refuse" if table.unique else "keep"
    return _apply(table, source, table.schema, "upsert", parse_size(memory), duplicates)


def delete(table: MasterTable, keys: Any) -> int:
    """Publish a version without these keys. Returns its number."""
    rows = key_table(table, keys)
    source = open_source(rows)
    return _apply(table, source, rows.schema, "delete", parse_size("512MB"), "drop")


def compact(table: MasterTable) -> int:
    """Publish a version with all rows in one segment. Returns its number."""
    manifest = table.manifest
    if len(manifest.segments) == 1:
        return table.version
    _must_be_newest(table)
    with Workspace(table.store) as workspace:
        with SegmentWriter(
            table.store, workspace.token, "base", table.schema, table.key, manifest.page_bytes
        ) as writer:
            for batch in table.batches():
                # Copy: the page is in the reader's buffer, and the writer keeps a reference.
                writer.write(pa.ipc.read_record_batch(batch.serialize(), table.schema))
        segments = (writer.info,)
        if writer.info.rows != table.num_rows:
            raise MasterTableError(
                f"version {table.version} of {table.path} should have {table.num_rows} rows but "
                f"has {writer.info.rows}; run `semistream master verify {table.path}`"
            )
        child = _child(manifest, "compact", segments, manifest.num_rows, 0)
        publish(table.store, workspace, child, segments)
    return child.version


def changed_keys(table: MasterTable, since: int) -> Iterator[pa.RecordBatch] | None:
    """See :meth:`MasterTable.changed_keys`."""
    if since > table.version:
        return None
    deltas: list[SegmentInfo] = []
    current: Manifest = table.manifest
    while current.version > since:
        if current.kind == "build" or current.parent is None:
            return None
        if current.kind in ("upsert", "delete"):
            deltas.append(current.segments[-1])
        if current.parent <= since:
            break
        try:
            current = manifests.read_manifest(table.store, current.parent)
        except MasterTableError:
            return None
    try:
        opened = [open_segment(table.store, table.manifest, info) for info in reversed(deltas)]
    except MasterTableError:  # vacuumed since
        return None
    return _keys_of(opened, table.key)


def _keys_of(segments: list[OpenSegment], key: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for segment in segments:
        reader = PlainReader(segment, 1, direct=False)
        for page in range(len(segment.pages)):
            yield reader.read(page)[0].select(list(key))


def _apply(
    table: MasterTable, source: Any, schema: pa.Schema, kind: str, memory: int, duplicates: str
) -> int:
    _must_be_newest(table)
    store, manifest = table.store, table.manifest
    with Workspace(store) as workspace:
        segment, without_key = write_sorted(
            source, schema, table.key, kind, store, workspace, manifest.page_bytes, memory,
            duplicates, lambda stage, done, total: None,
        )  # fmt: skip
        try:
            replaced = _count_replaced_rows(table, segment)
        except BaseException:
            store.delete(segment.file)
            store.delete(segment.index_file)
            raise
        added = segment.rows if kind == "upsert" else 0
        child = _child(
            manifest,
            kind,
            (*manifest.segments, segment),
            manifest.num_rows - replaced + added,
            without_key if kind == "upsert" else 0,
        )
        publish(store, workspace, child, [segment])
    return child.version


def _child(
    parent: Manifest, kind: str, segments: Sequence[SegmentInfo], num_rows: int, without_key: int
) -> Manifest:
    return dataclasses.replace(
        parent,
        version=parent.version + 1,
        parent=parent.version,
        kind=kind,
        created=manifests.now(),
        num_rows=num_rows,
        rows_without_key=parent.rows_without_key + without_key,
        segments=tuple(segments),
    )


def _count_replaced_rows(table: MasterTable, segment: SegmentInfo) -> int:
    """The number of rows whose key is in the new segment. Reads only pages that may have one."""
    delta = open_segment(table.store, table.manifest, segment)
    try:
        ours = table.reader()
        theirs = PlainReader(delta, 1, direct=False)
        last: Any = None
        hit = 0
        for page in range(len(delta.pages) if table.num_pages else 0):
            (batch,) = theirs.read(page)
            keys = table.codec.sortable([batch.column(name) for name in table.key])
            final = keys[-1]
            if last is not None:  # a key that continues from the previous page was counted there
                keys = keys[keys != single(last, keys)]
            last = final
            low, high = table.index.locate_sortable(keys)
            for number in _union(low, high):
                (rows,) = ours.read(int(number))
                own = table.codec.sortable([rows.column(name) for name in table.key])
                hit += int(contains(keys, own).sum())
        return hit
    finally:
        delta.file.close()


def _union(low: np.ndarray[Any, Any], high: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The union of ranges in ascending order, as an array of numbers."""
    if len(low) == 0:
        return low
    reach = np.zeros(int(high.max()) - int(low.min()) + 2, dtype=np.int64)
    np.add.at(reach, low - low.min(), 1)
    np.add.at(reach, high - low.min() + 1, -1)
    return np.asarray(np.flatnonzero(np.cumsum(reach) > 0) + low.min())


def _must_be_newest(table: MasterTable) -> None:
    """Raise early if the version is stale; publishing checks again."""
    newest = table.newest_version()
    if newest != table.version:
        raise MasterTableError(
            f"version {table.version} of {table.path} is no longer the newest: another "
            f"writer has published version {newest}; open that and repeat the change"
        )


def _check_columns(table: MasterTable, schema: pa.Schema) -> None:
    storage_schema(schema, table.key)
    to_storage(pa.RecordBatch.from_pylist([], schema=schema), table.schema)
