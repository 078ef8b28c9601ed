"""Parquet files, followed by their list: path, size and time of modification.

Files that are new or rewritten are read. If a file is gone or rewritten, some of its keys may be
gone, too, and only the other files know which: their key columns are read, and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from semistream.errors import ConfigError, MasterTableError
from semistream.master.source import open_parquet, parquet_files
from semistream.master.sync.contract import Position, Snapshot, check_columns, compare_all
from semistream.master.sync.entries import Entries

if TYPE_CHECKING:
    from semistream.master.table import MasterTable

_BATCH_ROWS = 65_536


class ParquetSource:
    """Parquet files and folders. Together they have one row per key.

    A file must be complete when it appears under its name, as it is if it is renamed into place.
    """

    def __init__(self, paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> None:
        given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
        if not given:
            raise ConfigError("a ParquetSource needs at least one file or folder")
        self.paths = [Path(os.path.abspath(path)) for path in given]

    @property
    def name(self) -> str:
        return "Parquet files in " + ", ".join(map(str, self.paths))

    def snapshot(self, key: Sequence[str], columns: Sequence[str] | None) -> Snapshot:
        files = self._list()
        with _opened(next(iter(files))) as first:
            schema = first.schema_arrow.remove_metadata()
        if columns is not None:
            check_columns(self.name, columns, schema.names)
            schema = pa.schema([schema.field(name) for name in columns])
        return Snapshot(
            schema,
            self._rows(files),
            lambda: self._batches(files, schema.names),
            {"files": files},
        )

    def read_first(self, table: MasterTable, entries: Entries) -> Position:
        return compare_all(self, table, entries)

    def read(self, table: MasterTable, position: Position, entries: Entries) -> Position:
        known = position["files"]
        files = self._list()
        changed = [file for file in files if files[file] != known.get(file)]
        kept = [file for file in files if file not in changed]
        is_only_added = len(kept) == len(known)
        entries.expect(self._rows(changed if is_only_added else files))
        if not is_only_added:
            entries.delete_others()
            for batch in self._batches(kept, list(table.key)):
                entries.keep(batch)
        for batch in self._batches(changed, table.schema.names):
            entries.upsert(batch)
        return {"files": files}

    def _list(self) -> dict[str, list[int]]:
        """Taken before any file is read: a file that changes meanwhile is read again next time."""
        try:
            files = parquet_files(self.paths)
            stats = [(str(file), file.stat()) for file in files]
        except OSError as error:
            raise MasterTableError(
                f"{self.name} cannot be listed: {error}; a file may have been removed just now, "
                "try again"
            ) from error
        return {file: [stat.st_size, stat.st_mtime_ns] for file, stat in stats}

    def _rows(self, files: Any) -> int:
        rows = 0
        for file in files:
            with _opened(file) as parquet:
                rows += parquet.metadata.num_rows
        return rows

    def _batches(self, files: Any, columns: list[str]) -> Iterator[pa.RecordBatch]:
        for file in files:
            with _opened(file) as parquet:
                check_columns(file, columns, parquet.schema_arrow.names)
                try:
                    yield from parquet.iter_batches(
                        batch_size=_BATCH_ROWS, columns=columns, use_threads=False
                    )
                except (pa.ArrowException, OSError) as error:
                    raise MasterTableError(
                        f"{file} cannot be read as Parquet: {error}; write it again, then sync"
                    ) from error


def _opened(file: str) -> Any:
    """A file that cannot be read may be readable next time: not a wrong option."""
    try:
        return open_parquet(Path(file))
    except ConfigError as error:
        raise MasterTableError(f"{error}; write it again, then sync") from error
