"""Pins: a (query, batch) sees one version of the table, however often and by whom it is asked."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import semistream as ss
from semistream.master.pins import FORGOTTEN_AFTER, pin, pinned_versions
from semistream.master.store import LocalStore


def table(path: Path) -> Any:
    data = pa.table({"k": [1, 2, 3], "v": [1, 2, 3]})
    return ss.MasterTable.build(data, path, key="k", unique=True)


def change(path: Path) -> Any:
    return ss.MasterTable.open(path).upsert(pa.table({"k": [2], "v": [7]}))


def test_the_first_one_decides_and_all_others_follow(tmp_path: Path) -> None:
    store = table(tmp_path / "t").store
    assert pin(store, "query", 0) == 1
    change(tmp_path / "t")
    assert pin(store, "query", 0) == 1
    assert pin(store, "query", 1) == 2
    assert pin(store, "other", 0) == 2


def test_many_at_once_agree(tmp_path: Path) -> None:
    store = table(tmp_path / "t").store
    with ThreadPoolExecutor(8) as pool:
        for batch in range(5):
            change(tmp_path / "t")
            asked = [pool.submit(pin, LocalStore(tmp_path / "t"), "q", batch) for _ in range(8)]
            assert len({answer.result() for answer in asked}) == 1
    assert all(name.startswith("q.") for name in store.list("pins"))


def test_old_pins_of_a_query_are_removed_and_those_of_others_stay(tmp_path: Path) -> None:
    store = table(tmp_path / "t").store
    pin(store, "other", 0)
    for batch in range(12):
        pin(store, "query", batch, keep=4)
    assert store.list("pins") == ["other." + "0" * 20] + [
        f"query.{batch:020d}" for batch in range(7, 12)
    ]


def test_a_table_that_is_gone_is_not_brought_back(tmp_path: Path) -> None:
    with pytest.raises(ss.MasterTableError, match="no master table"):
        pin(LocalStore(tmp_path / "gone"), "query", 0)
    assert not (tmp_path / "gone").exists()


def test_what_is_no_pin_is_refused(tmp_path: Path) -> None:
    store = table(tmp_path / "t").store
    with pytest.raises(ss.ConfigError, match="query="):
        pin(store, "../query", 0)
    (tmp_path / "t/pins").mkdir()
    (tmp_path / "t/pins" / ("query." + "0" * 20)).write_text("what?")
    with pytest.raises(ss.MasterTableError, match="does not hold a version"):
        pin(store, "query", 0)


def test_vacuum_keeps_what_a_replay_may_ask_for(tmp_path: Path) -> None:
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


def test_a_query_that_is_long_gone_keeps_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t"
    store = table(path).store
    pin(store, "query", 0)
    change(path)
    old = time.time() - FORGOTTEN_AFTER - 60
    for file in (path / "pins").iterdir():
        os.utime(file, (old, old))
    ss.MasterTable.open(path).vacuum(keep=1)
    assert store.list("pins") == []
    with pytest.raises(ss.MasterTableError):
        ss.MasterTable.open(path, 1)
