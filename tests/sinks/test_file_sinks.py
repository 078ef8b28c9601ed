"""The file sinks: failing disks, crashes and concurrent drivers."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from semistream.sinks import Batch, Staged, open_sink

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
SCHEMA = pa.schema([("n", pa.int64())])
BATCH = Batch("query-1", 0)


def rows(first: int, count: int = 10) -> list[pa.RecordBatch]:
    return pa.table({"n": range(first, first + count)}, schema=SCHEMA).to_batches()


def stage(sink: Any, batch: Batch = BATCH, parts: int = 3) -> list[Staged]:
    return [sink.stage(rows(10 * i), SCHEMA, batch, i) for i in range(parts)]


def read(output: str, folder: Path) -> list[int]:
    if output == "delta":
        from deltalake import DeltaTable

        return sorted(DeltaTable(folder).to_pyarrow_table()["n"].to_pylist())
    if not any(folder.glob("*.parquet")):
        return []
    return sorted(pq.read_table(folder)["n"].to_pylist())


@pytest.fixture(params=["parquet", "delta"])
def output(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class FullDisk:
    """``os.link`` and ``os.replace`` fail from the n-th committed file on."""

    def __init__(self, patch: pytest.MonkeyPatch, good: int) -> None:
        self.left = good
        for name in ("link", "replace", "rename"):
            patch.setattr(os, name, self._failing(getattr(os, name)))

    def _failing(self, original: Any) -> Any:
        def operation(source: Any, target: Any, **options: Any) -> None:
            if Path(target).name.startswith("part-"):
                if self.left == 0:
                    raise FULL
                self.left -= 1
            original(source, target, **options)

        return operation


def commit_half_way(sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is published, and the disk is full after the first of its files."""
    with monkeypatch.context() as patch:
        FullDisk(patch, 1)
        with pytest.raises((ss.SemistreamError, OSError)):
            sink.commit(stage(sink), BATCH)


@pytest.mark.parametrize("good", [0, 1, 2])
@pytest.mark.parametrize("is_aborted", [True, False])
def test_a_commit_that_fails_after_it_was_published(
    good: int, is_aborted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark aborts a batch with a log entry: its files stay, and the replay completes it."""
    sink = open_sink("parquet", path=tmp_path)
    staged = stage(sink)
    with monkeypatch.context() as patch:
        FullDisk(patch, good)
        with pytest.raises((ss.SemistreamError, OSError), match="No space left"):
            sink.commit(staged, BATCH)
        if is_aborted:
            sink.abort(staged, BATCH)
    assert len(read("parquet", tmp_path)) == 10 * good
    again = open_sink("parquet", path=tmp_path)
    assert again.files() == []
    assert again.commit([again.stage(rows(0, 30), SCHEMA, BATCH, 0)], BATCH) is False
    assert read("parquet", tmp_path) == list(range(30))
    assert len(again.files()) == 3
    assert not any((tmp_path / "_semistream/staging/query-1").iterdir())


def test_the_next_batch_completes_the_previous_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the caller swallowed the error: the staged files must not be swept."""
    sink = open_sink("parquet", path=tmp_path)
    commit_half_way(sink, monkeypatch)
    later = Batch("query-1", 1)
    assert sink.commit([sink.stage(rows(30), SCHEMA, later, 0)], later) is True
    assert read("parquet", tmp_path) == list(range(40))


def test_a_log_that_cannot_be_synced_is_aborted_without_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = open_sink("parquet", path=tmp_path)
    staged = stage(sink)
    log = tmp_path / "_semistream/log/query-1"

    def fsync(descriptor: int, original: Any = os.fsync) -> None:
        if log.exists() and os.path.samestat(os.fstat(descriptor), log.stat()):
            raise OSError(errno.EIO, "the disk does not answer")
        original(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises((ss.SemistreamError, OSError), match="does not answer"):
            sink.commit(staged, BATCH)
        sink.abort(staged, BATCH)
        # No name may appear before the entry is synced: a crash could lose the entry.
        assert read("parquet", tmp_path) == []
    assert sink.commit(stage(sink), BATCH) is False
    assert read("parquet", tmp_path) == list(range(30))


def test_a_file_that_was_deleted_from_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Following the advice in the error stores every row once."""
    sink = open_sink("parquet", path=tmp_path)
    commit_half_way(sink, monkeypatch)
    staging = tmp_path / "_semistream/staging/query-1/0"
    next(staging.glob("00002-*")).unlink()
    with pytest.raises(ss.SemistreamError, match="was deleted from outside") as caught:
        sink.commit(stage(sink), BATCH)
    delete = str(caught.value).split("delete ")[1].split(";")[0].replace(" and then", ",")
    for path in delete.split(", "):
        Path(path).unlink()
    assert sink.commit(stage(sink), BATCH) is True
    assert read("parquet", tmp_path) == list(range(30))


def test_a_disk_that_is_full_while_rows_are_staged(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from semistream.master.files import Files

    class Full:
        def __init__(self, file: BinaryIO) -> None:
            self._file = file

        def write(self, data: Any) -> int:
            raise FULL

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *error: object) -> None:
            self._file.close()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

    sink = open_sink(output, path=tmp_path / "out")
    with monkeypatch.context() as patch:
        original = Files.create
        patch.setattr(Files, "create", lambda self, path: Full(original(self, path)))
        with pytest.raises(
            ss.SemistreamError, match=r"cannot be written: No space left.*free space"
        ):
            stage(sink)
    assert not any(file.is_file() for file in tmp_path.rglob("*"))
    assert sink.commit(stage(sink), BATCH) is True
    assert read(output, tmp_path / "out") == list(range(30))


def test_rows_are_synced_before_the_ledger(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default: names and bytes, and the ledger before the commit returns."""
    events: list[str] = []

    def fsync(descriptor: int, original: Any = os.fsync) -> None:
        events.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        original(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    folder = tmp_path / "out"
    sink = open_sink(output, path=folder)
    staged = stage(sink)
    home = folder if output == "delta" else folder / "_semistream/staging/query-1/0"
    files = {str(home / part.name) for part in staged}
    assert files <= set(events)
    first = len(events)
    assert sink.commit(staged, BATCH)
    ledger = folder / ("_delta_log" if output == "delta" else "_semistream/log/query-1")
    committing = events[first:]
    # The last sync: the first batch creates a Delta table, whose log is synced immediately.
    published = len(committing) - 1 - committing[::-1].index(str(ledger))
    assert committing.index(str(home)) < published
    assert any(Path(path).parent == ledger for path in committing)
    assert str(folder) in committing[published:]


def test_durable_false_does_not_sync(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(descriptor: int) -> None:
        pytest.fail("durable=False does not sync")

    monkeypatch.setattr(os, "fsync", fsync)
    sink = open_sink(output, path=tmp_path / "out", durable=False)
    assert sink.commit(stage(sink), BATCH)
    assert read(output, tmp_path / "out") == list(range(30))


@pytest.mark.parametrize("version", [2, None, "1"])
def test_a_log_of_another_format_is_refused(version: Any, tmp_path: Path) -> None:
    sink = open_sink("parquet", path=tmp_path)
    sink.commit(stage(sink), BATCH)
    entry = tmp_path / "_semistream/log/query-1/00000000.json"
    content = json.loads(entry.read_bytes())
    assert content["format"] == 1
    entry.write_text(json.dumps({**content, "format": version}))
    for number in (0, 1):
        batch = Batch("query-1", number)
        staged = stage(sink, batch)
        with pytest.raises(ss.SemistreamError, match=rf"format version {version!r}"):
            sink.commit(staged, batch)
    entry.write_text("{")
    with pytest.raises(ss.SemistreamError, match="damaged"):
        sink.commit(stage(sink), BATCH)
    assert read("parquet", tmp_path) == list(range(30))


def test_staged_data_of_abandoned_queries_is_removed(output: str, tmp_path: Path) -> None:
    """After a week of inactivity; never files in a log, and never those of a live query."""
    folder = tmp_path / "out"
    sink = open_sink(output, path=folder)
    for name in ("finished", "abandoned", "alive"):
        batch = Batch(name, 0)
        assert sink.commit([sink.stage(rows(0), SCHEMA, batch, 0)], batch)
    gone, slow = Batch("abandoned", 1), Batch("alive", 1)
    old = stage(sink, gone)
    live = stage(sink, slow)
    then = time.time() - 8 * 24 * 3600
    for file in folder.rglob("*"):
        if "alive" not in str(file):
            os.utime(file, (then, then))
    first = Batch("new", 0)
    assert sink.commit([sink.stage(rows(0), SCHEMA, first, 0)], first)
    left = {file.name for file in folder.rglob("*.parquet")}
    assert not {part.name for part in old} & left
    assert {part.name for part in live} <= left
    assert read(output, folder) == sorted(list(range(10)) * 4)
    assert sink.commit(live, slow)
    assert read(output, folder) == sorted(list(range(10)) * 4 + list(range(30)))


def test_committed_data_of_abandoned_queries_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = open_sink("parquet", path=tmp_path)
    commit_half_way(sink, monkeypatch)
    then = time.time() - 30 * 24 * 3600
    for file in tmp_path.rglob("*"):
        os.utime(file, (then, then))
    other = Batch("other", 0)
    assert sink.commit([sink.stage(rows(30), SCHEMA, other, 0)], other)
    assert sink.commit(stage(sink), BATCH) is False
    assert read("parquet", tmp_path) == list(range(40))


def test_a_missing_staged_file_is_not_committed(output: str, tmp_path: Path) -> None:
    sink = open_sink(output, path=tmp_path / "out")
    staged = stage(sink)
    next((tmp_path / "out").rglob(staged[1].name)).unlink()
    with pytest.raises(ss.SemistreamError, match=f"{staged[1].name} is missing"):
        sink.commit(staged, BATCH)
    assert sink.commit(stage(sink), BATCH) is True
    assert read(output, tmp_path / "out") == list(range(30))
