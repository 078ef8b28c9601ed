"""Pins: a (query, batch) always reads one version of the table, in every process."""

from __future__ import annotations

import errno
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import semistream as ss
from semistream.master.files import Files
from semistream.master.pins import EXPIRES_AFTER, IDLE_AFTER, pin, pinned_versions, unpin
from semistream.master.store import LocalStore


def table(path: Path) -> Any:
    data = pa.table({"k": [1, 2, 3], "v": [1, 2, 3]})
    return ss.MasterTable.build(data, path, key="k", unique=True)


def change(path: Path) -> Any:
    return ss.MasterTable.open(path).upsert(pa.table({"k": [2], "v": [7]}))


def test_the_first_pin_decides_for_all(tmp_path: Path) -> None:
    store = table(tmp_path / "t").store
    assert pin(store, "query", 0) == 1
    change(tmp_path / "t")
    assert pin(store, "query", 0) == 1
    assert pin(store, "query", 1) == 2
    assert pin(store, "other", 0) == 2


def test_concurrent_pins_agree(tmp_path: Path) -> None:
    store = table(tmp_path / "t").store
    with ThreadPoolExecutor(8) as pool:
        for batch in range(5):
            change(tmp_path / "t")
            asked = [pool.submit(pin, LocalStore(tmp_path / "t"), "q", batch) for _ in range(8)]
            assert len({answer.result() for answer in asked}) == 1
    assert all(name.startswith("q.") for name in store.list("pins"))


class CountingFiles(Files):
    def __init__(self) -> None:
        self.syncs: list[str] = []

    def sync(self, file: Any) -> None:
        self.syncs.append("file")
        super().sync(file)

    def sync_folder(self, folder: Path) -> None:
        self.syncs.append(folder.name)
        super().sync_folder(folder)


def test_a_pin_of_the_same_version_as_before_needs_one_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    store = table(path).store
    pin(store, "query", 0)
    files = CountingFiles()
    monkeypatch.setattr(LocalStore, "files", files)
    for batch in range(1, 4):
        pin(store, "query", batch)
    assert files.syncs == 3 * ["pins"]
    monkeypatch.undo()
    change(path)
    monkeypatch.setattr(LocalStore, "files", files)
    assert pin(store, "query", 4) == 2
    assert files.syncs[3:] == ["file", "pins"]
    assert [pin(store, "query", batch) for batch in range(5)] == [1, 1, 1, 1, 2]


def test_a_pin_that_cannot_be_linked_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = table(tmp_path / "t").store
    pin(store, "query", 0)

    def refuse(files: Any, path: Path) -> None:
        raise PermissionError(errno.EPERM, "not the owner")

    monkeypatch.setattr(Files, "touch", refuse)
    assert pin(store, "query", 1) == 1
    assert len({(tmp_path / "t/pins" / name).stat().st_ino for name in store.list("pins")}) == 2


def test_the_pins_of_a_query_that_stays_at_a_version_do_not_expire(tmp_path: Path) -> None:
    path = tmp_path / "t"
    store = table(path).store
    pin(store, "query", 0)
    newest = change(path)
    for batch in range(1, 4):
        ages(path, IDLE_AFTER - 60)
        assert pin(store, "query", batch, version=1) == 1
        newest.vacuum(keep=1)
    assert len(store.list("pins")) == 4, "no mark"


def test_old_pins_of_a_query_are_removed_and_those_of_others_stay(tmp_path: Path) -> None:
    store = table(tmp_path / "t").store
    pin(store, "other", 0)
    for batch in range(12):
        pin(store, "query", batch, keep=4)
    assert store.list("pins") == ["other." + "0" * 20] + [
        f"query.{batch:020d}" for batch in range(7, 12)
    ]


def test_pinning_does_not_recreate_a_deleted_table(tmp_path: Path) -> None:
    with pytest.raises(ss.MasterTableError, match="no master table"):
        pin(LocalStore(tmp_path / "gone"), "query", 0)
    assert not (tmp_path / "gone").exists()


def test_invalid_pins_are_refused(tmp_path: Path) -> None:
    store = table(tmp_path / "t").store
    with pytest.raises(ss.ConfigError, match="query="):
        pin(store, "../query", 0)
    (tmp_path / "t/pins").mkdir()
    (tmp_path / "t/pins" / ("query." + "0" * 20)).write_text("what?")
    with pytest.raises(ss.MasterTableError, match="does not contain a version"):
        pin(store, "query", 0)


def test_vacuum_keeps_versions_that_a_replay_may_read(tmp_path: Path) -> None:
    path = tmp_path / "t"
    store = table(path).store
    for batch in range(6):
        assert pin(store, "query", batch) == batch + 1
        newest = change(path)
    assert newest.version == 7
    assert pinned_versions(store) == {5, 6}
    newest.vacuum(keep=1)
    assert pin(store, "query", 5) == 6
    assert ss.MasterTable.open(path, 5).num_rows == ss.MasterTable.open(path, 6).num_rows == 3
    with pytest.raises(ss.MasterTableError, match="does not exist"):
        ss.MasterTable.open(path, 4)


def ages(path: Path, seconds: float) -> None:
    """Simulate a clock jump, or time that passed."""
    for file in (path / "pins").iterdir():
        then = file.stat().st_mtime - seconds
        os.utime(file, (then, then))


def test_pins_of_an_idle_query_expire(tmp_path: Path) -> None:
    path = tmp_path / "t"
    store = table(path).store
    pin(store, "query", 0)
    newest = change(path)
    ages(path, IDLE_AFTER + 60)
    newest.vacuum(keep=1)
    assert ss.MasterTable.open(path, 1).num_rows == 3, "only marked"
    ages(path, EXPIRES_AFTER + 60)
    newest.vacuum(keep=1)
    assert store.list("pins") == []
    with pytest.raises(ss.MasterTableError):
        ss.MasterTable.open(path, 1)


def test_a_clock_jump_does_not_expire_pins_of_an_active_query(tmp_path: Path) -> None:
    path = tmp_path / "t"
    store = table(path).store
    pin(store, "query", 0)
    for batch in range(1, 4):
        newest = change(path)
        ages(path, 3 * IDLE_AFTER)
        newest.vacuum(keep=1)
        newest.vacuum(keep=1)
        assert pin(store, "query", batch - 1) == batch
        assert ss.MasterTable.open(path, batch).num_rows == 3
        assert pin(store, "query", batch) == batch + 1
    assert pinned_versions(store) == {3, 4}


def test_a_clock_that_jumps_back_expires_and_marks_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t"
    store = table(path).store
    pin(store, "query", 0)
    newest = change(path)
    ages(path, IDLE_AFTER + 60)
    newest.vacuum(keep=1)
    ages(path, -2 * IDLE_AFTER)
    newest.vacuum(keep=1)
    assert store.list("pins") == [f"query.{0:020d}"], "the mark is withdrawn"
    assert pinned_versions(store) == {1}


def test_ages_are_measured_with_the_file_systems_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of this machine is a month ahead of the file server's."""
    path = tmp_path / "t"
    store = table(path).store
    pin(store, "query", 0)
    newest = change(path)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 30 * 24 * 3600)
    newest.vacuum(keep=1)
    assert store.list("pins") == [f"query.{0:020d}"]
    assert ss.MasterTable.open(path, 1).num_rows == 3


def test_stale_holds_and_other_garbage_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "t"
    store = table(path).store
    pin(store, "query", 0)
    newest = change(path)
    hold = path / "pins" / "hold-0123"
    hold.write_bytes((path / "pins" / f"query.{0:020d}").read_bytes())
    (path / "pins" / "hold-4567").write_bytes(b"")
    (path / "pins" / "new-4567").write_bytes(b"")
    unpin(store, "query", 0)
    newest.vacuum(keep=1)
    assert ss.MasterTable.open(path, 1).num_rows == 3
    ages(path, IDLE_AFTER + 60)
    newest.vacuum(keep=1)
    assert store.list("pins") == []
    with pytest.raises(ss.MasterTableError):
        ss.MasterTable.open(path, 1)


def test_an_explicit_version_is_pinned(tmp_path: Path) -> None:
    path = tmp_path / "t"
    store = table(path).store
    newest = change(path)
    assert pin(store, "query", 0, version=1) == 1
    assert pin(store, "query", 0) == 1
    newest.vacuum(keep=1)
    assert ss.MasterTable.open(path, 1).num_rows == 3
    with pytest.raises(ss.MasterTableError, match=r"version 7 of .* does not exist"):
        pin(store, "query", 1, version=7)
    assert store.list("pins") == [f"query.{0:020d}"]


def test_formats_of_pins(tmp_path: Path) -> None:
    store = table(tmp_path / "t").store
    pin(store, "query", 0)
    file = tmp_path / "t/pins" / f"query.{0:020d}"
    body = json.loads(file.read_bytes())
    assert (body["format"], body["format_version"], body["version"]) == ("semistream-pin", 1, 1)
    file.write_text(json.dumps({**body, "format_version": 2}))
    with pytest.raises(ss.MasterTableError, match=r"format version 2.*upgrade"):
        pin(store, "query", 0)
    with pytest.raises(ss.MasterTableError, match=r"format version 2.*upgrade"):
        change(tmp_path / "t").vacuum(keep=1)
    file.write_text("1")  # a pin of the releases before pins had a format
    assert pin(store, "query", 0) == 1
    for wrong in ("[]", "{}", json.dumps({**body, "version": "1"})):
        file.write_text(wrong)
        with pytest.raises(ss.MasterTableError, match="does not contain a version"):
            pin(store, "query", 0)
