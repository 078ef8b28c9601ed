"""Parquet files written by one task, batch by batch, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

_ROW_GROUP_BYTES = 32 << 20
_ROW_GROUP_ROWS = 1 << 20


def write_parquet(
    rows: Iterable[pa.RecordBatch], schema: pa.Schema, path: Path, compression: str
) -> tuple[int, int]:
    """Rows and bytes of the file. A file that cannot be finished is removed."""
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    try:
        # Dictionary pages are worth their time only for text.
        texts = [f.name for f in schema if pa.types.is_string(f.type) or _is_large(f.type)]
        with pq.ParquetWriter(
            path, schema, compression=compression, use_dictionary=texts or False
        ) as writer:
            group: list[pa.RecordBatch] = []
            nbytes = held = 0
            for batch in rows:
                group.append(batch)
                nbytes += batch.nbytes
                held += batch.num_rows
                count += batch.num_rows
                if nbytes >= _ROW_GROUP_BYTES or held >= _ROW_GROUP_ROWS:
                    _write_group(writer, group, schema)
                    group, nbytes, held = [], 0, 0
            if group:
                _write_group(writer, group, schema)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return count, path.stat().st_size


def _write_group(writer: Any, group: list[pa.RecordBatch], schema: pa.Schema) -> None:
    writer.write_table(pa.Table.from_batches(group, schema=schema), row_group_size=_ROW_GROUP_ROWS)


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind))


def publish(path: Path, content: bytes) -> bool:
    """Give a file its whole content in one step; False if the name is taken.

    A hard link, because a rename would silently replace what another driver published.
    """
    import uuid

    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{uuid.uuid4().hex}.draft")
    try:
        with open(draft, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)
    return True


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def refuse_unwritable(path: Path) -> None:
    """Refuse a folder that cannot be written or made. It is only looked at: nothing is made."""
    from semistream.errors import ConfigError

    if path.exists() and not path.is_dir():
        raise ConfigError(f"path={str(path)!r} is a file; name a folder")
    above = path
    while not above.exists():
        above = above.parent
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise ConfigError(f"path={str(path)!r} cannot be written: {above} does not allow it")
