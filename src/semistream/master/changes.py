"""Upsert, delete, compact: publish the next version as a small segment beside this one's.

A change is a *delta*: its rows, and the list of all codes that it changed. It hides the rows that
older segments have with these codes. So that deltas stay few, a change folds in the deltas before
it that are at most twice as large (:func:`_foldable`).

Every change writes its files first and publishes a manifest last. A change is based on the
version that it is called on; if that is no longer the newest, it raises and leaves nothing behind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from semistream.errors import MasterTableError
from semistream.keys import Codes
from semistream.keys.distinct import distinct
from semistream.master import manifest as manifests
from semistream.master.build import publish, sort_by_code
from semistream.master.change import DELETED, Change
from semistream.master.changed import ChangedCodes, contains, united
from semistream.master.codes import KeyCodes
from semistream.master.compact_hint import suggest_compact
from semistream.master.key_values import key_table
from semistream.master.manifest import ChangedInfo, Manifest, SegmentInfo, SyncInfo
from semistream.master.merge import joined, merge_by_code
from semistream.master.segment import SegmentWriter
from semistream.master.source import Source, open_source
from semistream.master.storage_types import storage_schema, to_storage
from semistream.master.workspace import Workspace
from semistream.memory import parse_size

if TYPE_CHECKING:
    from semistream.master.table import MasterTable

_NO_CODES = np.zeros(0, np.int64)
_FOLDED_AT_ONCE = 64  # pages of a delta: 1 MB


def upsert(table: MasterTable, data: Any, memory: int | str) -> int:
    """Publish a version with these rows. Returns its number."""
    source = open_source(data)
    _check_columns(table, source.schema)
    duplicates = "refuse" if table.unique else "keep"
    return _publish_delta(table, source, table.schema, "upsert", parse_size(memory), duplicates)


def delete(table: MasterTable, keys: Any) -> int:
    """Publish a version without these keys. Returns its number."""
    rows = key_table(table, keys)
    return _publish_delta(
        table, open_source(rows), rows.schema, "delete", parse_size("512MB"), "keep"
    )


def sync_schema(table: MasterTable) -> pa.Schema:
    """The rows of :func:`publish_sync`: the table's columns, and whether the key is deleted."""
    return pa.schema(
        [*(field.with_nullable(True) for field in table.schema), (DELETED, pa.bool_())]
    )


def publish_sync(
    table: MasterTable, rows: Iterator[pa.RecordBatch], memory: int, info: Callable[[], SyncInfo]
) -> int:
    """Publish upserts, deletes and the position that they lead to as one version.

    ``rows`` have :func:`sync_schema`, one per key; ``info`` is called after the last of them.
    """
    schema = sync_schema(table)
    source = Source(schema, None, lambda _: rows)
    return _publish_delta(table, source, schema, "sync", memory, "refuse", info)


def publish_position(table: MasterTable, info: SyncInfo) -> int:
    """Publish a version with the same rows and a new position."""
    _must_be_newest(table)
    manifest = table.manifest
    child = _child(manifest, "sync", manifest.segments, manifest.num_rows, 0, None, info)
    with Workspace(table.store) as workspace:
        publish(table.store, workspace, child, ())
    return child.version


def compact(table: MasterTable) -> int:
    """Publish a version with all rows in one segment. Returns its number."""
    manifest = table.manifest
    if len(manifest.segments) == 1:
        return table.version
    _must_be_newest(table)
    with Workspace(table.store) as workspace:
        with SegmentWriter(
            table.store, workspace.token, "base", manifest.schema, table.key, manifest.page_bytes
        ) as writer:
            for batch in table.coded_batches():
                # Copy: the page is in the reader's buffer, and the writer keeps a reference.
                writer.write(pa.ipc.read_record_batch(batch.serialize(), batch.schema))
        segments = (writer.info,)
        if writer.info.rows != table.num_rows:
            raise MasterTableError(
                f"version {table.version} of {table.path} should have {table.num_rows} rows but "
                f"has {writer.info.rows}; run `semistream master verify {table.path}`"
            )
        child = _child(manifest, "compact", segments, manifest.num_rows, 0, None, manifest.sync)
        publish(table.store, workspace, child, writer.info.files)
    return child.version


def _publish_delta(
    table: MasterTable, source: Any, schema: pa.Schema, kind: str, memory: int, duplicates: str,
    info: Callable[[], SyncInfo | None] = lambda: None,
) -> int:  # fmt: skip
    _must_be_newest(table)
    store, manifest = table.store, table.manifest
    with Workspace(store) as workspace:
        noted = [_NO_CODES]
        sort, without_key = sort_by_code(
            source, KeyCodes(schema, table.key), workspace, memory,
            note=lambda codes: noted.append(distinct(codes)),
        )  # fmt: skip
        change = Change(table, sort, kind, distinct(np.concatenate(noted)))
        noted.clear()
        folded = _foldable(manifest.deltas, max(sort.rows, len(change.codes)))
        written: list[str] = []
        try:
            delta, own = _write_delta(table, workspace.token, change, folded, duplicates, written)
            kept = manifest.segments[: len(manifest.segments) - len(folded)]
            child = _child(
                manifest,
                kind,
                (*kept, delta),
                manifest.num_rows - change.replaced + change.added,
                without_key if kind == "upsert" else 0,
                own,
                info() or manifest.sync,
            )
        except BaseException:
            for file in written:
                store.delete(file)
            raise
        publish(store, workspace, child, written)
    suggest_compact(table.path, child)
    return child.version


def _foldable(deltas: Sequence[SegmentInfo], size: int) -> Sequence[SegmentInfo]:
    """The last deltas that are small enough to be merged into a new one of this size.

    Each delta that stays is more than twice as large as the next: their number grows with the
    logarithm of the changes, and so does the number of times that a row is written again.
    """
    kept = len(deltas)
    while kept and deltas[kept - 1].changes <= 2 * size:
        kept -= 1
        size += deltas[kept].changes
    return deltas[kept:]


def _write_delta(
    table: MasterTable,
    token: str,
    change: Change,
    folded: Sequence[SegmentInfo],
    duplicates: str,
    written: list[str],
) -> tuple[SegmentInfo, ChangedInfo]:
    """Write a change, together with older deltas; returns the delta and the version's own codes.

    The names of new files are added to ``written``.
    """
    store, lists = table.store, _changed_by(table, folded)
    streams, newer = [change.rows()], [change.codes]
    for info, changed in zip(reversed(folded), lists, strict=True):
        streams.append(_delta_rows(table, info, list(newer)))
        newer.append(changed.codes)
    manifest = table.manifest
    with SegmentWriter(
        store, token, "delta", manifest.schema, table.key, manifest.page_bytes, duplicates
    ) as writer:
        for batch in merge_by_code(streams, table.code_column):
            writer.write(batch)
    written += writer.info.files
    written.append(f"segments/{token}.changed.arrow")
    own = every = change.changed().write(store, f"{token}.changed.arrow")
    if folded:
        written.append(f"segments/{token}.folded.changed.arrow")
        every = united([change.changed(), *lists]).write(store, f"{token}.folded.changed.arrow")
    return dataclasses.replace(writer.info, changed=every), own


def _changed_by(table: MasterTable, deltas: Sequence[SegmentInfo]) -> list[ChangedCodes]:
    """The codes that these deltas have changed, newest first."""
    try:
        return [
            ChangedCodes.read(table.store, info.changed)
            for info in reversed(deltas)
            if info.changed is not None
        ]
    except MasterTableError:
        _must_be_newest(table)  # it may have been vacuumed
        raise


def _delta_rows(
    table: MasterTable, delta: SegmentInfo, newer: Sequence[Codes]
) -> Iterator[pa.RecordBatch]:
    """The rows of a delta, without those that a newer one has changed.

    Many pages at once: merging streams costs per batch, and of single pages several times as much
    as reading and writing them."""
    first, end = table.pages.pages_of(table.manifest.deltas.index(delta))
    reader = table.reader(_FOLDED_AT_ONCE)
    for start in range(first, end, _FOLDED_AT_ONCE):
        rows = joined(reader.read(start, min(_FOLDED_AT_ONCE, end - start)))
        codes = table.codes.stored(rows)
        hidden = np.zeros(len(codes), np.bool_)
        for changed in newer:
            hidden |= contains(changed, codes)
        yield rows.filter(pa.array(~hidden))  # a copy: the reader's buffer is used again


def _child(
    parent: Manifest,
    kind: str,
    segments: Sequence[SegmentInfo],
    num_rows: int,
    without_key: int,
    changed: ChangedInfo | None,
    sync: SyncInfo | None,
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
        changed=changed,
        sync=sync,
    )


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
