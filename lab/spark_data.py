"""The data of the Spark benchmark: R as a master table and as Parquet, the stream as Parquet.

Kept under .data/ beside the engine benchmark's; the master table is the same one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import semistream as ss
from lab import page_cache
from lab.engine_data import ROW_BYTES, EngineData
from semistream import workload

FILES_PER_BATCH = 2  # one for each core
ADDED = ("price", "supplier_id", "category", "description")
_ROW_GROUP = 250_000
_PAGES = 48  # mapped at once


@dataclass(frozen=True)
class SparkData(EngineData):
    """``batch_rows`` rows in each of ``batches`` micro-batches."""

    batch_rows: int = 1_000_000
    batches: int = 8

    @property
    def parquet(self) -> Path:
        return self.folder / "parquet"

    @property
    def sales(self) -> Path:
        return self.folder / f"sales-{self.batch_rows}-{self.batches}"

    def prepare(self, log: Callable[[str], None]) -> None:
        self._make(self.master, self._build_master, log, "building the master table")
        self._make(self.parquet, self._write_parquet, log, "writing Parquet")
        self._make(self.sales, self._write_sales, log, "writing the stream over")

    def warm(self) -> None:
        """Load all files into the page cache, the way in which they will be read.

        The page cache keeps a file in pages of the size in which it was read, and the workers map
        the master table: so what another benchmark has cached is dropped first.
        """
        page_cache.read(self.parquet)
        page_cache.read(self.sales)
        page_cache.drop(self.master)
        table = ss.MasterTable.open(self.master, mapped=True)
        reader = table.reader(_PAGES)
        for first in range(0, table.num_pages, _PAGES):
            reader.read(first, min(_PAGES, table.num_pages - first))
        reader.close()

    def sent(self, batches: int) -> list[pa.RecordBatch]:
        """The tuples of the first batches, to check an answer."""
        return self.stream(batches * self.batch_rows, self.batch_rows)

    def _write_parquet(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        reader = workload.products(self.rows, ROW_BYTES, self.seed, batch_rows=_ROW_GROUP)
        per_file = max(_ROW_GROUP, -(-self.rows // 8))
        writer, number, written = None, 0, 0
        for batch in reader:
            if writer is None:
                writer = pq.ParquetWriter(folder / f"{number:03d}.parquet", batch.schema)
            writer.write_batch(batch, row_group_size=_ROW_GROUP)
            written += batch.num_rows
            if written >= per_file:
                writer.close()
                writer, number, written = None, number + 1, 0
        if writer is not None:
            writer.close()

    def _write_sales(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        rows = self.batch_rows // FILES_PER_BATCH
        for number in range(self.batches * FILES_PER_BATCH):
            (batch,) = self.stream(rows, rows, offset=number * rows)
            name = f"batch-{number // FILES_PER_BATCH:03d}-{number % FILES_PER_BATCH}.parquet"
            pq.write_table(pa.Table.from_batches([batch]), folder / name)

    def check_parquet(self, folder: Path, batches: int) -> str | None:
        """The error in the rows that a sink wrote; None if they are correct."""
        files = [file for file in folder.rglob("*.parquet") if not file.name.startswith((".", "_"))]
        names = ["sale_id", "product_id", "price"]
        rows = (
            batch
            for file in files
            for batch in pq.ParquetFile(file).iter_batches(1 << 18, columns=names)
        )
        return self.check(rows, self.sent(batches))


def constants() -> pa.RecordBatch:
    """One row with the types and widths of the columns that a look-up adds."""
    row = next(iter(workload.products(1, ROW_BYTES)))
    return pa.RecordBatch.from_arrays(
        [row[name] for name in ADDED],
        names=list(ADDED),
    )
