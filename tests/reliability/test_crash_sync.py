"""A sync that is killed at any point: run again, the table equals its source, with one version."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from reliability.crash_points import QUICK_AND_SLOW, try_all
from reliability.disk import Crash, Loss
from reliability.grace import grace_is_over
from reliability.recorder import recording
from reliability.tally import Tally
from semistream.master import MasterTable, verify
from semistream.master.sync.contract import Position
from semistream.master.sync.entries import Entries

Prices = dict[int, float]
BEFORE: Prices = {k: k / 2 for k in range(200)}
AFTER: Prices = {**{k: k / 2 for k in range(200) if k not in (3, 4)}, 7: 99.0, 500: 1.0}


def table_of(prices: Prices) -> pa.Table:
    return pa.table({"id": list(prices), "price": list(prices.values())})


class Increments:
    """A topic of changes that are not idempotent: repeating one, or losing one, shows.

    Every change adds one to the price that the table had when the change was made.
    """

    name = "counters"

    def __init__(self, changes: list[int]) -> None:
        self.changes = changes

    def snapshot(self, key: Sequence[str], columns: Sequence[str] | None) -> Any:
        raise AssertionError("it has changes only")

    def read_first(self, table: MasterTable, entries: Entries) -> Position:
        return self.read(table, {"offset": 0}, entries)

    def read(self, table: MasterTable, position: Position, entries: Entries) -> Position:
        entries.allow_repeats()
        prices = dict(zip(*table.to_table().to_pydict().values(), strict=True))
        for key in self.changes[position["offset"] :]:
            prices[key] = prices.get(key, 0.0) + 1.0
            entries.upsert(pa.record_batch({"id": [key], "price": [prices[key]]}))
        return {"offset": len(self.changes)}


@dataclass(frozen=True)
class Case:
    """A source before and after its changes, and what the table must be then."""

    begin: Callable[[Path], Any]
    change: Callable[[Path, Any], Any]
    expected: Prices


def write_files(folder: Path, prices: Prices) -> Any:
    folder.mkdir(exist_ok=True)
    for number in range(3):
        part = {k: price for k, price in prices.items() if k % 3 == number}
        file = folder / f"{number}.parquet"
        if not file.exists() or not pq.read_table(file).equals(table_of(part)):
            pq.write_table(table_of(part), file)
    return ss.ParquetSource(folder)


def write_database(folder: Path, prices: Prices) -> Any:
    with sqlite3.connect(f"{folder}.db") as database:
        database.execute("create table if not exists p (id integer primary key, price real, v int)")
        (last,) = database.execute("select coalesce(max(v), 0) from p").fetchone()
        known = dict(database.execute("select id, price from p"))
        for key, price in prices.items():
            if known.get(key) != price:
                database.execute(
                    "insert or replace into p values (?, ?, ?)", (key, price, last + 1)
                )
        for key in known.keys() - prices.keys():
            database.execute("delete from p where id = ?", (key,))
    return ss.SqlSource(f"sqlite:///{folder}.db", "p", version="v")


CASES = {
    "parquet": Case(lambda f: write_files(f, BEFORE), lambda f, _: write_files(f, AFTER), AFTER),
    "sqlite": Case(
        lambda f: write_database(f, BEFORE), lambda f, _: write_database(f, AFTER), AFTER
    ),
    "increments": Case(
        lambda f: Increments([]),
        lambda f, source: Increments([5, 5, 900, 6]),
        {**BEFORE, 5: 4.5, 6: 4.0, 900: 1.0},
    ),
}


def prices_of(path: Path) -> Prices:
    return dict(zip(*MasterTable.open(path).to_table().to_pydict().values(), strict=True))


@pytest.mark.parametrize("losses", QUICK_AND_SLOW)
@pytest.mark.parametrize("name", CASES)
def test_a_sync_is_done_once(
    name: str, losses: Sequence[Loss], tmp_path: Path, tally: Tally
) -> None:
    """The position and the rows become visible together, or not at all."""
    case, disk = CASES[name], tmp_path / "disk"
    disk.mkdir()
    source = case.begin(tmp_path / "source")
    MasterTable.build(table_of(BEFORE), disk / "t", key="id", unique=True, page_bytes=4096)
    first = MasterTable.open(disk / "t").sync(source).version
    source = case.change(tmp_path / "source", source)
    with recording(disk) as recorder:
        MasterTable.open(disk / "t").sync(source, memory=40_000)
    assert prices_of(disk / "t") == case.expected
    points = try_all(
        recorder,
        losses,
        tmp_path,
        lambda place, crash: check(place / "t", crash, source, case, first),
    )
    shutil.rmtree(disk)
    tally("crash points of syncs", points)


def check(path: Path, crash: Crash, source: Any, case: Case, first: int) -> None:
    table = MasterTable.open(path)
    assert verify(path) == []
    assert table.version == first + 1 or (table.version == first and not crash.is_done)
    assert prices_of(path) == (case.expected if table.version > first else BEFORE)
    table = table.sync(source)
    assert table.version == first + 1, "one version, however often it is tried"
    assert prices_of(path) == case.expected
    assert table.sync(source).version == first + 1
    with grace_is_over():
        table.vacuum(keep=1)
    assert prices_of(path) == case.expected
    assert not list((path / "work").iterdir()), "nothing is left behind"
