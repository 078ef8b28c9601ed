"""A disk that is full to the last byte: a clear error, and no row missing or duplicated."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import naive
import semistream as ss
from disks import SmallDisk, small_disk
from semistream.sinks import Batch, open_sink
from sinks.jobs import make_job

SAYS = os.strerror(errno.ENOSPC)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as disk:
        yield disk


@pytest.fixture(params=["parquet", "delta"])
def output(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def rows(first: int) -> list[pa.RecordBatch]:
    """Many incompressible bytes."""
    texts = [os.urandom(500).hex() for _ in range(200)]
    return [pa.record_batch({"n": range(first, first + 200), "text": texts})]


def read(output: str, folder: Path) -> list[int]:
    if output == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(folder).to_pyarrow_table()
    else:
        table = pq.read_table(folder)
    return sorted(table["n"].to_pylist())


@pytest.mark.parametrize("moment", ["stage", "commit"])
def test_a_batch_that_does_not_fit(output: str, moment: str, disk: SmallDisk) -> None:
    """As in Spark: the batch fails, is aborted, and is replayed when there is room."""
    folder = disk.path / "out"
    sink = open_sink(output, path=folder)
    first, second = Batch("query", 0), Batch("query", 1)
    assert sink.commit([sink.stage(rows(0), None, first, 0)], first)
    staged = []
    if moment == "commit":
        staged = [sink.stage(rows(200), None, second, 0)]
    disk.fill()
    with pytest.raises(Exception, match=SAYS):  # delta-rs has its own errors
        sink.commit(staged or [sink.stage(rows(200), None, second, 0)], second)
    sink.abort(staged, second)
    assert read(output, folder) == list(range(200))
    disk.make_room()
    again = open_sink(output, path=folder)
    assert again.commit([again.stage(rows(200), None, second, 0)], second)
    assert read(output, folder) == list(range(400))
    assert len(list(folder.rglob("*.parquet"))) == 2, "files were left behind"


def test_a_version_that_cannot_be_pinned(disk: SmallDisk) -> None:
    from semistream.master.pins import pin
    from semistream.master.store import LocalStore

    ss.MasterTable.build(pa.table({"k": range(100)}), disk.path / "t", key="k")
    store = LocalStore(disk.path / "t")
    assert pin(store, "query", 0) == 1
    ss.MasterTable.open(disk.path / "t").upsert(pa.table({"k": [1]}))
    disk.fill()
    with pytest.raises(ss.MasterTableError, match=SAYS):
        pin(store, "query", 1)
    assert pin(store, "query", 0) == 1, "a pinned version can be read"
    disk.make_room()
    assert pin(store, "query", 1) == 2
    assert sorted(store.list("pins")) == [f"query.{n:020d}" for n in (0, 1)]


def test_a_version_that_cannot_be_written(disk: SmallDisk) -> None:
    master = pa.table({"k": range(100)})
    table = ss.MasterTable.build(master, disk.path / "t", key="k")
    disk.fill()
    with pytest.raises(ss.MasterTableError, match=SAYS):
        table.upsert(pa.table({"k": range(100, 200)}))
    with pytest.raises(ss.MasterTableError, match=SAYS):
        ss.MasterTable.build(master, disk.path / "other", key="k")
    found = ss.MasterTable.open(disk.path / "t")
    naive.same_rows(naive.rows_of([found.to_table()]), naive.rows_of([master]))
    disk.make_room()
    assert found.upsert(pa.table({"k": range(100, 200)})).num_rows == 200


def test_a_lease_that_cannot_be_written(disk: SmallDisk) -> None:
    """A worker that cannot write its lease takes nothing."""
    from semistream.spark.registry import Registry

    class Held:
        def close(self) -> None: ...

    registry = Registry(disk.path)
    disk.fill()
    with (
        pytest.raises(OSError, match=SAYS),
        registry.checkout("budget", 1000, 2, lambda memory: Held()),
    ):
        pass
    assert sum(registry.held().values()) == 0
    disk.make_room()
    with registry.checkout("budget", 1000, 2, lambda memory: Held()) as (_, warm):
        assert not warm
        assert registry.held() == {"budget": 500}
    registry.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("output", "moment"),
    [
        ("parquet", "full:1"),
        ("delta", "fill:1"),
        ("parquet", "pin"),
        pytest.param("delta", "full:1", marks=pytest.mark.long),
        pytest.param("parquet", "fill:1", marks=pytest.mark.long),
    ],
)
def test_a_query_with_a_full_disk(
    output: str, moment: str, disk: SmallDisk, tmp_path: Path, two_hosts: Any, sessions: Any
) -> None:
    """While it stages, while it commits, and while it pins a version of the master table."""
    from pyspark.errors import StreamingQueryException

    (tmp_path / "job").mkdir()
    job = make_job(tmp_path / "job", output, files=2)
    job.in_session(sessions.faults)
    (job.markers / "disk").symlink_to(disk.path)
    job.move("master" if moment == "pin" else "out", disk.path / "here")
    if moment == "pin":
        disk.fill()
    query = job.start(two_hosts, *([] if moment == "pin" else [moment]))
    with pytest.raises(StreamingQueryException, match=SAYS):
        query.awaitTermination()
    if moment != "pin":
        assert job.happened(moment)
        job.check(batches=1)
    disk.make_room()
    job.start(two_hosts).awaitTermination()
    job.check()
