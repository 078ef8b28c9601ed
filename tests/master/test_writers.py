"""Concurrent writers, dead writers, and what vacuum may remove."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from master.cases import numbers
from semistream.errors import ConfigError, MasterTableError, SchemaError
from semistream.master import MasterTable, changes, store, verify
from semistream.master.manifest import list_versions
from semistream.master.store import LocalStore
from semistream.master.workspace import GRACE, Workspace


@pytest.fixture
def table(tmp_path: Path) -> MasterTable:
    return MasterTable.build(
        numbers(2_000), tmp_path / "t", key="id", unique=True, page_bytes=8_000
    )


def row(key: int, text: str) -> pa.Table:
    return pa.table({"id": [key], "text": [text]})


def segments(table: MasterTable) -> set[str]:
    return {file.name for file in (Path(table.path) / "segments").iterdir()}


def test_a_writer_does_not_read_the_base_again_after_each_change(table: MasterTable) -> None:
    """It has its files open, and knows which pages are checked."""
    table.to_table()
    (base,) = table.manifest.segments
    index = table.store.path(base.index_file)
    index.rename(index.with_suffix(".hidden"))
    changed = table.upsert(row(5, "five")).upsert(row(6, "six")).delete([7])
    index.with_suffix(".hidden").rename(index)
    assert changed.pages.segment.checked[: base.pages].all()
    assert not changed.pinned
    fresh = MasterTable.open(table.path)
    assert fresh.version == changed.version
    assert changed.to_table().equals(fresh.to_table())


def test_files_of_deltas_stay_in_the_page_cache(
    table: MasterTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that follow the table read them next; the pages of a base may be many."""
    dropped: list[int] = []
    monkeypatch.setattr(store, "_drop_from_page_cache", dropped.append)
    changed = table.upsert(row(5, "five"))
    assert len(dropped) == 1, "the manifest"
    changed.compact()
    assert len(dropped) == 1 + 3, "and the pages and the index of a base"


def test_the_second_writer_raises(table: MasterTable) -> None:
    other = MasterTable.open(table.path)
    winner = table.upsert(row(1, "first"))
    before = segments(table)
    for late in (lambda: other.upsert(row(1, "second")), lambda: other.delete([1])):
        with pytest.raises(MasterTableError, match="another writer has published version 2"):
            late()
    assert segments(table) == before
    newest = MasterTable.open(table.path)
    assert newest.version == winner.version == 2
    assert newest.upsert(row(1, "second")).version == 3


def test_writers_that_publish_concurrently(
    table: MasterTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have checked that they are newest and written their segments: the link decides."""
    meeting = threading.Barrier(4)
    publish = changes.publish

    def together(*args: object) -> None:
        meeting.wait(30)
        publish(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(changes, "publish", together)
    outcome: list[MasterTable | MasterTableError] = []

    def write(number: int) -> None:
        try:
            outcome.append(MasterTable.open(table.path).upsert(row(5, f"writer {number}")))
        except MasterTableError as error:
            outcome.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = [result for result in outcome if isinstance(result, MasterTable)]
    lost = [result for result in outcome if isinstance(result, MasterTableError)]
    assert (len(won), len(lost)) == (1, 3)
    assert all("Nothing was changed; open the newest version" in str(error) for error in lost)
    assert verify(table.path) == []
    assert len(segments(table)) == 5, "two segments and a list of changed codes; losers cleaned up"
    assert MasterTable.open(table.path).num_rows == 2_000


def test_a_stale_writer_does_not_reuse_a_vacuumed_number(table: MasterTable) -> None:
    newest = table
    for i in range(4):
        newest = newest.upsert(row(i, "x"))
    newest.vacuum(keep=1)
    assert list_versions(table.store) == [5]
    with pytest.raises(MasterTableError, match="published version 5"):
        table.upsert(row(1, "y"))
    assert table.newest_version() == 5
    assert list_versions(table.store) == [5]


def full_disk(*args: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = MasterTable.build(numbers(2_000), tmp_path / "t", key="id")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full_disk)
        with pytest.raises(MasterTableError, match="cannot be written: No space left"):
            table.upsert(row(1, "a"))
        with pytest.raises(MasterTableError, match="No space left"):
            MasterTable.build(numbers(10), tmp_path / "u", key="id")
    assert not (tmp_path / "u").exists()
    assert table.newest_version() == 1
    assert len(segments(table)) == 2
    assert table.upsert(row(1, "a")).version == 2


def test_errors_of_the_input_are_propagated(tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from numbers(10).to_batches()
        raise ConnectionError("the database went away")

    with pytest.raises(ConnectionError, match="the database went away"):
        MasterTable.build(batches(), tmp_path / "t", key="id")
    assert not (tmp_path / "t").exists()


BUILD = """
import sys, time
sys.path.insert(0, {tests!r})
from master.cases import numbers
from semistream.master import MasterTable

def slowly(stage, done, total):
    if stage == {stage!r}:
        print("there", flush=True)
        time.sleep(60)

MasterTable.build(
    numbers(3000, start=7000), {path!r}, key="id", memory="40KB", page_bytes=4000,
    overwrite=True, progress=slowly,
)
"""


@pytest.mark.parametrize("stage", ["sort", "write"])
@pytest.mark.parametrize("existing", [False, True])
def test_a_killed_build_leaves_no_table_or_the_old_one(
    existing: bool, stage: str, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    if existing:
        MasterTable.build(numbers(100), path, key="id")
    tests = str(Path(__file__).parents[1])
    code = BUILD.format(tests=tests, path=str(path), stage=stage)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        litter = list((path / "work").iterdir())
        assert litter
        if existing:  # files of a live writer are not removed
            MasterTable.open(path).vacuum(keep=1)
            assert list((path / "work").iterdir()) == litter
        os.kill(process.pid, signal.SIGKILL)
    if existing:
        assert MasterTable.open(path).num_rows == 100
        assert verify(path) == []
        MasterTable.open(path).vacuum()
        assert len(list((path / "segments").iterdir())) == 2
    else:
        with pytest.raises(MasterTableError, match="unfinished build"):
            MasterTable.open(path)
        assert MasterTable.build(numbers(100), path, key="id").num_rows == 100
        assert len(list((path / "segments").iterdir())) == 2
    assert list((path / "work").iterdir()) == []


def test_vacuum_keeps_files_in_use(table: MasterTable) -> None:
    second = table.upsert(row(1, "a"))
    third = second.delete([2])
    fourth = third.compact()
    orphan = Path(table.path) / "segments" / "0123456789abcdef.arrow"
    orphan.write_bytes(b"left by a dead writer")
    young = Path(table.path) / "segments" / "fedcba9876543210.arrow"
    young.write_bytes(b"perhaps of a writer on another machine")
    old = orphan.stat().st_mtime - GRACE - 60
    os.utime(orphan, (old, old))
    with Workspace(LocalStore(table.path)) as living:
        busy = Path(table.path) / "segments" / f"{living.token}.arrow"
        busy.write_bytes(b"being written")
        removed = fourth.vacuum(keep=2)
        assert busy.exists()
    assert not orphan.exists()
    assert (removed.versions, removed.files) == (2, 4), "the first delta was folded into the next"
    assert list_versions(table.store) == [3, 4]
    assert third.to_table().equals(fourth.to_table())
    assert verify(table.path, 3) == []
    removed = fourth.vacuum(keep=1)
    assert removed.versions == 1
    assert removed.files == 6, "two segments with indexes, and two lists of changed codes"
    assert young.exists()
    assert removed.bytes > 10_000
    assert table.to_table().num_rows == 2_000, "opened before: its files are still open"
    assert verify(table.path) == []
    with pytest.raises(MasterTableError, match="version 1 of"):
        MasterTable.open(table.path, 1)
    with pytest.raises(ConfigError, match="keep=0"):
        fourth.vacuum(keep=0)


def test_changed_codes_are_unknown_after_a_rebuild_or_vacuum(table: MasterTable) -> None:
    second = table.upsert(row(1, "a"))
    third = second.delete([2, 2, 99_999])
    fourth = third.compact()

    def keys(since: int) -> list[int] | None:
        changed = fourth.changed_codes(since)
        return None if changed is None else [k for codes in changed for k in codes.tolist()]

    assert keys(1) == [1, 2, 99_999]
    assert keys(2) == [2, 99_999]
    assert keys(3) == keys(4) == []
    assert keys(5) is None
    fourth.vacuum(keep=2)
    assert keys(2) == [2, 99_999]
    assert keys(1) is None


def test_invalid_upserts(table: MasterTable) -> None:
    turned = pa.table({"text": ["a"], "id": pa.array([7], pa.int32())})
    assert table.upsert(turned).num_rows == 2_000
    table = MasterTable.open(table.path)
    with pytest.raises(ConfigError, match="id=3 occurs more than once"):
        table.upsert(pa.concat_tables([row(3, "a"), row(3, "b")]))
    with pytest.raises(SchemaError, match=r"missing \['text'\], not in the table \['price'\]"):
        table.upsert(pa.table({"id": [1], "price": [2]}))
    with pytest.raises(SchemaError, match="'text' of type binary cannot be cast to string"):
        table.upsert(pa.table({"id": [1], "text": pa.array([b"\xff"])}))
    assert table.version == 2
    assert len(segments(table)) == 5, "two segments with indexes, and a list of changed codes"


def test_supported_key_types_of_delete(tmp_path: Path) -> None:
    data = pa.table({"a": [1, 1, 2, 3, 4], "b": ["x", "y", "x", "x", "x"], "v": range(5)})
    table = MasterTable.build(data, tmp_path / "t", key=["a", "b"])
    table = table.delete([(1, "y"), (9, "x"), (2, "nope")])
    table = table.delete(pa.table({"b": ["x"], "a": pa.array([3], pa.int8()), "more": [0]}))
    assert sorted(table.to_table()["v"].to_pylist()) == [0, 2, 4]
    table = table.delete([])
    assert (table.version, table.num_rows) == (4, 3)
    for wrong in ([1], [("x", 1)], pa.array([1]), pa.table({"a": [1]})):
        with pytest.raises(SchemaError):
            table.delete(wrong)
    single = MasterTable.build(data, tmp_path / "s", key="a")
    assert single.delete(pa.array([1, None])).num_rows == 3
    assert MasterTable.open(tmp_path / "s").delete(iter([2, 3])).num_rows == 1


def test_the_newest_version_of_a_table_in_another_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder may be moved, or another one may take its place."""
    monkeypatch.chdir(tmp_path)
    table = MasterTable.build(numbers(10), "t", key="id")
    assert table.newest_version() == 1
    shutil.move("t", "moved")
    MasterTable.open("moved").upsert(row(1, "a"))
    other = MasterTable.build(numbers(10), "t", key="id")
    for i in range(3):
        other = other.upsert(row(i, "x"))
    assert table.newest_version() == 4
    shutil.rmtree("moved")
    assert table.newest_version() == 4


def test_the_folder_of_a_table_that_nobody_uses_is_closed(table: MasterTable) -> None:
    def opened() -> int:
        gc.collect()
        return len(os.listdir("/dev/fd"))

    before = opened()
    for _ in range(3):
        assert MasterTable.open(table.path).newest_version() == 1
    assert opened() == before


def test_newest_version_is_cheap(table: MasterTable) -> None:
    newest = table
    for i in range(3):
        newest = newest.upsert(row(i, "x"))
    assert (table.newest_version(), newest.newest_version()) == (4, 4)
    start = time.perf_counter()
    for _ in range(200):
        newest.newest_version()
    assert (time.perf_counter() - start) / 200 < 0.001
