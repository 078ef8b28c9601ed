"""Reads every page once and lists all problems."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from semistream.errors import MasterTableError
from semistream.keys import KeyCodec
from semistream.master.index import SegmentPages, single
from semistream.master.manifest import Manifest, SegmentInfo, read_manifest
from semistream.master.page_check import PageCheck
from semistream.master.store import LocalStore, RangeFile
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


class _Segment:
    def __init__(self, store: LocalStore, manifest: Manifest, info: SegmentInfo) -> None:
        self.store = store
        self.manifest = manifest
        self.info = info
        self.schema = manifest.segment_schema(info)
        self.codec = KeyCodec.for_types([manifest.schema.field(k).type for k in manifest.key])
        self.check = PageCheck(self.schema, manifest.key_schema)
        self.found: list[Problem] = []
        self.last_key: Any = None

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
        except MasterTableError as error:
            self.problem(None, str(error))
        finally:
            file.close()
        return self.found

    def _index(self) -> SegmentPages | None:
        try:
            data = self.store.read(self.info.index_file)
            return SegmentPages.from_bytes(
                data, self.info.index_checksum, self.manifest.key_schema, self.info.index_file
            )
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
        malformed = self.check.malformed(content, int(pages.rows[page]))
        if malformed is not None:
            self.problem(page, f"not a page of this table: {malformed}")
            return
        self._order(page, pa.ipc.read_record_batch(content, self.schema), pages)

    def _order(self, page: int, batch: pa.RecordBatch, pages: SegmentPages) -> None:
        keys = self.codec.sortable([batch.column(name) for name in self.manifest.key])
        ends = [
            self.codec.sortable(rows.slice(page, 1).columns)[0]
            for rows in (pages.firsts, pages.lasts)
        ]
        if [keys[0], keys[-1]] != ends:
            self.problem(page, "its first or last key is not the one in the page index")
        if self.last_key is not None:
            keys = np.concatenate([single(self.last_key, keys), keys])
        before, after = keys[:-1], keys[1:]
        if bool(np.any(before > after)):
            self.problem(page, "the keys are out of order")
        elif self.manifest.unique and bool(np.any(before == after)):
            self.problem(page, "duplicate key in a unique table")
        self.last_key = keys[-1]


def _read(file: RangeFile, offset: int, length: int) -> bytearray:
    data = bytearray(length)
    got = file.read_into(memoryview(data), offset)
    return data[:got] if got < length else data
