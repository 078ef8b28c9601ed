"""Polars joins each batch with R, as Parquet files (lazily, streaming) or as a DataFrame.

Polars has no memory limit option; only the kernel's limit applies.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from lab.rivals.contract import Rival
from lab.rivals.data import RivalData


class Polars(Rival):
    name = "Polars"
    packages = ("polars",)
    variants = ("Parquet", "R loaded")

    @classmethod
    def store(cls, variant: str, data: RivalData) -> Path:
        return data.parquet

    @classmethod
    def build(cls, variant: str, data: RivalData, path: Path) -> None:
        data.write_parquet(path)

    def open(self) -> None:
        os.environ["POLARS_MAX_THREADS"] = "1"  # read when Polars is imported
        import polars

        self._polars = polars
        files = str(self.data.parquet / "*.parquet")
        if self.variant == "Parquet":
            self._relation = polars.scan_parquet(files)
        else:
            self._relation = polars.read_parquet(files).lazy()
        self._engine = "streaming" if self.variant == "Parquet" else "in-memory"

    def rows(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        sales = self._polars.from_arrow(pa.Table.from_batches([batch])).lazy()
        both = sales.join(self._relation, on="product_id", how="inner")
        yield from both.collect(engine=self._engine).to_arrow().to_batches()

    def close(self) -> None:
        self._relation = None
