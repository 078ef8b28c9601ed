"""A disk whose sync fails (EIO): once, at every sync."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import naive
import semistream as ss
from semistream.master.pins import pin
from semistream.master.store import LocalStore
from semistream.sinks import Batch, open_sink
from sinks.jobs import make_job

SAYS = os.strerror(errno.EIO)


class Syncs:
    """``fsync``, of which one fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._sync = os.fsync
        self._left: int | None = None
        self.failed = False
        monkeypatch.setattr(os, "fsync", self)

    def __call__(self, descriptor: Any) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left == -1:
                self.failed = True
                raise OSError(errno.EIO, SAYS)
        self._sync(descriptor)

    def each(self) -> Iterator[int]:
        """Fail the first sync, then the second, and so on."""
        for good in range(100):
            self.failed = False
            yield good
            if not self.failed:
                break
        assert good > 1, "there were no syncs to fail"

    @contextlib.contextmanager
    def failing(self, good: int) -> Iterator[None]:
        """In this block, the sync after ``good`` successful ones fails, with an error."""
        self._left = good
        try:
            yield
        except ss.SemistreamError as error:
            if not self.failed or SAYS not in str(error):
                raise
        finally:
            self._left = None


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    return Syncs(monkeypatch)


@pytest.mark.parametrize("output", ["parquet", "delta"])
def test_a_batch_is_stored_once_whichever_sync_fails(
    output: str, tmp_path: Path, syncs: Syncs
) -> None:
    """As in Spark: stage and commit; abort after a failure, and retry."""
    for good in syncs.each():
        folder = tmp_path / str(good)
        batch, staged = Batch("query", 0), []
        rows = [pa.record_batch({"n": range(10)})]
        sink = open_sink(output, path=folder)
        with syncs.failing(good):
            staged = [sink.stage(rows, None, batch, 0)]
            sink.commit(staged, batch)
        if syncs.failed:
            sink.abort(staged, batch)
            sink = open_sink(output, path=folder)
            sink.commit([sink.stage(rows, None, batch, 0)], batch)
        assert read(output, folder) == list(range(10)), good


def read(output: str, folder: Path) -> list[int]:
    if output == "delta":
        from deltalake import DeltaTable

        return sorted(DeltaTable(folder).to_pyarrow_table()["n"].to_pylist())
    import pyarrow.parquet as pq

    return sorted(pq.read_table(folder)["n"].to_pylist())


def test_a_version_is_atomic_whichever_sync_fails(tmp_path: Path, syncs: Syncs) -> None:
    master, more = pa.table({"k": range(50)}), pa.table({"k": range(50, 80)})
    both = naive.rows_of([pa.concat_tables([master, more])])
    for good in syncs.each():
        table = ss.MasterTable.build(master, tmp_path / str(good), key="k")
        with syncs.failing(good):
            table.upsert(more)
        found = ss.MasterTable.open(table.path)
        expected = naive.rows_of([master]) if found.version == 1 else both
        naive.same_rows(naive.rows_of([found.to_table()]), expected)
        naive.same_rows(naive.rows_of([found.upsert(more).to_table()]), both)


def test_a_pin_whose_sync_failed_is_unchanged_on_retry(tmp_path: Path, syncs: Syncs) -> None:
    """Another attempt or a concurrent task may have read it."""
    table = ss.MasterTable.build(pa.table({"k": range(50)}), tmp_path / "t", key="k")
    store = LocalStore(tmp_path / "t")
    for good in syncs.each():
        with syncs.failing(good):
            pin(store, "query", good)
        first = pin(store, "query", good)
        table = table.upsert(pa.table({"k": [good]}))
        assert pin(store, "query", good) == first < table.version


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("accident", ["eio:1", "eio2:1"])
def test_a_query_whose_commit_cannot_be_synced(
    accident: str, tmp_path: Path, two_hosts: Any, sessions: Any
) -> None:
    from pyspark.errors import StreamingQueryException

    job = make_job(tmp_path, "parquet", files=2)
    job.in_session(sessions.faults)
    with pytest.raises(StreamingQueryException, match=SAYS):
        job.start(two_hosts, accident).awaitTermination()
    assert job.happened(accident)
    job.start(two_hosts).awaitTermination()
    job.check()
