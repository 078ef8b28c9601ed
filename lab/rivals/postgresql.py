"""PostgreSQL (``pgserver``): the distinct keys of a batch by ``= ANY(...)``, rows back as Arrow.

The cell starts and stops the server, which listens on a unix socket. The budget is its
``shared_buffers``. Its reads also use the kernel's page cache.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lab.rivals.contract import Rival
from lab.rivals.data import RivalData
from lab.rivals.lookups import put_to_sales

_SQL = (
    "SELECT product_id, price, supplier_id, category, description "
    "FROM products WHERE product_id = ANY($1)"
)
_LEAST_BUFFERS = 1 << 20


class PostgreSql(Rival):
    name = "PostgreSQL"
    packages = ("pgserver", "adbc_driver_postgresql")
    variants = ("= ANY in batches",)

    @classmethod
    def store(cls, variant: str, data: RivalData) -> Path:
        return data.folder / "postgresql"

    @classmethod
    def build(cls, variant: str, data: RivalData, path: Path) -> None:
        import adbc_driver_postgresql.dbapi as driver

        path.mkdir(parents=True)
        server = _start(path)
        try:
            with driver.connect(server.get_uri()) as connection, connection.cursor() as cursor:
                for batch in data.products(1_000_000):
                    cursor.adbc_ingest("products", batch, mode="create_append")
                cursor.execute("ALTER TABLE products ADD PRIMARY KEY (product_id)")
                connection.commit()
            with driver.connect(server.get_uri(), autocommit=True) as connection:
                connection.cursor().execute("VACUUM ANALYZE products")
        finally:
            server.cleanup()

    def open(self) -> None:
        import adbc_driver_postgresql.dbapi as driver

        path = self.store(self.variant, self.data)
        buffers = max(_LEAST_BUFFERS, self.grant.budget) // 1024
        settings = path / "postgresql.auto.conf"
        settings.write_text(f"shared_buffers = '{buffers}kB'\nautovacuum = off\njit = off\n")
        self._server = _start(path)
        self._connection = driver.connect(self._server.get_uri())
        self._cursor = self._connection.cursor()

    def rows(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        wanted = pa.array([np.unique(batch["product_id"].to_numpy())], pa.list_(pa.int64()))
        self._cursor.execute(_SQL, pa.record_batch([wanted], names=["keys"]))
        yield put_to_sales(batch, self._cursor.fetch_arrow_table())

    def processes(self) -> list[int]:
        return [self._server.get_pid()]

    def close(self) -> None:
        self._cursor.close()
        self._connection.close()
        self._server.cleanup()


def _start(path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pgserver

        return pgserver.get_server(path)
