"""Writes batches to Parquet or Arrow IPC files, by extension, atomically."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from semistream.errors import ConfigError

ENDINGS = (".parquet", ".arrow")


def check_ending(path: str | Path) -> Path:
    """Raise if the file extension is not a supported format."""
    path = Path(path)
    if path.suffix not in ENDINGS:
        raise ConfigError(
            f"{path} has the unknown extension {path.suffix!r}; use {' or '.join(ENDINGS)}"
        )
    return path


def write(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    path: str | Path,
    on_progress: Callable[[int], None] = lambda rows: None,
) -> int:
    """Write a stream or a relation; return its number of rows.

    ``on_progress`` is called with the rows written so far. The file appears when it is complete.

    >>> import tempfile
    >>> from semistream.workload import stream
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(stream.sales(1_000, products=10), stream.SCHEMA, f"{folder}/sales.parquet")
    1000
    """
    path = check_ending(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    rows = 0
    try:
        with _writer(unfinished, path.suffix, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
                on_progress(rows)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return rows


def _writer(path: Path, ending: str, schema: pa.Schema) -> pq.ParquetWriter | pa.RecordBatchWriter:
    if ending == ".parquet":
        return pq.ParquetWriter(path, schema)
    return pa.ipc.new_file(str(path), schema)
