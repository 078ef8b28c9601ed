"""External merge sort: sorts more rows than fit in memory.

Rows are collected into runs of bounded size; each run is sorted and spilled; the runs are
merged block by block. Nothing here loops over rows::

    batches -> [ collect | sort | spill ] -> run files -> [ merge ] -> sorted batches
                      \\____ all fits: sort in memory, no files __________/

Merging k runs: of the blocks in memory, all rows up to the smallest last key are complete (no
later block can have a smaller key), so they are cut off all blocks, concatenated, sorted, emitted.

Memory: a run takes 40 % of the budget, concatenating and sorting its columns up to as much again.
A merge holds at most ``memory / 4`` in blocks, and twice that in concatenated pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.keys import KeyCodec
from semistream.master.index import Keys, single
from semistream.master.store import writing

_MAX_RUN = 1 << 30  # half the range of a text column's 32-bit offsets
_MIN_BLOCK, _MAX_BLOCK = 32 << 10, 4 << 20


class ExternalSort:
    """Add batches of one schema, then iterate over :meth:`sorted` once."""

    def __init__(self, schema: pa.Schema, key: Sequence[str], memory: int, folder: Path) -> None:
        self.schema = schema
        self.positions = [schema.get_field_index(name) for name in key]
        self.codec = KeyCodec.for_types([schema.field(i).type for i in self.positions])
        self.folder = folder
        self.run_bytes = min(_MAX_RUN, max(_MIN_BLOCK, memory * 2 // 5))
        self.block_bytes = min(_MAX_BLOCK, max(_MIN_BLOCK, memory // 256))
        self.fan_in = max(4, memory // (4 * self.block_bytes))
        self.rows = 0
        self._gathered: list[pa.RecordBatch] = []
        self._bytes = 0
        self._runs: list[Path] = []
        self._numbered = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch; may sort and spill the rows so far."""
        rows = batch.num_rows
        if rows == 0:
            return
        self.rows += rows
        step = max(1, rows * (self.run_bytes // 4) // max(1, batch.nbytes))
        for start in range(0, rows, step):
            piece = batch.slice(start, step)
            if self._bytes and self._bytes + piece.nbytes > self.run_bytes:
                self._spill()
            self._gathered.append(piece)
            self._bytes += piece.nbytes

    def sorted(self) -> Iterator[pa.RecordBatch]:
        """All rows in key order, in batches of about a block."""
        if not self._runs:
            yield from self._sort_in_memory()
            return
        if self._gathered:
            self._spill()
        while len(self._runs) > self.fan_in:
            group, self._runs = self._runs[: self.fan_in], self._runs[self.fan_in :]
            # Oldest runs first, the result appended: equal keys may be reordered, none is lost.
            self._runs.append(self._write_run(self._merge(group)))
        yield from self._merge(self._runs)

    def _spill(self) -> None:
        self._runs.append(self._write_run(self._sort_in_memory()))
        pa.default_memory_pool().release_unused()

    def _write_run(self, blocks: Iterator[pa.RecordBatch]) -> Path:
        path = self.folder / f"run-{self._numbered}.arrow"
        self._numbered += 1
        with (
            writing(path),
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_file(sink, self.schema) as writer,
        ):
            for block in self._reblocked(blocks):
                writer.write_batch(block)
        return path

    def _reblocked(self, blocks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Merged pieces vary in size; a run file needs blocks of one size."""
        held: list[pa.RecordBatch] = []
        held_bytes = 0
        for block in blocks:
            rows = max(1, block.num_rows * self.block_bytes // max(1, block.nbytes))
            for start in range(0, block.num_rows, rows):
                piece = block.slice(start, rows)
                held.append(piece)
                held_bytes += piece.nbytes
                if held_bytes >= self.block_bytes:
                    yield joined(held)
                    held, held_bytes = [], 0
        if held:
            yield joined(held)

    def _sort_in_memory(self) -> Iterator[pa.RecordBatch]:
        batches, self._gathered = self._gathered, []
        nbytes, self._bytes = self._bytes, 0
        if not batches:
            return
        chunks = [[batch.column(i) for batch in batches] for i in range(len(self.schema))]
        rows = sum(batch.num_rows for batch in batches)
        batches.clear()
        columns = []
        while chunks:  # column by column, so that only one is in memory twice
            columns.append(_concatenated(chunks.pop(0)))
        order = self._order([columns[i] for i in self.positions])
        step = max(1, rows * self.block_bytes // max(1, nbytes))
        for start in range(0, rows, step):
            if order is None:
                block = [column.slice(start, step) for column in columns]
            else:
                places = pa.array(order[start : start + step])
                block = [column.take(places) for column in columns]
            yield pa.RecordBatch.from_arrays(block, schema=self.schema)

    def _order(self, columns: list[pa.Array]) -> np.ndarray[Any, Any] | None:
        """Row numbers in key order; None if the rows are already sorted."""
        if self.codec.exact:
            keys = self.codec.sortable(columns)
            if bool(np.all(keys[1:] >= keys[:-1])):
                return None
            return np.argsort(keys, kind="stable")
        names = [str(i) for i in range(len(columns))]
        table = pa.Table.from_arrays(columns, names=names)
        places = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names])
        return np.asarray(places)

    def _merge(self, paths: list[Path]) -> Iterator[pa.RecordBatch]:
        cursors = [_Cursor(path, self) for path in paths]
        while cursors:
            open_ends = [cursor.keys[-1] for cursor in cursors if cursor.has_more]
            if open_ends:
                bound = min(open_ends)
                pieces = [cursor.cut(bound) for cursor in cursors]
            else:
                pieces = [cursor.rest() for cursor in cursors]
            pieces = [piece for piece in pieces if piece.num_rows]
            merged = joined(pieces)
            if len(pieces) > 1:
                order = self._order([merged.column(i) for i in self.positions])
                merged = merged if order is None else merged.take(pa.array(order))
            del pieces
            yield merged
            cursors = [cursor for cursor in cursors if cursor.refill()]


class _Cursor:
    """The unread part of one run: its block in memory, and the blocks still on disk."""

    def __init__(self, path: Path, sort: ExternalSort) -> None:
        self._path = path
        self._sort = sort
        self._source = pa.OSFile(str(path), "rb")
        self._reader = pa.ipc.open_file(self._source)
        self._blocks = int(self._reader.num_record_batches)
        self._next = 0
        self.block: pa.RecordBatch = None
        self.keys: Keys = np.zeros(0)
        self._load()

    @property
    def has_more(self) -> bool:
        return self._next < self._blocks

    def _load(self) -> None:
        self.block = self._reader.get_batch(self._next)
        self._next += 1
        columns = [self.block.column(i) for i in self._sort.positions]
        self.keys = self._sort.codec.sortable(columns)

    def cut(self, bound: Any) -> pa.RecordBatch:
        """Remove and return the rows whose key is at most ``bound``."""
        end = int(np.searchsorted(self.keys, single(bound, self.keys), side="right")[0])
        piece, self.block = self.block.slice(0, end), self.block.slice(end)
        self.keys = self.keys[end:]
        return piece

    def rest(self) -> pa.RecordBatch:
        piece, self.block = self.block, self.block.slice(0, 0)
        self.keys = self.keys[:0]
        return piece

    def refill(self) -> bool:
        """Load the next block; False at the end of the run, whose file is then removed."""
        if len(self.keys):
            return True
        if self.has_more:
            self._load()
            return True
        self._source.close()
        self._path.unlink()
        return False


def _concatenated(chunks: list[pa.Array]) -> pa.Array:
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate batches into one; needs at least one."""
    if len(batches) == 1:
        return batches[0]
    columns = [
        pa.concat_arrays([batch.column(i) for batch in batches])
        for i in range(batches[0].num_columns)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)
