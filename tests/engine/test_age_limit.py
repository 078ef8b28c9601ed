"""A limit for the age of the data."""

from __future__ import annotations

import warnings
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from harness import build
from semistream.master.sync import freshness

BATCH = pa.record_batch({"k": [1, 2]})


class World:
    """A table that follows a file, and a clock for all of them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = datetime(2030, 1, 1, tzinfo=timezone.utc)
        world = self

        class Fake(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> datetime:
                return world._now

        monkeypatch.setattr(freshness, "datetime", Fake)
        self._file = folder / "source.parquet"
        self.write(1)
        self.source = ss.ParquetSource([str(self._file)])
        self.table = ss.MasterTable.build(self.source, folder / "t", key="k", unique=True)

    def write(self, value: int) -> None:
        pq.write_table(pa.table({"k": [1, 2, 3], "v": [value] * 3}), self._file)

    def wait(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)

    def open(self, **options: Any) -> Any:
        join = ss.join("sweepjoin", memory="1MB")
        clock = lambda: self._now.timestamp()  # noqa: E731
        return join.open(self.table, on="k", max_age="10m", wall_clock=clock, **options)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_old_data_is_refused_until_a_sync(world: World) -> None:
    with world.open(too_old="raise") as run:
        assert list(run.push(BATCH)) is not None
        world.wait(601)
        assert run.age == 601
        with pytest.raises(ss.MasterTableError, match=r"is 10m old, and max_age is 10m; sync"):
            run.push(BATCH)
        with pytest.raises(ss.MasterTableError, match="old"):  # also a moment later
            run.push(BATCH)
        assert run.stats.tuples_in == 2
        world.write(2)
        world.table.sync(world.source)
        rows = [*run.push(BATCH), *run.flush()]
        assert pa.Table.from_batches(rows)["v"].to_pylist()[-2:] == [2, 2]
        assert run.age == 0
        assert run.stats.tuples_in == 4


def test_a_sync_without_changes_makes_data_new(world: World) -> None:
    with world.open(too_old="raise") as run:
        world.wait(601)
        world.table.sync(world.source)
        list(run.push(BATCH))
        assert (run.version, run.age) == (1, 0)


def test_a_warning_is_given_once(world: World) -> None:
    with world.open() as run, warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for seconds in (0, 601, 5, 5):
            world.wait(seconds)
            list(run.push(BATCH))
        assert [str(one.message).split(" is ")[1:] for one in seen] == [
            ["10m old, and max_age", "10m"]
        ]
        world.table.sync(world.source)
        for seconds in (5, 700):
            world.wait(seconds)
            list(run.push(BATCH))
        assert len(seen) == 2
        assert run.stats.tuples_in == 12


def test_in_stream_order(world: World) -> None:
    with world.open(too_old="raise", order="stream") as run:
        world.wait(700)
        with pytest.raises(ss.MasterTableError, match="old"):
            [*run.push(BATCH), *run.flush()]
        world.table.sync(world.source)
        assert sum(rows.num_rows for rows in run.flush()) == 2


def test_what_is_refused(world: World, tmp_path: Path) -> None:
    join = ss.join("meshjoin", memory="1MB")
    with pytest.raises(ss.ConfigError, match="too_old='no' is unknown; choose one of warn, raise"):
        join.open(world.table, on="k", max_age=1, too_old="no")
    with pytest.raises(ss.ConfigError, match="is not a duration"):
        join.open(world.table, on="k", max_age="soon")
    with pytest.raises(ss.ConfigError, match="max_age is for a master table"):
        join.open(str(tmp_path / "source.parquet"), on="k", max_age=1)
    never = build(tmp_path / "other", pa.table({"k": [1]}), ["k"])
    with (
        join.open(never, on="k", max_age=1, too_old="raise") as run,
        pytest.raises(ss.MasterTableError, match="of unknown age: it was never synced"),
    ):
        run.push(BATCH)
