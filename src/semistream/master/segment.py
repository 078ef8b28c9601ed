"""Writes a segment: batches sorted by code in, pages of the requested size out.

A segment is a plain Arrow IPC file with one record batch per page, so any Arrow reader can open
it. The position, codes and checksum of each page are in the page index, a separate file.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import xxhash

from semistream.errors import ConfigError
from semistream.master.codes import KeyCodes
from semistream.master.duplicates import RepeatedKeys
from semistream.master.index import SegmentPages
from semistream.master.manifest import SegmentInfo
from semistream.master.merge import joined
from semistream.master.row_sizes import cumulative_bytes
from semistream.master.store import LocalStore, writing

_PADDING = 16  # per buffer: alignment to 8 bytes, and bits that start inside a byte
_PAGES_PER_CUT = 4


class SegmentWriter:
    """A context manager; :attr:`info` and :attr:`pages` are set after the block.

    ``duplicates``: how to treat duplicate keys: ``keep`` all rows, ``refuse`` (raise), or
    ``drop`` all but the first.
    """

    def __init__(
        self,
        store: LocalStore,
        name: str,
        kind: str,
        schema: pa.Schema,
        key: Sequence[str],
        page_bytes: int,
        duplicates: str = "keep",
    ) -> None:
        self._store = store
        self._name = name
        self._kind = kind
        self._codes = KeyCodes(schema, key)
        self._schema = self._codes.schema
        self._page_bytes = page_bytes
        self._duplicates = duplicates
        self._room = page_bytes - _framing(self._schema)
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._repeated = RepeatedKeys(self._codes)
        self._distinct = True
        self._entries: list[tuple[int, int, int, int, int, int, int]] = []
        self.info: SegmentInfo
        self.pages: SegmentPages

    def __enter__(self) -> SegmentWriter:
        name = f"segments/{self._name}.arrow"
        self._file = ExitStack()
        file = self._file.enter_context(
            self._store.create(name, is_read_next=self._kind == "delta")
        )
        self._sink = _HashingSink(file, self._store.path(name))
        self._writer = pa.ipc.new_file(pa.PythonFile(self._sink, "w"), self._schema)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            with self._file:  # closes the file, also after an error
                if error is not None:
                    raise error
                self._cut(final=True)
                self._writer.close()
                self._sink.settle(0)
            self._write_index()
        except BaseException:
            self._store.delete(f"segments/{self._name}.arrow")
            self._store.delete(f"segments/{self._name}.index.arrow")
            raise

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows of the segment's schema; their codes must be in ascending order."""
        if batch.num_rows == 0:
            return
        if self._duplicates != "keep" or self._distinct:
            batch = self._look_for_duplicates(batch)
        self._pending.append(batch)
        self._pending_bytes += batch.nbytes
        if self._pending_bytes >= _PAGES_PER_CUT * self._page_bytes:
            self._cut(final=False)

    def _look_for_duplicates(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        again = self._repeated.find(batch)
        if again is None:
            return batch
        if self._duplicates == "drop":
            return batch.filter(pa.array(~again))
        if self._duplicates == "refuse":
            key = _format_key(batch.select(self._codes.key), int(np.flatnonzero(again)[0]))
            raise ConfigError(
                f"unique=True, but the key {key} occurs more than once; "
                "remove the duplicates, or use a table with unique=False"
            )
        self._distinct = False
        return batch

    def _cut(self, final: bool) -> None:
        """Write all full pages of the pending rows; keep the last, partial one."""
        if not self._pending:
            return
        batch = joined(self._pending)
        total = cumulative_bytes(batch)
        start, rows = 0, batch.num_rows
        bounds = []
        while start < rows:
            end = int(np.searchsorted(total, total[start] + self._room, side="right")) - 1
            end = max(end, start + 1)
            if end >= rows and not final:
                break
            end = min(end, rows)
            bounds.append((start, end))
            start = end
        largest = np.diff(total)
        for first, last in bounds:
            self._write_page(batch.slice(first, last - first), largest[first:last])
        rest = batch.slice(start)
        self._pending = [rest] if rest.num_rows else []
        self._pending_bytes = rest.nbytes

    def _write_page(self, page: pa.RecordBatch, row_bytes: np.ndarray[Any, Any]) -> None:
        rows = page.num_rows
        length = pa.ipc.get_record_batch_size(page)
        if (
            length > self._page_bytes and rows > 1
        ):  # the estimate was too low: nested or unusual types
            half = rows // 2
            self._write_page(page.slice(0, half), row_bytes[:half])
            self._write_page(page.slice(half), row_bytes[half:])
            return
        self._writer.write_batch(page)
        offset, checksum = self._sink.settle(length)
        codes = self._codes.stored(page)
        self._entries.append(
            (offset, length, rows, checksum, int(row_bytes.max()), int(codes[0]), int(codes[-1]))
        )

    def _write_index(self) -> None:
        columns = list(zip(*self._entries, strict=True)) or [()] * 7
        offsets, lengths, rows, row_bytes, firsts, lasts = (
            np.array(columns[i], dtype=np.int64) for i in (0, 1, 2, 4, 5, 6)
        )
        self.pages = SegmentPages(
            offsets=offsets,
            lengths=lengths,
            rows=rows,
            checksums=np.array(columns[3], dtype=np.uint64),
            max_row_bytes=row_bytes,
            first_codes=firsts,
            last_codes=lasts,
        )
        data = self.pages.to_bytes()
        name = f"segments/{self._name}.index.arrow"
        with self._store.create(name, is_read_next=self._kind == "delta") as file:
            file.write(data)
        self.info = SegmentInfo(
            name=f"{self._name}.arrow",
            kind=self._kind,
            rows=int(rows.sum()),
            pages=len(self._entries),
            bytes=self._sink.position,
            checksum=self._sink.hexdigest(),
            index=f"{self._name}.index.arrow",
            index_checksum=xxhash.xxh3_64_hexdigest(data),
            distinct=self._distinct,
        )


def _format_key(keys: pa.RecordBatch, row: int) -> str:
    parts = []
    for name, column in zip(keys.schema.names, keys.columns, strict=True):
        try:
            value = repr(column[row].as_py())
        except ValueError:  # nanoseconds do not fit Python's own types
            value = column.slice(row, 1).cast(pa.string())[0].as_py()
        parts.append(f"{name}={value}")
    return ", ".join(parts)


def _framing(schema: pa.Schema) -> int:
    """Bytes of a page besides its rows: the message header, and padding after each buffer."""
    empty = pa.RecordBatch.from_pylist([], schema=schema)
    return int(pa.ipc.get_record_batch_size(empty)) + _PADDING * _buffers(schema)


def _buffers(kinds: Any) -> int:
    count = 0
    for field in kinds:
        kind = field.type
        count += 3
        if pa.types.is_nested(kind):
            count += _buffers([kind.field(i) for i in range(kind.num_fields)])
    return count


class _HashingSink:
    """The file that the Arrow writer writes to: tracks which bytes belong to which page.

    The writer passes many small pieces per page. They are kept (not copied) until the page is
    complete, because the file's header is written together with the first page.
    """

    closed = False

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path
        self._pieces: list[Any] = []
        self._unsettled = 0
        self._whole = xxhash.xxh3_64()
        self.position = 0

    def write(self, data: Any) -> int:
        self._pieces.append(data)
        self._unsettled += len(data)
        return len(data)

    def settle(self, length: int) -> tuple[int, int]:
        """Write the pieces; returns offset and checksum of the page, the last ``length`` bytes."""
        before = self._unsettled - length
        page = xxhash.xxh3_64()
        seen = 0
        with writing(self._path):
            for piece in self._pieces:
                if seen >= before:
                    page.update(piece)
                seen += len(piece)
                self._whole.update(piece)
                self._file.write(piece)
        offset = self.position + before
        self.position += self._unsettled
        self._pieces, self._unsettled = [], 0
        return offset, page.intdigest()

    def hexdigest(self) -> str:
        return self._whole.hexdigest()

    def tell(self) -> int:
        return self.position + self._unsettled

    def flush(self) -> None: ...
    def close(self) -> None: ...
    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False
