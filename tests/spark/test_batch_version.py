"""Versions that a query needs are kept, however many later ones are vacuumed."""

from __future__ import annotations

import errno
import os
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import naive
import semistream as ss
from semistream.master.files import Files
from semistream.master.manifest import list_versions
from semistream.master.store import LocalStore
from semistream.spark import batch_version
from spark.streams import Sink, feed, master, products, rows_of, sales, stream_of


@pytest.fixture(autouse=True)
def no_holds_of_other_tests() -> Any:
    yield
    batch_version.release_holds()


def move_on(path: Path, versions: int = 2) -> Any:
    """Publish versions with other prices, and vacuum all but the newest."""
    newest = ss.MasterTable.open(path)
    for _ in range(versions):
        newest = newest.upsert(
            pa.table({"product_id": [0], "price": [-1.0], "name": ["x"], "note": ["y"]})
        )
    newest.vacuum(keep=1)
    return newest


def test_a_batch_query_reads_the_version_that_was_newest_when_it_was_built(
    spark: Any, tmp_path: Path
) -> None:
    table, stream = master(tmp_path / "products"), sales(100)
    enriched = ss.enrich(spark.createDataFrame(stream), table, on="product_id", memory="8MB")
    move_on(tmp_path / "products")
    naive.same_rows(rows_of(enriched), naive.join(stream, products(), "product_id"))


def test_a_stream_at_an_explicit_version_keeps_it(spark: Any, tmp_path: Path) -> None:
    master(tmp_path / "products")
    move_on(tmp_path / "products", versions=0)
    first = ss.MasterTable.open(tmp_path / "products", version=1)
    parts = [sales(50), sales(50, 50)]
    sink = Sink(tmp_path / "out")
    stream = stream_of(spark, tmp_path / "in")
    for part in parts:
        feed(tmp_path / "in", part)
        sink.run(ss.enrich(stream, first, on="product_id", memory="8MB"))
        batch_version.release_holds()  # the driver exits; the checkpoint stays
        move_on(tmp_path / "products")
        assert 1 in list_versions(first.store)
    expected = naive.join(pa.concat_tables(parts), products(), "product_id")
    naive.same_rows(sink.read(spark), expected)


def test_foreach_batch_holds_no_version_besides_its_pins(spark: Any, tmp_path: Path) -> None:
    """It calls enrich for every batch: a version for each would never be vacuumed."""
    path = tmp_path / "products"
    master(path)
    seen: list[int] = []

    def each(df: Any, batch: int) -> None:
        seen.append(len(rows_of(ss.enrich(df, str(path), on="product_id", memory="8MB"))))
        move_on(path, versions=1)

    for start in (0, 50, 100, 150):
        feed(tmp_path / "in", sales(50, start))
    stream = stream_of(spark, tmp_path / "in").writeStream.foreachBatch(each)
    stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination()
    assert len(seen) == 4
    assert list_versions(LocalStore(path)) == [3, 4, 5], "those of the last two batches"
    assert len({name.split(".")[0] for name in LocalStore(path).list("pins")}) == 1


def test_a_process_holds_the_two_newest_versions_of_its_batch_queries(tmp_path: Path) -> None:
    path = tmp_path / "products"
    master(path)
    for version in range(1, 5):
        assert batch_version.hold_version(path, version, explicit=False) is not None
        move_on(path, versions=1)
    assert list_versions(LocalStore(path)) == [3, 4, 5]
    held = batch_version.hold_version(path, 3, explicit=True)
    assert held == batch_version.hold_version(path, 3, explicit=True)
    move_on(path)
    assert 3 in list_versions(LocalStore(path))
    batch_version.release_holds()
    assert LocalStore(path).list("pins") == []
    move_on(path)
    assert list_versions(LocalStore(path)) == [9]


def test_a_running_batch_query_refreshes_its_pin(tmp_path: Path) -> None:
    path = tmp_path / "products"
    master(path)
    held = batch_version.hold_version(path, 1, explicit=False)
    assert held is not None
    (file,) = (path / "pins").iterdir()
    os.utime(file, (1, 1))
    batch_version.keep_held(path, held)
    assert file.stat().st_mtime > 1_000_000
    batch_version.release_holds()
    batch_version.keep_held(path, held)  # the driver has exited: there is nothing to refresh
    assert LocalStore(path).list("pins") == []


def test_a_table_that_cannot_be_written_to_is_read_without_a_pin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ReadOnly(Files):
        def create(self, path: Path) -> Any:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    path = tmp_path / "products"
    master(path)
    monkeypatch.setattr(LocalStore, "files", ReadOnly())
    batch = batch_version.MicroBatch("query", 0)
    with pytest.warns(RuntimeWarning, match="not protected from vacuum"):
        assert batch_version.hold_version(path, 1, explicit=False) is None
    with pytest.warns(RuntimeWarning, match="not protected from vacuum"):
        assert batch_version.pinned_version(path, batch, 1) == 1
    with warnings.catch_warnings(), pytest.raises(ss.MasterTableError, match="need to write"):
        warnings.simplefilter("error")
        batch_version.pinned_version(path, batch)


def test_one_batch_may_read_an_explicit_version_and_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "products"
    master(path)
    move_on(path, versions=0)
    ss.MasterTable.open(path).upsert(
        pa.table({"product_id": [0], "price": [-1.0], "name": ["x"], "note": ["y"]})
    )
    batch = batch_version.MicroBatch("query", 7)
    for _ in range(2):  # a replay, too
        assert batch_version.pinned_version(path, batch, version=1) == 1
        assert batch_version.pinned_version(path, batch) == 2
