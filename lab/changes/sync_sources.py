"""Sources of truth with the rows of R, and a change of some of them: Delta, PostgreSQL, Kafka."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import semistream as ss
from lab.changes.rows import changed_rows
from semistream import workload

ROW_BYTES = 113


class Delta:
    """With the change data feed; ``feed=False`` compares files."""

    has_all_rows = True

    def __init__(self, folder: Path, rows: int, feed: bool) -> None:
        from deltalake import write_deltalake

        self._path = folder / ("delta-feed" if feed else "delta-files")
        reader = workload.products(rows, ROW_BYTES)
        settings = {"delta.enableChangeDataFeed": "true"} if feed else {}
        batches = pa.RecordBatchReader.from_batches(reader.schema, iter(reader))
        write_deltalake(self._path, batches, configuration=settings, target_file_size=32 << 20)

    def source(self) -> Any:
        return ss.DeltaSource(self._path)

    def describe(self) -> dict[str, Any]:
        return {"kind": "delta", "path": str(self._path)}

    def change(self, table: ss.MasterTable, keys: np.ndarray) -> None:
        from deltalake import DeltaTable

        merge = DeltaTable(self._path).merge(
            changed_rows(table, keys), "t.product_id = s.product_id", "s", "t"
        )
        merge.when_matched_update_all().execute()

    def close(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)


class Postgres:
    """A table with a version column and an index on it."""

    has_all_rows = True

    def __init__(self, folder: Path, rows: int) -> None:
        import adbc_driver_postgresql.dbapi as driver
        import pgserver

        self._folder = Path(tempfile.mkdtemp(prefix="pg-"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._server = pgserver.get_server(self._folder)
        self._driver = driver
        self.uri: str = self._server.get_uri()
        reader = workload.products(rows, ROW_BYTES)
        with driver.connect(self.uri) as connection, connection.cursor() as cursor:
            mode = "create"
            for batch in reader:
                cursor.adbc_ingest("products", pa.Table.from_batches([batch]), mode=mode)
                mode = "append"
            cursor.execute("alter table products add column version bigint not null default 1")
            # All rows of the newest version are read again: let it be one row.
            cursor.execute("update products set version = 2 where product_id = 1")
            cursor.execute("create unique index on products (product_id)")
            cursor.execute("create index on products (version)")
            connection.commit()
        self._version = 2

    def source(self) -> Any:
        return ss.SqlSource(self.uri, "products", version="version")

    def describe(self) -> dict[str, Any]:
        return {"kind": "postgresql", "uri": self.uri}

    def change(self, table: ss.MasterTable, keys: np.ndarray) -> None:
        self._version += 1
        with self._driver.connect(self.uri) as connection, connection.cursor() as cursor:
            changes = changed_rows(table, keys).select(["product_id", "price"])
            cursor.adbc_ingest("changes", changes, mode="replace")
            cursor.execute(
                f"update products p set price = c.price, version = {self._version} "
                "from changes c where c.product_id = p.product_id"
            )
            cursor.execute("delete from products where product_id = 7")
            connection.commit()

    def close(self) -> None:
        self._server.cleanup()
        shutil.rmtree(self._folder, ignore_errors=True)


class Kafka:
    """A topic that has the changes only. ``servers``: a broker that runs already."""

    has_all_rows = False

    def __init__(self, servers: str) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        self._servers = servers
        self._topic = f"changes-{np.random.default_rng().integers(1 << 40)}"
        admin = AdminClient({"bootstrap.servers": servers})
        for done in admin.create_topics([NewTopic(self._topic, 4, 1)]).values():
            done.result(60)

    def source(self) -> Any:
        return ss.KafkaSource(self._servers, self._topic)

    def describe(self) -> dict[str, Any]:
        return {"kind": "kafka", "servers": self._servers, "topic": self._topic}

    def change(self, table: ss.MasterTable, keys: np.ndarray) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._servers, "linger.ms": 50})
        for row in changed_rows(table, keys).to_pylist():
            value = json.dumps(row).encode()
            producer.produce(self._topic, key=str(row["product_id"]).encode(), value=value)
            producer.poll(0)
        if producer.flush(120):
            raise RuntimeError("the broker did not take all messages")

    def close(self) -> None:
        """The topic stays; the broker is not ours."""


def source_from(described: dict[str, Any]) -> Any:
    """The source that another process has described."""
    if described["kind"] == "delta":
        return ss.DeltaSource(described["path"])
    if described["kind"] == "postgresql":
        return ss.SqlSource(described["uri"], "products", version="version")
    return ss.KafkaSource(described["servers"], described["topic"])


@contextlib.contextmanager
def closing(world: Any) -> Iterator[Any]:
    try:
        yield world
    finally:
        world.close()
