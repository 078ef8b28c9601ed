"""Parquet files written by one task, batch by batch, in bounded memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from semistream.errors import ConfigError, SemistreamError
from semistream.master.files import Files
from semistream.sinks.disk import make_folders, writing

_ROW_GROUP_BYTES = 32 << 20
_ROW_GROUP_ROWS = 1 << 20


def write_parquet(
    rows: Iterable[pa.RecordBatch], schema: pa.Schema, path: Path, compression: str, disk: Files
) -> tuple[int, int]:
    """Write and sync a file; returns its rows and bytes. Removes it if writing fails."""
    with writing(path):
        make_folders(disk, path.parent)
        file = disk.create(path)
    try:
        with file:
            count = _write(rows, schema, file, path, compression)
            with writing(path):
                disk.sync(file)
                return count, file.tell()
    except BaseException:
        with contextlib.suppress(OSError):  # a later commit removes it
            disk.unlink(path)
        raise


def _write(
    rows: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    file: BinaryIO,
    path: Path,
    compression: str,
) -> int:
    import pyarrow.parquet as pq

    # Dictionary encoding pays off only for text.
    texts = [f.name for f in schema if pa.types.is_string(f.type) or _is_large(f.type)]
    with writing(path):
        writer = pq.ParquetWriter(
            file, schema, compression=compression, use_dictionary=texts or False
        )
    group: list[pa.RecordBatch] = []
    count = nbytes = held = 0
    try:
        for batch in rows:
            group.append(batch)
            nbytes += batch.nbytes
            held += batch.num_rows
            count += batch.num_rows
            if nbytes >= _ROW_GROUP_BYTES or held >= _ROW_GROUP_ROWS:
                with writing(path):
                    _write_group(writer, group, schema)
                group, nbytes, held = [], 0, 0
        with writing(path):
            if group:
                _write_group(writer, group, schema)
            writer.close()
    except BaseException:
        with contextlib.suppress(Exception):  # report the first failure
            writer.close()
        raise
    return count


def _write_group(writer: Any, group: list[pa.RecordBatch], schema: pa.Schema) -> None:
    writer.write_table(pa.Table.from_batches(group, schema=schema), row_group_size=_ROW_GROUP_ROWS)


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind))


def check_complete(disk: Files, sizes: Mapping[Path, int]) -> None:
    """Raise if staged files are missing or differ in size from what their tasks wrote."""
    for path, nbytes in sizes.items():
        try:
            found: int | None = disk.stat(path).st_size
        except FileNotFoundError:
            found = None
        if found != nbytes:
            state = "is missing" if found is None else f"has {found} bytes instead of {nbytes}"
            raise SemistreamError(
                f"the staged file {path} {state}: another program deletes or changes files in this "
                "folder, or an old driver of the query is still running; the batch must be replayed"
            )


def check_writable(path: Path) -> None:
    """Raise if a folder cannot be written or created. Only checks; creates nothing."""
    if path.exists() and not path.is_dir():
        raise ConfigError(f"path={str(path)!r} is a file; give a folder")
    above = path
    while not above.exists():
        above = above.parent
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise ConfigError(f"path={str(path)!r} cannot be written: no permission on {above}")
