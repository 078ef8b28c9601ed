"""The data of the engine benchmark: generated once, cached under .data/, used by every run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

import semistream as ss
from lab import lru_lmdb, page_cache
from lab.build_once import DATA, build_once, forget_unreadable, marker
from semistream import workload

ROW_BYTES = 113


@dataclass(frozen=True)
class EngineData:
    """Paths of R as a master table and as an LMDB, and its content."""

    rows: int
    seed: int = 0
    root: Path = field(default=DATA, kw_only=True)

    @property
    def folder(self) -> Path:
        return self.root / f"products-{self.rows}-{ROW_BYTES}-{self.seed}"

    @property
    def master(self) -> Path:
        return self.folder / "master"

    @property
    def pages_file(self) -> Path:
        """The largest file of R, which contains its pages; used to measure the disk's rate."""
        files = (path for path in self.master.rglob("*") if path.is_file())
        return max(files, key=lambda path: path.stat().st_size)

    @property
    def lmdb(self) -> Path:
        return self.folder / "lmdb"

    @property
    def nbytes(self) -> int:
        """Bytes of R in Arrow memory; budgets are a percentage of it."""
        return self.rows * ROW_BYTES

    def prepare(self, log: Callable[[str], None], lmdb: bool = True) -> None:
        """Build what is missing. Incomplete data and data of an older format is built again."""
        forget_unreadable(self.master, log)
        self._make(self.master, self._build_master, log, "building the master table")
        if lmdb:
            self._make(self.lmdb, self._build_lmdb, log, "building LMDB")

    @property
    def is_prepared(self) -> bool:
        """Whether both the master table and the LMDB are complete."""
        return marker(self.master).exists() and marker(self.lmdb).exists()

    def warm(self) -> None:
        """Read all files once, so that the page cache holds them."""
        page_cache.read(self.folder)

    def stream(
        self,
        n: int,
        batch_rows: int,
        offset: int = 0,
        exponent: float = 1.0,
        scattered: bool = True,
    ) -> list[pa.RecordBatch]:
        """Sales over all products, ranks scattered over the keys or in their order."""
        batches = workload.sales(
            n,
            self.rows,
            exponent,
            self.seed,
            scattered=scattered,
            batch_rows=batch_rows,
            offset=offset,
        )
        return list(batches)

    def check(self, rows: Iterator[pa.RecordBatch], sent: list[pa.RecordBatch]) -> str | None:
        """The error in a join's output; None if it is correct.

        Every sale must be returned exactly once, with its own product and that product's price.
        """
        keys = np.concatenate([batch["product_id"].to_numpy() for batch in sent])
        first = sent[0]["sale_id"][0].as_py()
        seen = np.zeros(keys.size, np.int64)
        for batch in rows:
            sale = batch["sale_id"].to_numpy() - first
            product = batch["product_id"].to_numpy()
            if sale.size and (sale.min() < 0 or sale.max() >= keys.size):
                return "a sale_id that was never sent"
            if not np.array_equal(keys[sale], product):
                return "a sale with another sale's product"
            if not np.array_equal(batch["price"].to_numpy(), workload.price_of(product, self.seed)):
                return "a price that is not the product's"
            seen += np.bincount(sale, minlength=keys.size)
        if (seen == 1).all():
            return None
        return f"{int((seen == 0).sum())} sales missing, {int((seen > 1).sum())} sales repeated"

    def _make(
        self, path: Path, build: Callable[[Path], None], log: Callable[[str], None], what: str
    ) -> None:
        build_once(path, build, log, f"{what} of {self.rows:,} rows")

    def _build_master(self, path: Path) -> None:
        reader = workload.products(self.rows, ROW_BYTES, self.seed)
        ss.MasterTable.build(reader, path, key="product_id", unique=True)

    def _build_lmdb(self, path: Path) -> None:
        batches = workload.products(self.rows, ROW_BYTES, self.seed, batch_rows=250_000)
        lru_lmdb.build(iter(batches), path, self.nbytes)
