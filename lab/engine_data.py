"""The data of the engine benchmark: generated once, cached under .data/, used by every run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import semistream as ss
from lab import lru_lmdb
from semistream import workload
from semistream.errors import SemistreamError

ROW_BYTES = 113
DATA = Path(__file__).resolve().parent.parent / ".data"


@dataclass(frozen=True)
class EngineData:
    """Paths of R as a master table and as an LMDB, and its content."""

    rows: int
    seed: int = 0

    @property
    def folder(self) -> Path:
        return DATA / f"products-{self.rows}-{ROW_BYTES}-{self.seed}"

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
        if self._done(self.master).exists():
            try:
                ss.MasterTable.open(self.master)
            except SemistreamError as error:
                log(f"the cached master table cannot be used: {error}")
                self._done(self.master).unlink()
        self._make(self.master, self._build_master, log, "building the master table")
        if lmdb:
            self._make(self.lmdb, self._build_lmdb, log, "building LMDB")

    def warm(self) -> None:
        """Read all files once, so that the page cache holds them."""
        for path in sorted(self.folder.rglob("*")):
            if path.is_file():
                with path.open("rb", buffering=0) as file:
                    while file.read(1 << 24):
                        pass

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
        done = self._done(path)
        if done.exists():
            return
        log(f"{what} of {self.rows:,} rows in {path}")
        shutil.rmtree(path, ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        build(path)
        done.touch()

    @staticmethod
    def _done(path: Path) -> Path:
        return path.with_name(path.name + ".done")

    def _build_master(self, path: Path) -> None:
        reader = workload.products(self.rows, ROW_BYTES, self.seed)
        ss.MasterTable.build(reader, path, key="product_id", unique=True)

    def _build_lmdb(self, path: Path) -> None:
        batches = workload.products(self.rows, ROW_BYTES, self.seed, batch_rows=250_000)
        lru_lmdb.build(iter(batches), path, self.nbytes)
