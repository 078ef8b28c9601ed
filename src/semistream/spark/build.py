"""``ss.build_master``: write a DataFrame of any size to a master table, in parallel.

A first step computes the code of every key; Spark range-partitions the rows by code and sorts each
partition. A task writes its range as one segment into the table's folder, and the driver publishes
one manifest that lists them all. Nothing is visible before that. Segments of failed attempts are
removed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StructField, StructType

from semistream.errors import ConfigError, InternalError, SchemaError
from semistream.keys import Codes, KeyCodec
from semistream.master import MasterTable
from semistream.master import manifest as manifests
from semistream.master.build import _claim, _key_names, _tidy, publish
from semistream.master.codes import CODE_COLUMN, KeyCodes
from semistream.master.manifest import Manifest, SegmentInfo
from semistream.master.segment import SegmentWriter
from semistream.master.storage_types import drop_null_keys, storage_schema, to_storage
from semistream.master.store import LocalStore
from semistream.master.table import open_published
from semistream.master.workspace import Workspace
from semistream.memory import PAGE_BYTES, parse_size
from semistream.spark.errors import reraise_semistream_errors
from semistream.spark.schema import check_key_collations, stream_schema
from semistream.spark.worker_python import check_worker_python


def build_master(
    df: DataFrame,
    path: str | os.PathLike[str],
    key: str | Sequence[str] | None = None,
    unique: bool = False,
    *,
    page_bytes: int | str = PAGE_BYTES,
    partitions: int | None = None,
    overwrite: bool = False,
    mode: str = "build",
) -> MasterTable:
    """Write a DataFrame to a new master table, or upsert it into an existing one.

    Parameters
    ----------
    df
        Any DataFrame that is not streaming: from Delta, JDBC, Parquet, ...
    path
        The table's folder, on a file system that the driver and all executors share.
    key, unique, page_bytes, overwrite
        As in :meth:`MasterTable.build`.
    partitions
        Number of key ranges that are sorted and written in parallel, one file each. Default:
        ``spark.sql.shuffle.partitions``.
    mode
        ``"build"`` (default), or ``"upsert"``: publish a version in which these rows replace all
        rows of their keys. ``key`` can then be omitted.
    """
    if df.isStreaming:
        raise ConfigError(
            "build_master needs a batch DataFrame; for a stream, call it with mode='upsert' in "
            "df.writeStream.foreachBatch"
        )
    check_worker_python(df.sparkSession)
    if mode == "upsert":
        return _upsert(df, path, key, partitions)
    if mode != "build":
        raise ConfigError(f'mode={mode!r} is unknown; choose "build" or "upsert"')
    if key is None:
        raise ConfigError("build_master needs key=: the column(s) to join on")
    return _build(df, LocalStore(path), _key_names(key), unique, page_bytes, partitions, overwrite)


def _build(
    df: DataFrame,
    store: LocalStore,
    key: tuple[str, ...],
    unique: bool,
    page_bytes: int | str,
    partitions: int | None,
    overwrite: bool,
) -> MasterTable:
    page_size = parse_size(page_bytes, "page_bytes")
    schema = _stored(df, key)
    parent = _claim(store, overwrite)
    with _tidy(store), Workspace(store) as workspace:
        root = os.path.abspath(store.root)
        task = WriteSegment(
            root, workspace.token, "segments", schema, key, page_size,
            "refuse" if unique else "keep",
        )  # fmt: skip
        written, without_key = _write_in_parallel(df, partitions, task)
        infos = [info for info in written if info.rows] or written[:1]
        _remove_all_but(store, workspace.token, infos)
        manifest = Manifest(
            version=1 if parent is None else parent + 1,
            parent=parent,
            kind="build",
            created=manifests.now(),
            schema=schema,
            key=key,
            unique=bool(unique),
            page_bytes=page_size,
            num_rows=sum(info.rows for info in infos),
            rows_without_key=without_key,
            segments=tuple(infos),
        )
        publish(store, workspace, manifest, [file for info in infos for file in info.files])
    return open_published(store.root, manifest.version)


def _upsert(
    df: DataFrame,
    path: str | os.PathLike[str],
    key: str | Sequence[str] | None,
    partitions: int | None,
) -> MasterTable:
    """Spark sorts the rows into runs; the driver reads them in order and writes one delta."""
    table = MasterTable.open(path)
    if key is not None and _key_names(key) != table.key:
        raise SchemaError(
            f"key={key!r}, but the table at {path} has the key {list(table.key)}; leave key out"
        )
    schema = _stored(df, table.key)
    to_storage(
        pa.RecordBatch.from_pylist([], schema=schema), table.schema
    )  # raises if the columns do not match
    store = table.store
    with Workspace(store) as workspace:
        task = WriteSegment(
            os.path.abspath(store.root), "run", f"work/{workspace.token}", schema, table.key,
            table.manifest.page_bytes, "refuse" if table.unique else "keep",
        )  # fmt: skip
        written, _ = _write_in_parallel(df, partitions, task)
        files = [workspace.folder / "segments" / info.name for info in written if info.rows]
        return table.upsert(
            pa.RecordBatchReader.from_batches(schema, _batches(files, schema.names))
        )


def _batches(files: Sequence[os.PathLike[str]], names: list[str]) -> Iterator[pa.RecordBatch]:
    for file in files:
        with pa.OSFile(os.fspath(file), "rb") as source:
            reader = pa.ipc.open_file(source)
            for page in range(reader.num_record_batches):
                yield reader.get_batch(page).select(names)


def _stored(df: DataFrame, key: Sequence[str]) -> pa.Schema:
    """The schema on disk. Timestamps are stored in UTC, whatever the session's time zone."""
    fields = [_in_utc(field) for field in stream_schema(df.schema, df.sparkSession)]
    schema = storage_schema(pa.schema(fields), key)
    check_key_collations(df.schema, key)
    return schema


def _in_utc(field: pa.Field) -> pa.Field:
    return field.with_type(_utc(field.type))


def _utc(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if types.is_struct(kind):
        return pa.struct([_in_utc(kind.field(i)) for i in range(kind.num_fields)])
    if types.is_list(kind):
        return pa.list_(_in_utc(kind.value_field))
    if types.is_map(kind):
        return pa.map_(_in_utc(kind.key_field), _in_utc(kind.item_field))
    return kind


def _write_in_parallel(
    df: DataFrame, partitions: int | None, task: WriteSegment
) -> tuple[list[SegmentInfo], int]:
    """Returns the segments that the tasks wrote, in code order, and the number of null keys."""
    coded = df.mapInArrow(
        AddCodes(task.schema, task.key), StructType([*df.schema.fields, _CODE_FIELD])
    )
    # One scan: rows with a null key have no code and sort first, and the tasks count them.
    code = coded[CODE_COLUMN]
    ranged = (
        coded.repartitionByRange(partitions, code) if partitions else coded.repartitionByRange(code)
    )
    rows = ranged.sortWithinPartitions(code.asc_nulls_first()).mapInArrow(task, REPORT)
    with reraise_semistream_errors():
        reports = [json.loads(row.report) for row in rows.collect()]
    reports.sort(key=lambda report: report["partition"])
    infos = [SegmentInfo(**report["segment"]) for report in reports]
    if not infos:
        infos = [_empty(task)]
    return infos, sum(report["without_key"] for report in reports)


def _empty(task: Any) -> SegmentInfo:
    """A DataFrame without rows has no partitions; a table without rows has one empty segment."""
    (report,) = task(iter(()), partition=0, attempt=0)
    return SegmentInfo(**json.loads(report.column(0)[0].as_py())["segment"])


REPORT = StructType().add("report", "string")
_CODE_FIELD = StructField(CODE_COLUMN, LongType())


@dataclass(frozen=True)
class AddCodes:
    """The first step: adds the code of each row's key; null for a null key."""

    schema: pa.Schema
    key: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        codec = KeyCodec.for_types([self.schema.field(name).type for name in self.key])
        for batch in batches:
            keys = pa.schema([self.schema.field(name) for name in self.key])
            stored = to_storage(batch.select(list(self.key)), keys)
            codes, valid = codec.codes(stored.columns)
            column = pa.array(codes, mask=None if valid is None else ~valid)
            yield batch.append_column(CODE_COLUMN, column)


@dataclass(frozen=True)
class WriteSegment:
    """The task: checks the sorted rows of one range of codes and writes them as one segment."""

    root: str
    token: str
    folder: str
    schema: pa.Schema
    key: tuple[str, ...]
    page_bytes: int
    duplicates: str

    def __call__(
        self,
        batches: Iterable[pa.RecordBatch],
        partition: int | None = None,
        attempt: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        if context is not None:
            partition, attempt = context.partitionId(), context.taskAttemptId()
        name = f"{self.token}.{partition:05d}-{attempt}"
        base = self.root if self.folder == "segments" else os.path.join(self.root, self.folder)
        codes = KeyCodes(self.schema, self.key)
        seen = kept = 0
        last: int | None = None
        with SegmentWriter(
            LocalStore(base), name, "base", self.schema, self.key, self.page_bytes, self.duplicates
        ) as writer:
            for batch in batches:
                data = to_storage(batch.drop_columns([CODE_COLUMN]), self.schema)
                rows = codes.add(drop_null_keys(data, self.key))
                seen += batch.num_rows
                kept += rows.num_rows
                if rows.num_rows:
                    last = _in_order(codes.stored(rows), last)
                    writer.write(rows)
        report = {
            "partition": partition,
            "segment": asdict(writer.info),
            "without_key": seen - kept,
        }
        yield pa.RecordBatch.from_pydict({"report": [json.dumps(report)]})


def _in_order(codes: Codes, last: int | None) -> int:
    """Check that Spark has sorted the rows. Returns the last code of the batch."""
    if bool(np.any(codes[:-1] > codes[1:])) or (last is not None and last > codes[0]):
        raise InternalError(
            "the rows of a range do not come in the order of their codes; use MasterTable.build, "
            "and please report this"
        )
    return int(codes[-1])


def _remove_all_but(store: LocalStore, token: str, infos: Sequence[SegmentInfo]) -> None:
    """Remove segments of failed and speculative task attempts."""
    wanted = {file for info in infos for file in info.files}
    for name in store.list("segments"):
        file = f"segments/{name}"
        if name.startswith(f"{token}.") and file not in wanted:
            store.delete(file)
