"""DuckDB joins each batch with R, as Parquet files or loaded into a database file.

Its ``memory_limit`` is the budget plus the room for a batch, which DuckDB counts, too; the rest is
spilled to a temporary folder.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from lab.rivals.contract import Rival
from lab.rivals.data import RivalData

_ENGINE_ROOM = 64 << 20  # of the process's room: below this DuckDB cannot run any join


class DuckDb(Rival):
    name = "DuckDB"
    packages = ("duckdb",)
    variants = ("Parquet", "R loaded")

    @classmethod
    def store(cls, variant: str, data: RivalData) -> Path:
        return data.parquet if variant == "Parquet" else data.folder / "duckdb"

    @classmethod
    def build(cls, variant: str, data: RivalData, path: Path) -> None:
        import duckdb

        if variant == "Parquet":
            data.write_parquet(path)
            return
        path.mkdir(parents=True)
        with duckdb.connect(str(path / "products.duckdb"), config={"threads": 1}) as connection:
            connection.register("reader", pa.RecordBatchReader.from_batches(*_source(data)))
            connection.execute("CREATE TABLE products AS SELECT * FROM reader")

    def open(self) -> None:
        import duckdb

        self._spill = tempfile.TemporaryDirectory(prefix="semistream-duckdb-")
        limit = self.grant.budget + self.grant.batch_room + _ENGINE_ROOM
        settings = {
            "threads": "1",
            "memory_limit": f"{limit}B",
            "temp_directory": self._spill.name,
            "preserve_insertion_order": "false",
        }
        store = self.store(self.variant, self.data)
        if self.variant == "Parquet":
            self._connection = duckdb.connect(config=settings)
            relation = f"read_parquet('{_quoted(store)}/*.parquet')"
        else:
            database = str(store / "products.duckdb")
            self._connection = duckdb.connect(database, read_only=True, config=settings)
            relation = "products"
        self._sql = (
            "SELECT batch.*, price, supplier_id, category, description "
            f"FROM batch JOIN {relation} AS r USING (product_id)"
        )

    def rows(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        self._connection.register("batch", pa.Table.from_batches([batch]))
        yield from self._connection.execute(self._sql).to_arrow_reader(100_000)
        self._connection.unregister("batch")

    def close(self) -> None:
        self._connection.close()
        self._spill.cleanup()


def _source(data: RivalData) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    batches = data.products()
    first = next(batches)

    def all_of_them() -> Iterable[pa.RecordBatch]:
        yield first
        yield from batches

    return first.schema, all_of_them()


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
