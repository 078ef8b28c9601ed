"""R and the stream of the rivals benchmark: the same for all, with known rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from lab.engine_data import DATA, ROW_BYTES
from lab.spark_data import SparkData
from semistream import workload

_CHUNK = 200_000


@dataclass(frozen=True)
class RivalData(SparkData):
    """R as a master table and Parquet, and any other store that an adapter writes."""

    exponent: float = 1.0

    @property
    def folder(self) -> Path:
        """SEMISTREAM_LAB_DATA; default: beside the other benchmarks' data."""
        here = Path(os.environ.get("SEMISTREAM_LAB_DATA", DATA))
        return here / f"products-{self.rows}-{ROW_BYTES}-{self.seed}"

    def make(
        self, path: Path, build: Callable[[Path], None], log: Callable[[str], None], what: str
    ) -> None:
        """Build a store, if it does not exist or is incomplete."""
        self._make(path, build, log, what)

    def products(self, batch_rows: int = 250_000) -> Iterator[pa.RecordBatch]:
        """R in key order."""
        return iter(workload.products(self.rows, ROW_BYTES, self.seed, batch_rows=batch_rows))

    def write_parquet(self, path: Path) -> None:
        self._write_parquet(path)

    def write_master(self, path: Path) -> None:
        self._build_master(path)

    def write_lmdb(self, path: Path) -> None:
        self._build_lmdb(path)

    def endless(self, size: int, offset: int = 0) -> Iterator[pa.RecordBatch]:
        """The endless stream from a position on, in batches of this size."""
        chunk = size * max(1, _CHUNK // size)
        while True:
            (made,) = self.stream(chunk, chunk, offset, self.exponent)
            for start in range(0, chunk, size):
                yield made.slice(start, size)
            offset += chunk

    def wrong(self, rows: Iterable[pa.RecordBatch], sent: list[pa.RecordBatch]) -> str | None:
        """The error in a join's output, or None: every sale once, every column correct.

        The order of the rows does not matter.
        """
        keys = np.concatenate([batch["product_id"].to_numpy() for batch in sent])
        first = sent[0]["sale_id"][0].as_py()
        seen = np.zeros(keys.size, np.int64)
        for batch in rows:
            sale = batch["sale_id"].to_numpy() - first
            if sale.size and (sale.min() < 0 or sale.max() >= keys.size):
                return "a sale_id that was never sent"
            expected = workload.product_rows(keys[sale], ROW_BYTES, self.seed)
            for name in expected.schema.names:
                if not batch[name].cast(expected[name].type).equals(expected[name]):
                    return f"a {name} that is not that of the sale's product"
            seen += np.bincount(sale, minlength=keys.size)
        if (seen == 1).all():
            return None
        return f"{int((seen == 0).sum())} sales missing, {int((seen > 1).sum())} sales repeated"
