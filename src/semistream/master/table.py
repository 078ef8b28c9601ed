"""The master table: open a version, read its pages, derive the next version."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from typing import Any, Final

import pyarrow as pa

from semistream.errors import ConfigError, MasterTableError
from semistream.keys import Codes
from semistream.master import manifest as manifests
from semistream.master.changed_since import changed_codes, codes_of_newer_deltas
from semistream.master.codes import KeyCodes
from semistream.master.column_bytes import sampled_bytes
from semistream.master.index import PageIndex
from semistream.master.logical_pages import LogicalPages
from semistream.master.manifest import Manifest, SyncInfo
from semistream.master.mapped_reader import check_mapped, reader_kind
from semistream.master.merge import merge_by_code
from semistream.master.newest import NewestVersion, open_version
from semistream.master.pages import PageReader
from semistream.master.progress import Progress
from semistream.master.store import LocalStore
from semistream.memory import PAGE_BYTES


class MasterTable:
    """One version of a table on disk: rows sorted by the codes of their keys, in pages.

    For keys of integers, dates, times and the like, that is key order.

    Create one with :meth:`build` or :meth:`open`. It is immutable: :meth:`upsert`,
    :meth:`delete` and :meth:`compact` publish a new version and return it. Readers of an older
    version are not affected.

    >>> import pyarrow as pa, tempfile
    >>> folder = tempfile.mkdtemp() + "/products"
    >>> data = pa.table({"id": [3, 1, 2], "price": [3.0, 1.0, 2.0]})
    >>> table = MasterTable.build(data, folder, key="id", unique=True)
    >>> table = table.upsert(pa.table({"id": [2], "price": [2.5]})).delete([3])
    >>> table.version, table.to_table()["price"].to_pylist()
    (3, [1.0, 2.5])
    """

    ordered = True

    def __init__(
        self,
        path: str,
        manifest: Manifest,
        pinned: bool,
        mapped: bool | str = False,
        known: MasterTable | None = None,
        awaited: int = 0,
    ) -> None:
        self.path = path
        self.manifest = manifest
        self.pinned = pinned
        self.mapped = mapped
        self.version: Final = manifest.version
        self.key: Final = manifest.key
        self.unique: Final = manifest.unique
        self.created: Final = manifest.created
        self.codes = KeyCodes(manifest.schema, manifest.key)
        self.codec = self.codes.codec
        self.store = LocalStore(path)
        # Files are opened now and stay open: a vacuum can unlink them, but not their content.
        is_alike = known is not None and known.manifest.schema == manifest.schema
        shared: LogicalPages | None = known.pages if known is not None and is_alike else None
        self.pages: LogicalPages = LogicalPages(self.store, manifest, self.codec, shared, awaited)
        self.index: PageIndex = self.pages.index
        self._sampled: Mapping[str, float] | None = None
        if known is not None and is_alike:
            self._sampled = known._sampled
        self._newest_number = NewestVersion(self.store, manifest.version)

    @classmethod
    def build(
        cls,
        data: Any,
        path: str | os.PathLike[str],
        key: str | Sequence[str],
        unique: bool = False,
        *,
        page_bytes: int | str = PAGE_BYTES,
        memory: int | str = "512MB",
        overwrite: bool = False,
        progress: Progress = None,
        history: str | None = None,
        valid_to: str | None = None,
    ) -> MasterTable:
        """Sort data of any size by its key and write it to a folder.

        Parameters
        ----------
        data
            A Parquet file or folder or a list of them; an Arrow table, batch, reader or dataset;
            anything that exports an Arrow stream; an iterable of record batches; a source that
            :meth:`sync` then follows.
        path
            The folder to write. It must be empty, new, or a master table.
        key
            The column(s) to join on: integers, text, binary, dates, times, timestamps,
            durations, decimals, booleans. Rows with a null key never match; they are left out
            and counted in ``rows_without_key``.
        unique
            Raise for duplicate keys, now and in every upsert.
        page_bytes
            The size of a page. A page is larger only if it has a single row.
        memory
            Memory for sorting; more rows are spilled into the folder.
        overwrite
            Publish a new version if the table exists, instead of raising.
        progress
            ``True`` shows a progress bar on a terminal; or a callback ``(stage, rows, total)``.
        history
            The column with the time from which on a row is valid, for as-of joins: a timestamp, a
            date or a whole number. A row is valid until the next row of its key begins.
        valid_to
            A column with the time at which a row's validity ends, if that is earlier; nulls are
            allowed. Times at the end itself do not match.
        """
        from semistream.master.build import build
        from semistream.master.history import History

        columns = History.of(history, valid_to)
        version = build(data, path, key, unique, page_bytes, memory, overwrite, progress, columns)
        return open_published(path, version, cls)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], version: int | None = None, *, mapped: bool | str = False
    ) -> MasterTable:
        """Open the newest version, or the given one, and stay at it.

        With ``mapped``, readers map pages from the page cache instead of copying them. Use it only
        in processes that are restarted on failure: they die if the file is truncated meanwhile.
        Without it, SweepJoin maps pages for the moment in which it copies rows out of them.
        ``mapped="resident"`` leaves the pages mapped, as a key-value store does: small batches are
        about twice as fast, and what the page cache has of the table counts as resident memory
        of the process, in addition to the budget of a join.
        """
        check_mapped(mapped)
        return cls._open(path, version, mapped)

    @classmethod
    def _open(
        cls,
        path: str | os.PathLike[str],
        version: int | None,
        mapped: bool | str,
        known: MasterTable | None = None,
        awaited: int = 0,
    ) -> MasterTable:
        pinned, folder = version is not None, os.fspath(path)
        return open_version(
            LocalStore(path),
            version,
            lambda manifest: cls(folder, manifest, pinned, mapped, known, awaited),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (os.path.abspath(self.path), self.version, self.pinned, self.mapped)

    def __repr__(self) -> str:
        return (
            f"MasterTable({self.path!r}, version={self.version}, key={self.key}, "
            f"rows={self.num_rows}, pages={self.num_pages})"
        )

    @property
    def schema(self) -> pa.Schema:
        return self.manifest.rows_schema

    @property
    def history(self) -> str | None:
        """The column from whose time on a row is valid, in a table with history."""
        return None if self.manifest.history is None else self.manifest.history.valid_from

    @property
    def distinct(self) -> bool:
        """Whether every key has at most one row, declared with ``unique`` or not."""
        return self.manifest.distinct

    @property
    def page_schema(self) -> pa.Schema:
        """The schema of pages: the table's columns, and :attr:`code_column`."""
        return self.codes.schema

    @property
    def code_column(self) -> str:
        """The column of a page with the codes of its keys. Rows are sorted by it."""
        return self.codes.column

    @property
    def num_rows(self) -> int:
        """Visible rows: without those that a delta replaced or deleted."""
        return self.manifest.num_rows

    @property
    def rows_without_key(self) -> int:
        """Input rows that were dropped because their key has a null."""
        return self.manifest.rows_without_key

    @property
    def num_pages(self) -> int:
        """Number of pages, as numbered by :meth:`reader`: the base's, then those of each delta."""
        return self.pages.num_pages

    @property
    def nbytes(self) -> int:
        """Bytes of all segments of this version on disk."""
        return sum(segment.bytes for segment in self.manifest.segments)

    @property
    def max_page_bytes(self) -> int:
        """The largest page, with its framing."""
        return int(self.pages.pages.lengths.max(initial=0))

    @cached_property
    def max_row_bytes(self) -> int:
        """Values and offsets of the largest row."""
        return self.pages.pages.max_row_bytes

    @cached_property
    def row_bytes(self) -> float:
        """Bytes of an average row on disk, framing included."""
        return self.pages.row_bytes

    @property
    def column_bytes(self) -> Mapping[str, float] | None:
        """Bytes of an average value of each column, from a few pages; later versions keep it."""
        if self._sampled is None:
            self._sampled = sampled_bytes(self.pages)
        return self._sampled

    @property
    def can_address(self) -> bool:
        return self.pages.segment.page_check.addressable

    @property
    def can_copy_rows(self) -> bool:
        return self.can_address

    def can_prefetch(self, direct: bool) -> bool:
        return self.can_address and (direct or not self.mapped)

    def buffer_bytes(self, pages_at_once: int, direct: bool) -> int:
        kind = reader_kind(self.mapped, direct)
        return kind.bytes_for(self.pages.segment, pages_at_once, direct)

    def at_version(self, version: int, awaited: int = 0) -> MasterTable:
        """Another version of this table, with the same ``mapped`` setting.

        ``awaited``, for a join whose tuples wait on for pages of this version before this one:
        after the pages of a newer version come those of deltas that were folded since.
        """
        return MasterTable._open(self.path, version, self.mapped, self, awaited)

    def pages_shared_with(self, other: Any) -> int:
        """Pages, from the first on, that another version has as well: its base and the deltas that
        were not folded since. 0: it has another base."""
        if not isinstance(other, MasterTable) or self.manifest.base != other.manifest.base:
            return 0
        own, others = self.manifest.deltas, other.manifest.deltas
        same = takewhile(lambda pair: pair[0] == pair[1], zip(own, others, strict=False))
        return int(self.pages.bounds[1 + len(list(same))])

    def reader(self, pages_at_once: int = 1, direct: bool = False) -> PageReader:
        """A reader for ``pages_at_once`` pages; ``direct`` bypasses the page cache.

        Pages have the table's columns and :attr:`code_column`, and also rows that a later delta
        has replaced or deleted: ``index.visible`` tells which.
        """
        if pages_at_once < 1:
            raise ConfigError(f"pages_at_once={pages_at_once}; a reader holds at least one page")
        kind = reader_kind(self.mapped, direct)
        return kind(self.pages.segment, pages_at_once, direct)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All visible rows in the order of their codes; each batch is valid until the next one
        is read."""
        for batch in self.coded_batches():
            yield batch.select(self.schema.names)

    def coded_batches(self) -> Iterator[pa.RecordBatch]:
        """The same with the column of codes."""
        streams = self.pages.streams()
        return streams[0] if len(streams) == 1 else merge_by_code(streams, self.code_column)

    def to_table(self) -> pa.Table:
        """All rows in memory. For small tables, and for tests."""
        return self.read()

    def read(self, columns: Sequence[str] | None = None, limit: int | None = None) -> pa.Table:
        """The first ``limit`` rows in code order, in memory. Default: all rows, all columns."""
        from semistream.master.lookup import read

        return read(self, columns, limit)

    def lookup(self, keys: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of these keys, in the order of the keys; an absent key has none.

        ``keys``: values, an Arrow array, or a table with the key columns; tuples for a key of
        several columns. ``columns``: default all.
        """
        from semistream.master.lookup import lookup

        return lookup(self, keys, columns)

    def newest_version(self) -> int:
        """The newest published version; costs two file look-ups if nothing changed."""
        return self._newest_number.find()

    def changed_codes(self, since: int) -> Iterator[Codes] | None:
        """Codes of the keys that were upserted or deleted after version ``since``, up to this one.

        None if unknown: the table was rebuilt in between, or the versions in between were
        vacuumed.
        """
        return changed_codes(self, since)

    def changed_since(self, other: Any) -> Iterator[Codes] | None:
        """The same after an open version. If those in between were vacuumed, and the base is the
        same: all codes of newer deltas, into which older ones may have been folded."""
        found = self.changed_codes(other.version)
        if found is None and self.pages_shared_with(other):
            return codes_of_newer_deltas(self, other.manifest)
        return found

    def upsert(self, data: Any, *, memory: int | str = "512MB") -> MasterTable:
        """Publish a version in which the given rows replace all rows of their keys.

        In a table with ``unique=False`` the rows given for a key replace *every* row that the
        key had. In a table with history, they replace the rows with the same key and begin, and
        the key keeps its others: a new row ends the validity of the one before it. Columns may be
        in another order; types are cast if that is lossless.
        """
        from semistream.master.changes import upsert

        return self._at(upsert(self, data, memory))

    def delete(self, keys: Any) -> MasterTable:
        """Publish a version without the rows of these keys.

        ``keys``: values, an Arrow array, or a table with the key columns; tuples for a key of
        several columns. Absent keys are ignored.
        """
        from semistream.master.changes import delete

        return self._at(delete(self, keys))

    def sync(
        self,
        source: Any,
        *,
        full: bool = False,
        memory: int | str = "512MB",
        progress: Progress = None,
    ) -> MasterTable:
        """Bring the newest version in step with its source of truth, reading only what changed.

        Publishes at most one version, with the changes and the position that they lead to; after a
        crash, the next sync continues from the last one published. The table has one row per key.

        Parameters
        ----------
        source
            The path of Parquet files or of a Delta table, or a ``ParquetSource``,
            ``DeltaSource``, ``SqlSource`` or ``KafkaSource``.
        full
            Compare all rows, whatever was read before; also to follow another source.
        memory
            Memory for sorting the changes; more are spilled into the folder.
        progress
            ``True`` shows a progress bar on a terminal; or a callback ``(stage, rows, total)``.
        """
        from semistream.master.sync import sync

        newest = self._newest()
        return newest._at(sync(newest, source, full, memory, progress))

    def pending(
        self,
        source: Any,
        *,
        full: bool = False,
        memory: int | str = "512MB",
        progress: Progress = None,
    ) -> SyncInfo:
        """What :meth:`sync` would change: rows ``inserted``, ``updated``, ``deleted``."""
        from semistream.master.sync import pending

        return pending(self._newest(), source, full, memory, progress)

    @property
    def synced(self) -> SyncInfo | None:
        """The last sync that changed something; None if the table follows no source."""
        return self.manifest.sync

    @property
    def age(self) -> float | None:
        """Seconds since the table was last known to be in step with its source."""
        return self.age_at(self.version)

    def age_at(self, version: int) -> float | None:
        """The same for another version of the table."""
        from semistream.master.sync import age_of

        is_own = version == self.version
        manifest = self.manifest if is_own else manifests.read_manifest(self.store, version)
        return age_of(self.store, manifest)

    def compact(self) -> MasterTable:
        """Merge all deltas into one segment; a no-op without deltas."""
        from semistream.master.changes import compact

        return self._at(compact(self))

    def vacuum(self, keep: int = 2) -> Any:
        """Delete all but the newest ``keep`` versions, and files that dead writers left.

        Versions that a Spark query may read again when it replays a batch are kept, too. If a
        kept version cannot be opened, nothing is deleted. Files of a writer that died on another
        machine, or before this one restarted, are kept for a week.
        """
        from semistream.master.vacuum import vacuum

        return vacuum(self.store, keep)

    def _newest(self) -> MasterTable:
        if self.newest_version() == self.version:
            return self
        return MasterTable.open(self.path, mapped=self.mapped)

    def _at(self, version: int) -> MasterTable:
        if version == self.version:
            return self
        return open_published(self.path, version, type(self), self)


def open_published(
    path: str | os.PathLike[str],
    version: int,
    kind: type[MasterTable] = MasterTable,
    known: MasterTable | None = None,
) -> MasterTable:
    """The version just published; a later one based on it if it was vacuumed already.

    It shares the files that ``known``, the version before, has open: a writer of many changes
    neither reads the index of the base nor checks pages again for each of them.
    """
    try:
        table = kind._open(path, version, False, known)
        table.pinned = False
        return table
    except MasterTableError:
        if version in manifests.list_versions(LocalStore(path)):
            raise
        return kind.open(path)


def _reopen(
    path: str,
    version: int,
    pinned: bool,
    mapped: bool | str = False,
    kind: type[MasterTable] = MasterTable,
) -> MasterTable:
    table = kind.open(path, version, mapped=mapped)
    table.pinned = pinned
    return table
