"""A Delta table, followed by its versions.

With the change data feed, the changes of all versions since the position are read. Without it, the
files of both versions are compared: keys of removed files, rows of added ones. If the old version
or its files are gone (vacuum, or cleaned-up logs), everything is compared.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from semistream.errors import MasterTableError
from semistream.master.sql_redact import redact, without_secrets
from semistream.master.sync.contract import (
    Position,
    Snapshot,
    check_columns,
    compare_all,
    missing_package,
)
from semistream.master.sync.entries import DELETE, UPSERT, Entries

if TYPE_CHECKING:
    from semistream.master.table import MasterTable

_LOG = logging.getLogger(__name__)
_BATCH_ROWS = 65_536
_FEED = "delta.enableChangeDataFeed"
# An update may change the key, so the row before it counts as deleted; of the same commit, the
# row after it has precedence.
_OPERATIONS = {
    "insert": UPSERT,
    "update_postimage": UPSERT,
    "update_preimage": DELETE,
    "delete": DELETE,
}


class DeltaSource:
    """A Delta table with one row per key, read by delta-rs.

    ``storage_options`` are passed to it, for object stores. ``change_data_feed=False`` compares
    files even if there is a feed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
        change_data_feed: bool = True,
    ) -> None:
        text = os.fspath(path)
        self.path = text if "://" in text else os.path.abspath(text)
        self._options = dict(storage_options or {})
        self._feed = change_data_feed

    @property
    def name(self) -> str:
        return f"Delta table {redact(self.path)}"

    def snapshot(self, key: Sequence[str], columns: Sequence[str] | None) -> Snapshot:
        table = self._open()
        dataset = self._dataset(table)
        if columns is not None:
            check_columns(self.name, columns, dataset.schema.names)
        names = list(columns or dataset.schema.names)
        schema = pa.schema([dataset.schema.field(name) for name in names])
        rows = dataset.count_rows()
        fragments = list(dataset.get_fragments())
        return Snapshot(
            schema, rows, lambda: self._rows(dataset.schema, fragments, names), _position(table)
        )

    def read_first(self, table: MasterTable, entries: Entries) -> Position:
        return compare_all(self, table, entries)

    def read(self, table: MasterTable, position: Position, entries: Entries) -> Position:
        new = self._open()
        now = _position(new)
        if now == position:
            return position
        if now["table"] != position["table"] or now["version"] < position["version"]:
            _LOG.warning("%s was replaced by another table; comparing all rows", self.name)
            return compare_all(self, table, entries)
        old = self._find(position["version"])
        if old is None:
            return compare_all(self, table, entries)
        if self._feed and self._has_feed(old, new):
            self._read_feed(new, position["version"] + 1, table, entries)
        elif not self._read_files(old, new, table, entries):
            return compare_all(self, table, entries)
        return now

    # -- the change data feed --------------------------------------------------------------

    def _has_feed(self, old: Any, new: Any) -> bool:
        """Enabled at both versions, and not switched off and on in between."""
        if any(_feed_setting(version) != "true" for version in (old, new)):
            return False
        commits = new.history(limit=new.version() - old.version())
        return not any(
            word in str(commit.get("operation", "")).upper()
            for commit in commits
            for word in ("PROPERT", "RESTORE", "REPLACE", "CONVERT")
        )

    def _read_feed(self, new: Any, first: int, table: MasterTable, entries: Entries) -> None:
        entries.allow_repeats()
        with self._reporting():
            feed = pa.RecordBatchReader.from_stream(
                new.load_cdf(starting_version=first, ending_version=new.version())
            )
            check_columns(self.name, table.schema.names, feed.schema.names)
            for batch in feed:
                kinds = batch.column("_change_type").to_pylist()
                operations = np.array([_OPERATIONS[kind] for kind in kinds], np.int64)
                commits = batch.column("_commit_version").cast(pa.int64()).to_numpy()
                entries.add(batch.select(table.schema.names), operations, commits)

    # -- files -----------------------------------------------------------------------------

    def _read_files(self, old: Any, new: Any, table: MasterTable, entries: Entries) -> bool:
        """Compare the files of two versions; False, without an entry, if one is gone."""
        before, after = self._dataset(old), self._dataset(new)
        check_columns(self.name, table.schema.names, after.schema.names)
        files = {fragment.path: fragment for fragment in before.get_fragments()}
        added = [f for f in after.get_fragments() if files.pop(f.path, None) is None]
        removed = list(files.values())
        if removed and not all(f.is_file for f in before.filesystem.get_file_info(list(files))):
            _LOG.warning("%s: files of version %d were vacuumed, comparing all rows",
                         self.name, old.version())  # fmt: skip
            return False
        entries.expect(sum(fragment.count_rows() for fragment in [*removed, *added]))
        for batch in self._rows(before.schema, removed, list(table.key)):
            entries.add(batch, DELETE, np.zeros(batch.num_rows, np.int64))
        for batch in self._rows(after.schema, added, table.schema.names):
            entries.add(batch, UPSERT, np.ones(batch.num_rows, np.int64))
        return True

    def _rows(
        self, schema: pa.Schema, fragments: Iterable[Any], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        for fragment in fragments:
            with self._reporting():
                yield from fragment.to_batches(
                    schema=schema, columns=list(columns), batch_size=_BATCH_ROWS,
                    batch_readahead=1, fragment_readahead=1, use_threads=False,
                )  # fmt: skip

    # -- delta-rs --------------------------------------------------------------------------

    def _open(self, version: int | None = None) -> Any:
        try:
            from deltalake import DeltaTable
        except ImportError as error:
            raise missing_package(self.name, "deltalake", "delta") from error
        with self._reporting():
            return DeltaTable(self.path, version=version, storage_options=self._options or None)

    def _find(self, version: int) -> Any:
        """An older version; None, with a warning, if its log was cleaned up."""
        try:
            return self._open(version)
        except MasterTableError as error:
            _LOG.warning(
                "%s no longer has version %d, comparing all rows: %s", self.name, version, error
            )
            return None

    def _dataset(self, table: Any) -> Any:
        with self._reporting():
            return table.to_pyarrow_dataset()

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        from deltalake.exceptions import DeltaError, DeltaProtocolError

        try:
            yield
        except (DeltaError, DeltaProtocolError, pa.ArrowException, OSError) as error:
            words = str(error).strip().splitlines() or [type(error).__name__]
            raise MasterTableError(
                f"{self.name} cannot be read: {without_secrets(words[0], self.path)}; check that "
                "the path is a Delta table that you can read, then try again"
            ) from None


def _position(table: Any) -> Position:
    return {"table": str(table.metadata().id), "version": int(table.version())}


def _feed_setting(table: Any) -> str:
    return str(table.metadata().configuration.get(_FEED, "")).lower()
