"""Bounds of parking: memory while tuples come back, and dead letters that come once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import semistream as ss
from overload.kit import all_of, batch, master_rows, numbers, table
from overload.test_parking import FakeClock, parking_run


@pytest.mark.parametrize("sheds", [False, True])
def test_steps_bring_tuples_back_within_the_budget(sheds: bool, tmp_path: Path) -> None:
    """A rebuilt table: every parked tuple comes back, file by file, and steps serve few of them."""
    master = table(tmp_path, range(10))
    shedding = ss.Shedding("keep", store=tmp_path / "shed")
    open_with = {"shedding": shedding, "buffer": 20_000} if sheds else {}
    options: dict[str, Any] = {"buffer": 20_000, "algorithm": "meshjoin", "open_with": open_with}
    with parking_run(master, tmp_path, **options) as run:
        for start in range(1000, 21_000, 200):
            all_of(run, run.push(batch(range(start, start + 200), start)))
        all_of(run, run.flush())
        assert run.parked == 20_000
        rows = master_rows(range(1000, 21_000))
        ss.MasterTable.build(rows, tmp_path / "table", key="k", unique=True, overwrite=True)
        found, most = [], 0
        for _ in range(100):
            found += all_of(run, run.step())
            most = max(most, sum(one.batch.nbytes for one in run.parts[1]._batches))
        assert run.late_matches
        assert most <= 20_000
        found += all_of(run, run.flush())
    assert numbers(found) == list(range(1000, 21_000))


class TestDeadLetters:
    def test_an_abandoned_iterator(self, tmp_path: Path) -> None:
        with parking_run(table(tmp_path, range(10)), tmp_path, max_rows=1) as run:
            for key in (100, 101, 102, 103):
                all_of(run, run.push(batch([key])))
                all_of(run, run.flush())
            first, second = run.dead_letters(), run.dead_letters()
            found = [*next(first)["k"].to_pylist(), *next(second)["k"].to_pylist()]
            found += [key for part in first for key in part["k"].to_pylist()]
            found += [key for part in second for key in part["k"].to_pylist()]
            assert found == [100, 101, 102]

    def test_a_new_run_does_not_return_them_again(self, tmp_path: Path) -> None:
        clock, master = FakeClock(1000.0), table(tmp_path, range(10))
        with parking_run(master, tmp_path, clock=clock, max_age="1h") as run:
            all_of(run, run.push(batch([100])))
            all_of(run, run.flush())
            clock.advance(4000)
            assert len(list(run.dead_letters())) == 1
        with parking_run(master, tmp_path, clock=clock, max_age="1h") as again:
            assert list(again.dead_letters()) == []


def test_without_an_equality_every_new_row_may_match(tmp_path: Path) -> None:
    master = table(tmp_path, range(10))
    parking = ss.Parking(tmp_path / "parked", buffer=20_000)
    join = ss.join("meshjoin", memory=200_000)
    where = ss.Compare("k", "<", "v")
    with join.open(master, where=where, unmatched="park", parking=parking) as run:
        all_of(run, run.push(batch([100])))
        all_of(run, run.flush())
        assert run.parked == 1
        master.upsert(master_rows([500]))
        assert numbers(all_of(run, run.flush())) == [0]
        assert run.parked == 0
