"""Schedules of two drivers of one query, and what must hold in each.

A driver stages a batch, commits it, and goes on to the next; if that fails, it aborts and ends, as
Spark's does. The other driver is its successor, or the one that it takes over from and that was
only paused. Both write the same rows under the same number, cut into files in their own way.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from reliability.scheduler import Killed, Scheduler, Task, seeded_names
from semistream.errors import SemistreamError
from semistream.sinks import Batch
from semistream.sinks.disk import make_folders, writing

BATCHES = 3
ROWS = 4
SCHEMA = pa.schema([("batch", pa.int64()), ("n", pa.int64())])
Rows = list[tuple[int, int]]
Read = Callable[[Any], Rows]


def rows_of(batches: int) -> Rows:
    return [(batch, n) for batch in range(batches) for n in range(ROWS)]


class Drivers:
    """All drivers of a query; ``committed`` is the query's checkpoint."""

    def __init__(self, open_sink: Callable[[], Any], read: Read) -> None:
        self._open = open_sink
        self._read = read
        self.committed = 0
        self.errors = 0

    def driver(self, first: int, cut: int) -> Task:
        def run() -> None:
            sink = self._open()
            for number in range(first, BATCHES):
                try:
                    self.write(sink, number, cut)
                except SemistreamError:
                    self.errors += 1
                    return
                self.committed = max(self.committed, number + 1)

        return run

    def write(self, sink: Any, number: int, cut: int) -> None:
        batch = Batch("query", number)
        rows = pa.record_batch([[number] * ROWS, list(range(ROWS))], schema=SCHEMA)
        staged = []
        try:
            for partition, part in enumerate((rows.slice(0, cut), rows.slice(cut))):
                staged.append(sink.stage([part], SCHEMA, batch, partition))
            sink.commit(staged, batch)
        except SemistreamError:
            sink.abort(staged, batch)
            raise

    def reader(self) -> Task:
        def run() -> None:
            committed = self.committed
            rows = self._read(self._open())
            assert any(rows == rows_of(n) for n in range(committed, BATCHES + 1)), rows

        return run

    def finish(self) -> None:
        """The driver that is started when all others are gone."""
        assert self._read(self._open())[: self.committed * ROWS] == rows_of(self.committed)
        self.driver(self.committed, 2)()
        assert self.committed == BATCHES
        assert self._read(self._open()) == rows_of(BATCHES)


def run_schedule(scheduler: Scheduler, drivers: Drivers, seed: int) -> None:
    chance = random.Random(seed)
    tasks = [drivers.driver(0, 1), drivers.driver(0, 3), drivers.reader()]
    tasks = tasks[: chance.choice([2, 3])]
    kill = [0] if chance.random() < 0.4 else []
    with seeded_names(chance):
        for number, outcome in enumerate(scheduler.run(tasks, seed, kill)):
            if isinstance(outcome, BaseException) and not (
                isinstance(outcome, Killed) and number in kill
            ):
                raise outcome
        drivers.finish()


def write_light(rows: Any, schema: Any, path: Path, compression: str, disk: Any) -> tuple[int, int]:
    """Replaces write_parquet: the same steps on disk, a fraction of the time."""
    table = pa.Table.from_batches(rows, schema=schema)
    lines = "".join(f"{b} {n}\n" for b, n in zip(*table.to_pydict().values(), strict=True)).encode()
    with writing(path):
        make_folders(disk, path.parent)
        with disk.create(path) as file:
            file.write(lines)
            disk.sync(file)
    return table.num_rows, len(lines)


def read_light(sink: Any) -> Rows:
    found = []
    for file in sink.files():
        for line in file.read_text().splitlines():
            batch, n = map(int, line.split())
            found.append((batch, n))
    return sorted(found)


def read_delta(sink: Any) -> Rows:
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(str(sink.path)):
        return []
    columns = DeltaTable(sink.path).to_pyarrow_table().to_pydict()
    return sorted(zip(columns["batch"], columns["n"], strict=True))
