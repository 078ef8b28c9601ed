"""External merge sort: sorts more rows than fit in memory, by a column of 64-bit codes.

Rows are collected into runs of bounded size; each run is sorted and spilled; the runs are
merged block by block (:mod:`semistream.master.merge`)::

    batches -> [ collect | sort | spill ] -> run files -> [ merge ] -> sorted batches
                      \\____ all fits: sort in memory, no files __________/

Memory: a run takes 40 % of the budget, concatenating and sorting its columns up to as much again.
A merge holds at most ``memory / 4`` in blocks, and twice that in concatenated pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from semistream.master.merge import code_order, joined, merge_by_code
from semistream.master.store import writing

_MAX_RUN = 1 << 30  # half the range of a text column's 32-bit offsets
_MIN_BLOCK, _MAX_BLOCK = 32 << 10, 4 << 20


class ExternalSort:
    """Add batches of one schema, then iterate over :meth:`sorted` once."""

    def __init__(self, schema: pa.Schema, codes: str, memory: int, folder: Path) -> None:
        self.schema = schema
        self._column = codes
        self._place = schema.get_field_index(codes)
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
        """All rows in code order, in batches of about a block."""
        if not self._runs:
            yield from self._sort_in_memory()
            return
        if self._gathered:
            self._spill()
        while len(self._runs) > self.fan_in:
            group, self._runs = self._runs[: self.fan_in], self._runs[self.fan_in :]
            # Oldest runs first, the result appended: equal codes may be reordered, none is lost.
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
        order = code_order(columns[self._place])
        step = max(1, rows * self.block_bytes // max(1, nbytes))
        for start in range(0, rows, step):
            if order is None:
                block = [column.slice(start, step) for column in columns]
            else:
                places = pa.array(order[start : start + step])
                block = [column.take(places) for column in columns]
            yield pa.RecordBatch.from_arrays(block, schema=self.schema)

    def _merge(self, paths: list[Path]) -> Iterator[pa.RecordBatch]:
        return merge_by_code([_blocks_of(path) for path in paths], self._column)


def _blocks_of(path: Path) -> Iterator[pa.RecordBatch]:
    """The blocks of a run, whose file is then removed."""
    with pa.OSFile(str(path), "rb") as source:
        reader = pa.ipc.open_file(source)
        for block in range(reader.num_record_batches):
            yield reader.get_batch(block)
    path.unlink()


def _concatenated(chunks: list[pa.Array]) -> pa.Array:
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
