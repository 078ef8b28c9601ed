"""A shape's table on disk, its stream, and the check of an answer."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import semistream as ss
from lab import page_cache
from lab.build_once import DATA, Log, build_once, forget_unreadable
from lab.shapes import lmdb_rows
from lab.shapes.catalogue import SHAPES, Shape, with_seed
from lab.shapes.keys import Numbers
from semistream import workload

FORMAT = 2  # part of the folder's name: increase it when generated rows or pages change
CHUNK = 100_000  # rows generated at a time


@dataclass(frozen=True)
class ShapeData:
    """One shape with about ``rows`` rows: as a master table, and as an LMDB."""

    shape: Shape
    rows: int
    seed: int = 0
    root: Path = DATA

    @classmethod
    def named(cls, name: str, rows: int, seed: int, root: Path = DATA) -> ShapeData:
        return cls(with_seed(SHAPES[name], seed), rows, seed, root)

    @property
    def folder(self) -> Path:
        return self.root / f"shape-{self.shape.name}-{self.rows}-{self.seed}-{FORMAT}"

    @property
    def master(self) -> Path:
        return self.folder / "master"

    @property
    def lmdb(self) -> Path:
        return self.folder / "lmdb"

    @property
    def keys(self) -> int:
        return self.shape.keys_in(self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the table in Arrow memory."""
        return int(self.keys * self.shape.copies * self.shape.row_bytes())

    def prepare(self, log: Log, lmdb: bool = True) -> None:
        """Build what is missing, in a stream of small batches."""
        about = f"{self.shape.label}, {self.rows:,} rows"
        forget_unreadable(self.master, log)
        build_once(self.master, self._build_master, log, f"building the master table: {about}")
        if lmdb:
            build_once(self.lmdb, self._build_lmdb, log, f"building LMDB: {about}")

    def warm(self) -> None:
        """Read all files anew, so that the page cache holds them in large pieces.

        What ran before may have left it small ones, which take longer to copy and to map.
        """
        page_cache.drop(self.folder)
        page_cache.read(self.folder)

    def delete(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def stream(self, count: int, push: int, offset: int = 0) -> list[pa.RecordBatch]:
        """Tuples with Zipf-distributed keys, ranks scattered over the table.

        Besides its key, a tuple has its position and the number that its key was made from.
        """
        numbers = workload.zipf_at(offset, count, self.keys, 1.0, self.seed, scattered=True)
        return [
            self.batch(numbers[start : start + push], offset + start)
            for start in range(0, count, push)
        ]

    def batch(self, numbers: Numbers, first: int = 0) -> pa.RecordBatch:
        """One tuple for each of these numbers, at consecutive positions."""
        positions = pa.array(np.arange(first, first + numbers.size, dtype=np.int64))
        columns = [positions, *self.shape.key.to_arrow(numbers), pa.array(numbers.astype(np.int32))]
        names = ["sale_id", *self.shape.key.names, "number"]
        return pa.RecordBatch.from_arrays(columns, names=names)

    def wrong_rows(self, rows: pa.RecordBatch) -> str | None:
        """The first column whose values are not those of the rows' numbers; None if all are."""
        shape, numbers = self.shape, rows["number"].to_numpy().astype(np.int64)
        for name, values in zip(shape.key.names, shape.key.to_arrow(numbers), strict=True):
            if not rows[name].equals(values):
                return f"{name}: not the key of its tuple"
        copy = rows["category"].to_numpy().astype(np.int64) % shape.copies
        expected = shape.expected(numbers, copy)
        for name, values in zip(shape.payload.schema.names, expected, strict=True):
            if not rows[name].equals(values):
                return f"{name}: not the value of its key"
        return None

    def wrong(self, rows: Iterable[pa.RecordBatch], sent: list[pa.RecordBatch]) -> str | None:
        """The error in the whole answer to ``sent``; None if it is correct.

        Every tuple must be returned once for every row of its key, with all columns of that row.
        """
        numbers = np.concatenate([batch["number"].to_numpy() for batch in sent])
        first, copies = sent[0]["sale_id"][0].as_py(), self.shape.copies
        seen = np.zeros(numbers.size * copies, np.int64)
        for batch in rows:
            sale = batch["sale_id"].to_numpy() - first
            if sale.size and (sale.min() < 0 or sale.max() >= numbers.size):
                return "sale_id: a tuple that was never sent"
            if not np.array_equal(numbers[sale], batch["number"].to_numpy()):
                return "number: another tuple's"
            trouble = self.wrong_rows(batch)
            if trouble is not None:
                return trouble
            copy = batch["category"].to_numpy() % copies
            seen += np.bincount(sale * copies + copy, minlength=seen.size)
        if (seen == 1).all():
            return None
        return f"{int((seen == 0).sum())} rows missing, {int((seen > 1).sum())} rows repeated"

    def _chunks(self) -> Iterator[Numbers]:
        """All numbers in the order of their keys."""
        ordered = self.shape.key.ordered(self.keys)
        for start in range(0, self.keys, CHUNK):
            end = min(start + CHUNK, self.keys)
            if ordered is None:
                yield np.arange(start + 1, end + 1, dtype=np.int64)
            else:
                yield ordered[start:end]

    def _build_master(self, path: Path) -> None:
        shape = self.shape
        reader = pa.RecordBatchReader.from_batches(
            shape.schema, (shape.rows(numbers) for numbers in self._chunks())
        )
        master = ss.MasterTable.build(reader, path, key=shape.key.names, unique=shape.unique)
        for revision in range(1, shape.deltas + 1):
            changed = (
                shape.rows(numbers[shape.revisions(numbers) == revision], revision)
                for numbers in self._chunks()
            )
            master = master.upsert(pa.RecordBatchReader.from_batches(shape.schema, changed))

    def _build_lmdb(self, path: Path) -> None:
        lmdb_rows.build(self.shape, self._chunks(), path, self.nbytes)
