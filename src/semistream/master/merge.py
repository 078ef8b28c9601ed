"""Merges streams of batches that are each sorted by code, block by block. Nothing loops over rows.

Of the blocks in memory, all rows up to the smallest last code are complete: no later block can have
a smaller code. They are cut off all blocks, concatenated, sorted and emitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.keys import Codes, int64_view


def merge_by_code(
    streams: Sequence[Iterable[pa.RecordBatch]], column: str
) -> Iterator[pa.RecordBatch]:
    """The rows of all streams in the order of the codes in this column.

    A batch that a stream yields must stay valid until the next one is taken from it; so must a
    merged batch. No batch is empty.
    """
    cursors = [_Cursor(iter(stream), column) for stream in streams]
    cursors = [cursor for cursor in cursors if cursor.refill()]
    while cursors:
        bound = min(int(cursor.codes[-1]) for cursor in cursors)
        pieces = [piece for cursor in cursors if (piece := cursor.cut(bound)).num_rows]
        merged = joined(pieces)
        if len(pieces) > 1:
            order = code_order(merged.column(column))
            merged = merged if order is None else merged.take(pa.array(order))
        del pieces
        yield merged
        cursors = [cursor for cursor in cursors if cursor.refill()]


class _Cursor:
    """The unread part of a stream: its block in memory, and the blocks still to come."""

    def __init__(self, blocks: Iterator[pa.RecordBatch], column: str) -> None:
        self._blocks = blocks
        self._column = column
        self._block: pa.RecordBatch = None
        self.codes: Codes = np.zeros(0, np.int64)

    def cut(self, bound: int) -> pa.RecordBatch:
        """Remove and return the rows whose code is at most ``bound``."""
        end = int(np.searchsorted(self.codes, bound, side="right"))
        piece, self._block = self._block.slice(0, end), self._block.slice(end)
        self.codes = self.codes[end:]
        return piece

    def refill(self) -> bool:
        """Take the next block if this one is used up; False at the end of the stream."""
        while not len(self.codes):
            self._block = next(self._blocks, None)
            if self._block is None:
                return False
            self.codes = int64_view(self._block.column(self._column))
        return True


def code_order(column: pa.Array) -> np.ndarray[Any, Any] | None:
    """Row numbers in the order of the codes; None if the rows are already sorted."""
    codes = int64_view(column)
    if bool(np.all(codes[1:] >= codes[:-1])):
        return None
    return np.argsort(codes, kind="stable")


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate batches into one; needs at least one."""
    if len(batches) == 1:
        return batches[0]
    columns = [
        pa.concat_arrays([batch.column(i) for batch in batches])
        for i in range(batches[0].num_columns)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)
