"""Nested values of stored rows: they stay Arrow arrays, because records have a fixed size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from semistream.engine.rows.layout import Rows, Slots


class Arena:
    """Arrow chunks of one nested column; chunks of similar size are merged, dead rows dropped."""

    def __init__(self, kind: pa.DataType, capacity: int) -> None:
        self.where = np.full((capacity, 2), -1, np.int64)  # chunk id, row
        self._kind = kind
        self._chunks: dict[int, tuple[pa.Array, Slots]] = {}
        self._next = 0
        self._per_row = 0.0
        self._rows = 0
        self.live_rows = 0

    @property
    def live_bytes(self) -> int:
        return int(self._per_row * self.live_rows)

    def put(self, column: pa.Array, rows: Rows, slots: Slots) -> None:
        if len(rows):
            self._add(column.take(pa.array(rows)), slots)
            self.live_rows += len(rows)
            self._merge_small()

    def _add(self, values: pa.Array, owners: Slots) -> None:
        self.where[owners, 0] = self._next
        self.where[owners, 1] = np.arange(len(owners))
        self._chunks[self._next] = (values, owners.copy())
        self._next += 1
        self._rows += len(values)
        held = sum(chunk.nbytes for chunk, _ in self._chunks.values())
        self._per_row = held / max(1, self._rows)

    def _merge_small(self) -> None:
        """Merge the newest chunks while they are of similar size, so that few remain."""
        newest: list[int] = []
        rows = 0
        for chunk, (values, _) in reversed(self._chunks.items()):
            if newest and len(values) > 2 * rows:
                break
            newest.append(chunk)
            rows += len(values)
        if len(newest) > 1:
            self._merge(newest)

    def _merge(self, chunks: Sequence[int]) -> None:
        """Rewrite these chunks as one, with only the rows that are still owned."""
        values, owners = [], []
        for chunk in chunks:
            array, owner = self._chunks.pop(chunk)
            self._rows -= len(array)
            alive = np.flatnonzero(owner >= 0)
            values.append(array.take(pa.array(alive)))
            owners.append(owner[alive])
        self._add(pa.concat_arrays(values), np.concatenate(owners))

    def take(self, slots: Slots) -> pa.Array:
        chunk_of, row = self.where[slots, 0], self.where[slots, 1]
        order = np.argsort(chunk_of, kind="stable")
        parts = []
        for chunk in np.unique(chunk_of):
            rows = row[order][chunk_of[order] == chunk]
            parts.append(self._chunks[int(chunk)][0].take(pa.array(rows)))
        if not parts:
            return pa.array([], self._kind)
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_arrays(parts).take(pa.array(back))

    def free(self, slots: Slots) -> None:
        for slot in slots:
            chunk, row = self.where[slot]
            self._chunks[int(chunk)][1][row] = -1
        self.where[slots] = -1
        self.live_rows -= len(slots)
        if self._rows > 2 * self.live_rows + 16:
            self._merge(list(self._chunks))
