"""A bursty stream for a long time while the master table changes every few seconds.

A minute by default; ``SEMISTREAM_SOAK_SECONDS=300`` (``make soak``) for the long one.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from spark.streams import Sink, feed, stream_of

SECONDS = float(os.environ.get("SEMISTREAM_SOAK_SECONDS", "60"))
PRODUCTS = 20_000
MEMORY = 48_000_000
BARE = 200_000_000  # Python, Arrow and the compiled loops: what docs/cluster.md says of a worker

SALES = pa.schema([("sale_id", pa.int64()), ("product_id", pa.int64())])


class Catalogue:
    """The master table, changed every few seconds, and the rows of each version."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.random = random.Random(7)
        self.stamps = np.zeros(PRODUCTS, np.int64)
        table = ss.MasterTable.build(
            self._rows(range(PRODUCTS)), path, key="product_id", unique=True, page_bytes="32KiB"
        )
        self.versions = {table.version: self.stamps.copy()}

    def _rows(self, keys: Any) -> pa.Table:
        keys = np.array(sorted(keys), np.int64)
        text = [f"product {key} " + "x" * 60 for key in keys]
        columns = {"product_id": keys, "stamp": self.stamps[keys], "description": text}
        return pa.table(columns)

    def change(self, number: int) -> None:
        keys = self.random.sample(range(PRODUCTS), 1500)
        self.stamps[keys] = number
        table = ss.MasterTable.open(self.path).upsert(self._rows(keys))
        self.versions[table.version] = self.stamps.copy()
        if number % 6 == 0:
            table = table.compact()
            self.versions[table.version] = self.stamps.copy()
            table.vacuum(keep=2)


def note_batch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    batch = int(TaskContext.get().getLocalProperty("streaming.sql.batchId"))
    for rows in batches:
        numbers = pa.array(np.full(rows.num_rows, batch, np.int64))
        yield pa.RecordBatch.from_arrays(
            [*rows.columns, numbers], names=[*rows.schema.names, "batch"]
        )


class Watch(threading.Thread):
    """Monitors the pins and the workers' memory until it is stopped."""

    def __init__(self, table: Path, local: Path) -> None:
        super().__init__(daemon=True)
        self.table = table
        self.local = local
        self.over = threading.Event()
        self.pins: dict[int, int] = {}
        self.memory: list[tuple[float, dict[int, int]]] = []
        self.most_held = 0

    def run(self) -> None:
        while not self.over.wait(0.2):
            self.look()

    def look(self) -> None:
        for pin in (self.table / "pins").glob("*.*"):
            try:
                self.pins[int(pin.name.split(".")[1])] = json.loads(pin.read_text())["version"]
            except (FileNotFoundError, ValueError):
                continue
        anonymous: dict[int, int] = {}
        for folder in self.local.glob("*/semistream/*"):
            if folder.is_dir():
                held = [int((p.read_text().split() or [0])[-1]) for p in folder.glob("*.worker")]
                self.most_held = max(self.most_held, sum(held))
        for worker in self.local.glob("*/semistream/*/*.worker"):
            try:
                status = Path(f"/proc/{worker.stem}/status").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if "RssAnon:" in status:  # a process that is just dying has none
                anonymous[int(worker.stem)] = int(status.split("RssAnon:")[1].split()[0]) * 1024
        self.memory.append((time.monotonic(), anonymous))


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 240)
def test_soak(spark: Any, sessions: Any, tmp_path: Path) -> None:
    from pyspark import cloudpickle
    from pyspark.sql.types import LongType, StructField, StructType

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import the tests
    catalogue = Catalogue(tmp_path / "products")
    stream = stream_of(spark, tmp_path / "in", SALES, files=10).repartition(2)
    enriched = ss.enrich(stream, str(catalogue.path), on="product_id", memory=MEMORY)
    fields = [*enriched.schema.fields, StructField("batch", LongType())]
    noted = enriched.mapInArrow(note_batch, StructType(fields))
    watch = Watch(catalogue.path, Path(sessions.folder) / "local")
    sink = Sink(tmp_path / "out")
    query = sink.start(noted, once=False)
    watch.start()
    keys: list[np.ndarray[Any, Any]] = [np.array([1])]
    feed(tmp_path / "in", pa.table([np.array([0]), keys[0]], schema=SALES))
    query.processAllAvailable()  # the first batch starts workers and compiles
    began, sent, change = time.monotonic(), 1, 0
    burst = random.Random(11)
    next_change = began + 3
    while time.monotonic() - began < SECONDS:
        for _ in range(burst.choice([0, 1, 1, 5])):
            rows = burst.choice([1, 200, 3_000])
            chosen = (np.random.default_rng(sent).zipf(1.2, rows) - 1) % (PRODUCTS + 500)
            feed(tmp_path / "in", pa.table([np.arange(sent, sent + rows), chosen], schema=SALES))
            keys.append(chosen)
            sent += rows
        if time.monotonic() > next_change:
            change += 1
            catalogue.change(change)
            next_change = time.monotonic() + 3
        time.sleep(burst.choice([0.05, 0.3, 1.0]))
    query.processAllAvailable()
    watch.look()
    watch.over.set()
    watch.join()
    assert query.exception() is None
    query.stop()
    check_rows(sink, catalogue, watch, np.concatenate(keys))
    check_memory(watch)
    assert change >= SECONDS / 10


def check_rows(sink: Sink, catalogue: Catalogue, watch: Watch, keys: Any) -> None:
    rows = pq.read_table(sink.rows)
    sale, product = rows["sale_id"].to_numpy(), rows["product_id"].to_numpy()
    assert np.array_equal(np.sort(sale), np.flatnonzero(keys < PRODUCTS)), "lost or repeated rows"
    assert np.array_equal(keys[sale], product)
    batch, stamp = rows["batch"].to_numpy(), rows["stamp"].to_numpy()
    for number in np.unique(batch):
        here = batch == number
        version = watch.pins[int(number)]
        assert np.array_equal(stamp[here], catalogue.versions[version][product[here]]), number
    used = [watch.pins[int(number)] for number in np.unique(batch)]
    assert used == sorted(used)
    assert len(set(used)) > 3


def check_memory(watch: Watch) -> None:
    assert watch.most_held <= MEMORY
    began, ended = watch.memory[0][0], watch.memory[-1][0]
    third = (ended - began) / 3

    def peak(start: float, end: float) -> dict[int, int]:
        most: dict[int, int] = {}
        for when, anonymous in watch.memory:
            if start <= when - began < end:
                for pid, nbytes in anonymous.items():
                    most[pid] = max(most.get(pid, 0), nbytes)
        return most

    middle, last = peak(third, 2 * third), peak(2 * third, ended - began + 1)
    lasting = set(middle) & set(last)
    assert lasting
    for pid in lasting:
        growth = last[pid] - middle[pid]
        print(f"worker {pid}: {middle[pid] >> 20} MiB, then {last[pid] >> 20} MiB")
        assert growth < 10_000_000, f"worker {pid} grew by {growth} bytes after warm-up"
        assert last[pid] < BARE + MEMORY
