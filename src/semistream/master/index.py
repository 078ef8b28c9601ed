"""The page index: the position of every page, and the pages that can contain a key.

On disk each segment has an Arrow file with one row per page. In memory the table keeps one
:class:`PageIndex` over its logical pages, which is all that a join uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from semistream.errors import MasterTableError
from semistream.keys import KeyCodec

Positions = np.ndarray[Any, np.dtype[np.int64]]
Keys = np.ndarray[Any, Any]

FORMAT_VERSION = 1
_FORMAT = b"semistream-page-index"  # metadata key of the format version


@dataclass(frozen=True)
class SegmentPages:
    """Every page of one segment: position, size, checksum, first and last key."""

    offsets: Positions
    lengths: Positions
    rows: Positions
    checksums: np.ndarray[Any, np.dtype[np.uint64]]
    max_row_bytes: Positions
    firsts: pa.RecordBatch
    lasts: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def nbytes(self) -> int:
        """Bytes in memory: five numbers and two keys for each page."""
        return 5 * 8 * len(self) + int(self.firsts.nbytes) + int(self.lasts.nbytes)

    def to_bytes(self) -> bytes:
        columns: dict[str, Any] = {
            "offset": pa.array(self.offsets),
            "length": pa.array(self.lengths),
            "rows": pa.array(self.rows),
            "checksum": pa.array(self.checksums),
            "max_row_bytes": pa.array(self.max_row_bytes),
        }
        for i in range(self.firsts.num_columns):
            columns[f"first_{i}"] = self.firsts.column(i)
            columns[f"last_{i}"] = self.lasts.column(i)
        batch = pa.record_batch(columns)
        batch = batch.replace_schema_metadata({_FORMAT: str(FORMAT_VERSION)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return bytes(sink.getvalue())

    @classmethod
    def from_bytes(cls, data: bytes, checksum: str, key: pa.Schema, name: str) -> SegmentPages:
        if xxhash.xxh3_64_hexdigest(data) != checksum:
            raise MasterTableError(
                f"the page index {name} is damaged: its checksum does not match; "
                "restore the file from a copy or build the table again"
            )
        batch = pa.ipc.open_file(pa.py_buffer(data)).get_batch(0)
        # Files without a version were written before the format had one.
        version = (batch.schema.metadata or {}).get(_FORMAT, b"1")
        if version != str(FORMAT_VERSION).encode():
            raise MasterTableError(
                f"the page index {name} has format version {version.decode(errors='replace')}, "
                f"and this semistream reads {FORMAT_VERSION}; upgrade semistream"
            )
        batch.validate(full=True)

        def numbers(column: str) -> Any:
            return batch.column(column).to_numpy()

        def keys(prefix: str) -> pa.RecordBatch:
            arrays = [batch.column(f"{prefix}_{i}") for i in range(len(key))]
            return pa.RecordBatch.from_arrays(arrays, schema=key)

        return cls(
            numbers("offset"),
            numbers("length"),
            numbers("rows"),
            numbers("checksum"),
            numbers("max_row_bytes"),
            keys("first"),
            keys("last"),
        )


def single(key: Any, like: Keys) -> Keys:
    """One key as an array. NumPy alone would convert bytes to a fixed-width type and lose
    trailing zeros."""
    result = np.empty(1, dtype=like.dtype)
    result[0] = key
    return result


class PageIndex:
    """The first key of every logical page, in memory.

    Pages are in key order. ``continues[j]`` is true if a key of page ``j`` may also be in
    page ``j + 1``.
    """

    def __init__(
        self,
        codec: KeyCodec,
        firsts: Keys,
        continues: np.ndarray[Any, np.dtype[np.bool_]],
        beside: int = 0,
    ) -> None:
        self.codec = codec
        self.firsts = firsts
        self.continues = continues
        self._beside = beside

    def locate(self, columns: Sequence[pa.Array]) -> tuple[Positions, Positions]:
        """For each key the first and last page that can contain it, both inclusive.

        The columns must not have nulls and have the key's types. A key below the first page's
        belongs to page 0. Without pages the ranges are empty: ``(0, -1)``.
        """
        return self.locate_sortable(self.codec.sortable(columns))

    def locate_sortable(self, keys: Keys) -> tuple[Positions, Positions]:
        """The same for keys that :meth:`KeyCodec.sortable` has prepared."""
        high = np.searchsorted(self.firsts, keys, side="right").astype(np.int64) - 1
        if len(self.firsts) == 0:
            return np.zeros(len(keys), dtype=np.int64), high
        np.maximum(high, 0, out=high)
        if not self.continues.any():
            return high.copy(), high
        low = np.searchsorted(self.firsts, keys, side="left").astype(np.int64)
        starts_page = low <= high
        before = np.maximum(low - 1, 0)
        low = np.where(starts_page, low - (self.continues[before] & (low > 0)), high)
        return low, high

    @property
    def nbytes(self) -> int:
        """Bytes of first keys and flags, and of the open table's data on each physical page."""
        held = self.firsts.nbytes + self.continues.nbytes + self._beside
        if self.firsts.dtype == object:
            held += sum(key.__sizeof__() for key in self.firsts)
        return held
