"""Reads every page once and lists all problems."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import xxhash

from semistream.errors import MasterTableError
from semistream.master.changed import ChangedCodes, contains
from semistream.master.duplicates import RepeatedKeys
from semistream.master.index import SegmentPages
from semistream.master.local_file import RangeFile
from semistream.master.manifest import ChangedInfo, Manifest, SegmentInfo, read_manifest
from semistream.master.page_check import PageCheck
from semistream.master.store import LocalStore
from semistream.master.table import MasterTable


@dataclass(frozen=True)
class Problem:
    """``page`` is None if the problem concerns a whole file."""

    file: str
    page: int | None
    what: str

    def __str__(self) -> str:
        where = self.file if self.page is None else f"{self.file}, page {self.page}"
        return f"{where}: {self.what}"


def verify(
    table: MasterTable | str | os.PathLike[str],
    version: int | None = None,
    on_page: Callable[[], None] = lambda: None,
) -> list[Problem]:
    """All problems of one version; an empty list means that every byte is unchanged.

    Give a path instead of a table if the table cannot be opened.
    """
    if isinstance(table, MasterTable):
        store, version = table.store, version or table.version
    else:
        store = LocalStore(table)
    manifest = read_manifest(store, version)
    problems: list[Problem] = []
    for info in manifest.segments:
        problems += _Segment(store, manifest, info).problems(on_page)
    if manifest.changed is not None:
        problems += _changed_codes(store, manifest.changed)[1]
    if not problems:
        problems += _row_count(store, manifest)
    return problems


def _row_count(store: LocalStore, manifest: Manifest) -> list[Problem]:
    table = MasterTable(str(store.root), manifest, pinned=True)
    rows = sum(batch.num_rows for batch in table.batches())
    if rows == manifest.num_rows:
        return []
    what = f"the manifest has {manifest.num_rows} rows, the segments have {rows}"
    return [Problem(f"version {manifest.version}", None, what)]


def _changed_codes(
    store: LocalStore, info: ChangedInfo
) -> tuple[ChangedCodes | None, list[Problem]]:
    try:
        return ChangedCodes.read(store, info), []
    except MasterTableError as error:
        return None, [Problem(info.file, None, str(error))]


class _Segment:
    def __init__(self, store: LocalStore, manifest: Manifest, info: SegmentInfo) -> None:
        self.store = store
        self.manifest = manifest
        self.info = info
        self.codes = manifest.key_codes()
        self.check = PageCheck(self.codes)
        self.repeated = RepeatedKeys(self.codes)
        self.found: list[Problem] = []
        self.last_code: int | None = None
        self.changed: ChangedCodes | None = None
        if info.changed is not None:
            self.changed, self.found = _changed_codes(store, info.changed)
        self.met = np.zeros(0 if self.changed is None else len(self.changed), np.bool_)

    def problem(self, page: int | None, what: str, file: str | None = None) -> None:
        self.found.append(Problem(file or self.info.file, page, what))

    def problems(self, on_page: Callable[[], None]) -> list[Problem]:
        pages = self._index()
        size = self.store.size(self.info.file)
        if size is None:
            self.problem(None, "the file is missing")
            return self.found
        if size != self.info.bytes:
            self.problem(None, f"the file has {size} bytes instead of {self.info.bytes}")
        if pages is None:
            return self.found
        try:
            file = self.store.open(self.info.file)
        except MasterTableError as error:
            self.problem(None, str(error))
            return self.found
        try:
            self._pages(file, pages, size, on_page)
            if self.changed is not None and not self.found:
                self._changes(self.changed)
        except MasterTableError as error:
            self.problem(None, str(error))
        finally:
            file.close()
        return self.found

    def _index(self) -> SegmentPages | None:
        try:
            data = self.store.read(self.info.index_file)
            return SegmentPages.from_bytes(data, self.info.index_checksum, self.info.index_file)
        except MasterTableError as error:
            self.problem(None, str(error), self.info.index_file)
            return None

    def _pages(
        self, file: RangeFile, pages: SegmentPages, size: int, on_page: Callable[[], None]
    ) -> None:
        whole = xxhash.xxh3_64()
        at = 0
        for page in range(len(pages)):
            offset, length = int(pages.offsets[page]), int(pages.lengths[page])
            whole.update(_read(file, at, offset - at))
            data = _read(file, offset, length)
            whole.update(data)
            at = offset + length
            self._page(page, data, length, pages)
            on_page()
        whole.update(_read(file, at, max(0, size - at)))
        if not self.found and whole.hexdigest() != self.info.checksum:
            self.problem(None, "the file's header or footer is damaged")

    def _page(self, page: int, data: bytearray, length: int, pages: SegmentPages) -> None:
        if len(data) < length:
            self.problem(page, f"truncated: {len(data)} of {length} bytes exist")
            return
        if xxhash.xxh3_64_intdigest(data) != int(pages.checksums[page]):
            self.problem(page, "damaged: the checksum does not match")
            return
        content = pa.py_buffer(data)
        ends = int(pages.first_codes[page]), int(pages.last_codes[page])
        problem = self.check.problem(content, int(pages.rows[page]), *ends)
        if problem is not None:
            named = "" if problem.readable else "not a page of this table: "
            self.problem(page, named + problem.what)
        if problem is None or problem.readable:
            batch = pa.ipc.read_record_batch(content, self.codes.schema)
            self._order(page, batch, in_order=problem is None)

    def _order(self, page: int, batch: pa.RecordBatch, in_order: bool) -> None:
        """Compare with the pages before it."""
        codes = self.codes.stored(batch)
        if in_order and self.last_code is not None and self.last_code > codes[0]:
            self.problem(page, "its keys are out of order")
        again = self.repeated.find(batch)
        if again is not None and in_order:
            if self.manifest.unique:
                self.problem(page, "duplicate key in a unique table")
            elif self.info.distinct:
                self.problem(page, "duplicate key in a segment of distinct keys")
        self.last_code = int(codes[-1])
        if self.changed is not None and in_order:
            if not contains(self.changed.codes, codes).all():
                self.problem(page, "a row's code is not among the delta's changed codes")
            else:
                self.met[np.searchsorted(self.changed.codes, codes)] = True

    def _changes(self, changed: ChangedCodes) -> None:
        if not np.array_equal(self.met, changed.present):
            assert self.info.changed is not None
            what = "it does not say correctly which codes have rows in the delta"
            self.problem(None, what, self.info.changed.file)


def _read(file: RangeFile, offset: int, length: int) -> bytearray:
    data = bytearray(length)
    got = file.read_into(memoryview(data), offset)
    return data[:got] if got < length else data
