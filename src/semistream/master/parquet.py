"""An unmodified Parquet file or folder as pages: no index, no order, for MESHJOIN.

A page is a slice of a row group, at most ``page_bytes`` when decoded. Row groups are often much
larger than a memory budget. A cyclic scan, which is all that MESHJOIN needs, can decode them
incrementally: reading the next page continues where the reader stopped. Reading any other page
decodes its row group from the start.

A Parquet footer does not contain the decoded size of a page, because of dictionary and run-length
encoding. The size of fixed-width columns follows from the row count. Variable-width columns are
decoded once, one at a time and in slices, when the source is opened; so the budget is based on
measured sizes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.errors import ConfigError, MasterTableError
from semistream.keys import Codes
from semistream.master.merge import joined
from semistream.master.reader import raise_read_error
from semistream.master.row_sizes import Sizes, cumulative_bytes
from semistream.master.source import open_parquet, parquet_files
from semistream.master.storage_types import storage_fields, to_storage
from semistream.memory import parse_size

_BUFFER = 64 << 10
_DATA_PAGES = 2 << 20  # writers limit data pages and dictionaries to about 1 MiB each
_FRAMING = 1 << 10
_SCAN_ROWS = 16_384


@dataclass(frozen=True)
class _Page:
    file: int
    row_group: int
    start: int
    rows: int
    step: int  # rows of all pages of the row group but the last


class ParquetPages:
    """Pages of Parquet files; see the module's docstring for what a page is."""

    ordered = False
    unique = False
    distinct = False
    pinned = True
    index = None
    version = 0
    mapped = False
    can_address = False
    can_copy_rows = False
    column_bytes = None
    code_column = None
    key: tuple[str, ...] = ()

    def __init__(self, path: str | os.PathLike[str], page_bytes: int | str = "1MiB") -> None:
        self.path = os.fspath(path)
        self.page_size = parse_size(page_bytes, "page_bytes")
        self.files = parquet_files([Path(path)])
        self.nbytes = sum(file.stat().st_size for file in self.files)
        self.schema = self._schema()
        self.pages: list[_Page] = []
        self.num_rows = 0
        self.max_row_bytes = 0
        self.max_page_bytes = 0
        self.decoder_bytes = 0
        total = 0
        for number, file in enumerate(self.files):
            total += self._measure(number, file)
        pa.default_memory_pool().release_unused()
        self.row_bytes = total / self.num_rows if self.num_rows else 0.0

    def _schema(self) -> pa.Schema:
        first: pa.Schema | None = None
        for file in self.files:
            with open_parquet(file) as parquet:
                schema = parquet.schema_arrow.remove_metadata()
            if first is not None and not schema.equals(first):
                raise MasterTableError(
                    f"{file} has another schema than {self.files[0]}; "
                    "the files of a folder must have one schema to be joined"
                )
            first = schema
        return storage_fields(first)

    def _measure(self, number: int, file: Path) -> int:
        """Cut one file into pages. Returns the decoded size of all its rows."""
        total = 0
        with open_parquet(file, _BUFFER) as parquet:
            for group in range(parquet.metadata.num_row_groups):
                sizes = _cumulative_row_bytes(parquet, group, self.schema, file)
                rows = len(sizes) - 1
                if rows == 0:
                    continue
                total += int(sizes[-1])
                step = max(1, min(rows, rows * self.page_size // max(1, int(sizes[-1]))))
                bounds = np.append(np.arange(0, rows, step), rows)
                largest = int(np.diff(sizes[bounds]).max())
                self.max_page_bytes = max(self.max_page_bytes, largest + _FRAMING)
                self.max_row_bytes = max(self.max_row_bytes, int(np.diff(sizes).max()))
                self.num_rows += rows
                self.pages += [
                    _Page(number, group, int(start), int(end - start), step)
                    for start, end in pairwise(bounds)
                ]
                self.decoder_bytes = max(self.decoder_bytes, _decoder_bytes(parquet, group))
        return total

    @property
    def num_pages(self) -> int:
        return len(self.pages)

    def __reduce__(self) -> tuple[Any, ...]:
        return ParquetPages, (os.path.abspath(self.path), self.page_size)

    def __repr__(self) -> str:
        return f"ParquetPages({self.path!r}, rows={self.num_rows}, pages={self.num_pages})"

    @property
    def page_schema(self) -> pa.Schema:
        return self.schema

    def can_prefetch(self, direct: bool) -> bool:
        return False

    def buffer_bytes(self, pages_at_once: int, direct: bool) -> int:
        return (pages_at_once + 1) * self.max_page_bytes + self.decoder_bytes

    def at_version(self, version: int, awaited: int = 0) -> ParquetPages:
        """Itself: there are no versions."""
        return self

    def reader(self, pages_at_once: int = 1, direct: bool = False) -> ParquetReader:
        if direct:
            raise ConfigError("direct=True is not possible for Parquet; build a master table")
        if pages_at_once < 1:
            raise ConfigError(f"pages_at_once={pages_at_once}; a reader holds at least one page")
        return ParquetReader(self, pages_at_once)

    def newest_version(self) -> int:
        """Always 0: a Parquet folder has no versions and must not change while it is joined."""
        return 0

    def pages_shared_with(self, other: Any) -> int:
        return 0

    def changed_codes(self, since: int) -> Iterator[Codes] | None:
        return None

    def changed_since(self, other: Any) -> Iterator[Codes] | None:
        return None


class ParquetReader:
    """Decodes pages; sequential reads are cheap, random reads are not."""

    def __init__(self, source: ParquetPages, pages_at_once: int) -> None:
        self._source = source
        self._at_once = pages_at_once
        self._next = -1
        self._parquet: Any = None
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._left: pa.RecordBatch | None = None
        self._closed = False
        self.bytes_read = 0

    @property
    def nbytes(self) -> int:
        if self._closed:
            return 0
        return (self._at_once + 1) * self._source.max_page_bytes + self._source.decoder_bytes

    def read(self, first: int, count: int = 1) -> list[pa.RecordBatch]:
        pages = self._source.num_pages
        if self._closed or first < 0 or count > self._at_once or first + count > pages:
            raise_read_error(first, count, pages, self._at_once, self._closed)
        return [self._page(number) for number in range(first, first + count)]

    def close(self) -> None:
        self._reset()
        self._closed = True

    def _page(self, number: int) -> pa.RecordBatch:
        page = self._source.pages[number]
        file = self._source.files[page.file]
        try:
            if number != self._next or page.start == 0:
                self._start(page)
            batch = self._rows(page.rows)
        except (pa.ArrowException, OSError, EOFError, ConfigError) as error:
            self._reset()
            raise MasterTableError(
                f"row group {page.row_group} of {file} cannot be decoded: {error}; "
                "restore the file from a copy"
            ) from error
        self._next = number + 1
        self.bytes_read += batch.nbytes
        return batch

    def _start(self, page: _Page) -> None:
        """Start decoding a row group, and skip to the page."""
        self._reset()
        self._parquet = open_parquet(self._source.files[page.file], _BUFFER)
        self._batches = self._parquet.iter_batches(
            batch_size=page.step, row_groups=[page.row_group], use_threads=False
        )
        for _ in range(page.start // page.step):
            self._rows(page.step)

    def _rows(self, count: int) -> pa.RecordBatch:
        """Exactly ``count`` rows, however the decoder batches them."""
        parts: list[pa.RecordBatch] = []
        have = 0
        while have < count:
            batch = self._left if self._left is not None else next(self._batches, None)
            self._left = None
            if batch is None:
                raise EOFError(f"it has {count - have} rows fewer than when it was opened")
            if have + batch.num_rows > count:
                self._left = batch.slice(count - have)
                batch = batch.slice(0, count - have)
            have += batch.num_rows
            parts.append(to_storage(batch, self._source.schema))
        return joined(parts)

    def _reset(self) -> None:
        if self._parquet is not None:
            self._parquet.close()
        self._parquet, self._left, self._next = None, None, -1
        self._batches = iter(())


def _cumulative_row_bytes(parquet: Any, group: int, schema: pa.Schema, file: Path) -> Sizes:
    rows = parquet.metadata.row_group(group).num_rows
    fixed = [field for field in schema if _has_fixed_width(field.type)]
    bits = sum(field.type.bit_width + 1 for field in fixed)
    total: Sizes = (np.arange(rows + 1, dtype=np.int64) * bits + 7) // 8
    varying = [field.name for field in schema if not _has_fixed_width(field.type)]
    if not varying:
        return total
    wanted = pa.schema([schema.field(name) for name in varying])
    at, before = 1, 0
    try:
        for batch in parquet.iter_batches(
            batch_size=_SCAN_ROWS, row_groups=[group], columns=varying, use_threads=False
        ):
            sizes = cumulative_bytes(to_storage(batch, wanted))[1:] + before
            total[at : at + len(sizes)] += sizes
            before = int(sizes[-1])
            at += len(sizes)
    except (pa.ArrowException, OSError) as error:
        raise MasterTableError(
            f"row group {group} of {file} cannot be decoded: {error}; restore the file from a copy"
        ) from error
    return total


def _has_fixed_width(kind: pa.DataType) -> bool:
    try:
        return bool(kind.bit_width)
    except ValueError:
        return False


def _decoder_bytes(parquet: Any, group: int) -> int:
    """Bytes that decoding needs per column: a read buffer, a data page and a dictionary page."""
    metadata = parquet.metadata.row_group(group)
    return sum(
        _BUFFER + min(_DATA_PAGES, metadata.column(i).total_uncompressed_size)
        for i in range(metadata.num_columns)
    )
