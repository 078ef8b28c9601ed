"""Converts any supported input to a stream of record batches of one schema."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from semistream.errors import ConfigError, SchemaError

_BATCH_ROWS = 65_536
_ACCEPTED = (
    "give a Parquet file or folder, a list of them, or an Arrow table, batch, reader, dataset "
    "or an iterable of record batches"
)


@dataclass(frozen=True)
class Source:
    """``num_rows`` is None if it is unknown until all batches are read."""

    schema: pa.Schema
    num_rows: int | None
    batches: Callable[[int], Iterator[pa.RecordBatch]]
    """Called with the approximate maximal bytes of a batch."""


def open_source(data: Any) -> Source:
    """Detect the type of the data; only schemas are read yet."""
    if isinstance(data, (str, os.PathLike)):
        return _parquet([Path(data)])
    if isinstance(data, pa.Table):
        table = data
        return Source(
            table.schema,
            table.num_rows,
            lambda _: iter(table.to_batches(max_chunksize=_BATCH_ROWS)),
        )
    if isinstance(data, pa.RecordBatch):
        return open_source(pa.Table.from_batches([data]))
    if isinstance(data, pa.RecordBatchReader):
        reader = data
        return Source(reader.schema, None, lambda _: _same_schema(reader, reader.schema))
    if _is_dataset(data):
        return _dataset(data)
    if hasattr(data, "__arrow_c_stream__"):
        return open_source(pa.RecordBatchReader.from_stream(data))
    if isinstance(data, (dict, bytes)) or not isinstance(data, Iterable):
        raise ConfigError(f"data of type {type(data).__name__} cannot be read; {_ACCEPTED}")
    return _iterable(iter(data))


def _iterable(items: Iterator[Any]) -> Source:
    first = next(items, None)
    if first is None:
        raise ConfigError(f"data is empty, so its columns are unknown; {_ACCEPTED}")
    rest = chain([first], items)
    if isinstance(first, (str, os.PathLike)):
        return _parquet([Path(item) for item in rest])
    if isinstance(first, pa.Table):
        batches = chain.from_iterable(_as_table(item).to_batches() for item in rest)
        return Source(first.schema, None, lambda _: _same_schema(batches, first.schema))
    if isinstance(first, pa.RecordBatch):
        return Source(first.schema, None, lambda _: _same_schema(rest, first.schema))
    raise ConfigError(f"data is an iterable of {type(first).__name__}; {_ACCEPTED}")


def _as_table(item: Any) -> pa.Table:
    if not isinstance(item, pa.Table):
        raise ConfigError(f"data mixes tables and {type(item).__name__}; {_ACCEPTED}")
    return item


def _same_schema(batches: Iterable[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for number, batch in enumerate(batches):
        if not isinstance(batch, pa.RecordBatch):
            raise ConfigError(f"batch {number} of data is a {type(batch).__name__}; {_ACCEPTED}")
        if not batch.schema.equals(schema):
            raise SchemaError(
                f"batch {number} of data has another schema than the first: "
                f"{batch.schema.to_string()!r} instead of {schema.to_string()!r}; "
                "cast the batches to one schema"
            )
        yield from _sliced(batch)


def _sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, _BATCH_ROWS):
        yield batch.slice(start, _BATCH_ROWS)


def _is_dataset(data: Any) -> bool:
    # pyarrow.dataset is slow to import; if the data is a dataset, it is imported already.
    return type(data).__module__.split(".")[0] == "pyarrow" and hasattr(data, "scanner")


def _dataset(data: Any) -> Source:
    def batches(nbytes: int) -> Iterator[pa.RecordBatch]:
        scanner = data.scanner(
            batch_size=_BATCH_ROWS, batch_readahead=1, fragment_readahead=1, use_threads=False
        )
        for batch in scanner.to_batches():
            yield from _sliced(batch)

    return Source(data.schema, data.count_rows(), batches)


def parquet_files(paths: Iterable[Path]) -> list[Path]:
    """The Parquet files in these files and folders, in a stable order."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            found = sorted(
                file
                for file in path.rglob("*.parquet")
                if file.is_file() and not file.name.startswith((".", "_"))
            )
            if not found:
                raise ConfigError(f"the folder {path} has no *.parquet file; {_ACCEPTED}")
            files += found
        elif path.exists():
            files.append(path)
        else:
            raise ConfigError(f"data={str(path)!r} does not exist; {_ACCEPTED}")
    return files


def open_parquet(file: Path, buffer_bytes: int = 1 << 20) -> Any:
    """A ParquetFile without read-ahead beyond ``buffer_bytes``."""
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(file, pre_buffer=False, buffer_size=buffer_bytes)
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(f"{file} cannot be read as Parquet: {error}") from error


def _parquet(paths: list[Path]) -> Source:
    files = parquet_files(paths)
    schema: pa.Schema | None = None
    rows = 0
    for file in files:
        with open_parquet(file) as parquet:
            rows += parquet.metadata.num_rows
            found = parquet.schema_arrow.remove_metadata()
        if schema is not None and not found.equals(schema):
            raise SchemaError(
                f"{file} has another schema than {files[0]}: {found.to_string()!r} instead of "
                f"{schema.to_string()!r}; cast the files to one schema"
            )
        schema = found
    if schema is None:
        raise ConfigError(f"data is an empty list of files; {_ACCEPTED}")
    return Source(schema, rows, lambda nbytes: _parquet_batches(files, nbytes))


def _parquet_batches(files: list[Path], nbytes: int) -> Iterator[pa.RecordBatch]:
    for file in files:
        with open_parquet(file) as parquet:
            meta = parquet.metadata
            encoded = sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
            row = max(1, encoded // max(1, meta.num_rows))
            size = max(256, min(_BATCH_ROWS, nbytes // row))
            try:
                yield from parquet.iter_batches(batch_size=size, use_threads=False)
            except (pa.ArrowException, OSError) as error:
                raise ConfigError(f"{file} cannot be read as Parquet: {error}") from error
