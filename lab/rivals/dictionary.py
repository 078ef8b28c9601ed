"""A plain dictionary in the worker: all of R in memory, which is best if it fits."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lab.rivals.contract import Rival
from lab.rivals.data import RivalData
from lab.rivals.lookups import NAMES, joined

_TYPES = (pa.float64(), pa.int32(), pa.int32(), pa.string())


class Dictionary(Rival):
    """``of rows``: key to a tuple of values. ``of positions``: key to a row of an Arrow table."""

    name = "dictionary"
    variants = ("of rows", "of positions")

    @classmethod
    def store(cls, variant: str, data: RivalData) -> Path:
        return data.parquet

    @classmethod
    def build(cls, variant: str, data: RivalData, path: Path) -> None:
        data.write_parquet(path)

    def open(self) -> None:
        self._rows: dict[int, Any] = {}
        kept: list[pa.RecordBatch] = []
        position = 0
        for file in sorted(self.data.parquet.glob("*.parquet")):
            for batch in pq.ParquetFile(file).iter_batches(100_000):
                keys = batch["product_id"].to_pylist()
                if self.variant == "of rows":
                    values = zip(*(batch[name].to_pylist() for name in NAMES), strict=True)
                    self._rows.update(zip(keys, values, strict=True))
                else:
                    self._rows.update(zip(keys, range(position, position + len(keys)), strict=True))
                    kept.append(batch.select(list(NAMES)))
                position += len(keys)
        self._table = pa.Table.from_batches(kept).combine_chunks() if kept else None
        gc.freeze()  # otherwise every garbage collection scans all of R

    def rows(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        keys = batch["product_id"].to_pylist()
        found = list(map(self._rows.__getitem__, keys))
        if self._table is None:
            columns = zip(*found, strict=True)
            yield joined(batch, [pa.array(c, t) for c, t in zip(columns, _TYPES, strict=True)])
        else:
            taken = self._table.take(pa.array(found, pa.int64()))
            yield joined(batch, [column.combine_chunks() for column in taken.columns])

    def close(self) -> None:
        self._rows = {}
        self._table = None
