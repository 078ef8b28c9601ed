"""Bounds of parking: memory while tuples come back, and dead letters that come once."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import semistream as ss
from harness import check_books
from overload.kit import all_of, batch, crash, master_rows, numbers, table
from overload.test_parking import FakeClock, parking_run
from semistream.master.files import Files


@pytest.mark.parametrize("sheds", [False, True])
def test_steps_bring_tuples_back_within_the_budget(sheds: bool, tmp_path: Path) -> None:
    """A rebuilt table: every parked tuple comes back, file by file, and steps serve few of them."""
    master = table(tmp_path, range(10))
    shedding = ss.Shedding("keep", store=tmp_path / "shed")
    open_with = {"shedding": shedding, "buffer": 20_000} if sheds else {}
    options: dict[str, Any] = {"buffer": 20_000, "algorithm": "meshjoin", "open_with": open_with}
    with parking_run(master, tmp_path, **options) as run:
        for start in range(1000, 9_000, 200):
            all_of(run, run.push(batch(range(start, start + 200), start)))
        all_of(run, run.flush())
        assert run.parked == 8_000
        rows = master_rows(range(1000, 9_000))
        ss.MasterTable.build(rows, tmp_path / "table", key="k", unique=True, overwrite=True)
        found, most = [], 0
        for _ in range(100):
            found += all_of(run, run.step())
            most = max(most, sum(one.batch.nbytes for one in run.parts[1]._batches))
        assert run.late_matches
        assert most <= 20_000
        found += all_of(run, run.flush())
    assert numbers(found) == list(range(1000, 9_000))


@pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))
def test_a_full_disk_loses_no_row_that_is_ready(algorithm: str, tmp_path: Path) -> None:
    """Rows that match come with tuples that must be parked, and cannot."""
    found, errors, count = [], 0, 0
    master = table(tmp_path, range(0, 400, 2))
    with parking_run(master, tmp_path, buffer=2_000, algorithm=algorithm) as run:
        for start in range(0, 4_000, 200):
            full = OSError(errno.ENOSPC, "full") if start % 800 else None
            with mock.patch.object(Files, "sync", side_effect=full):
                try:
                    for rows in run.push(batch([i % 400 for i in range(200)], start)):
                        found += [row["n"] for row in rows.to_pylist()]
                except ss.SemistreamError:
                    errors += 1
            check_books(run)
        for rows in run.flush():
            found += [row["n"] for row in rows.to_pylist()]
        count = run.parked
    assert errors
    assert sorted(found) == list(range(0, 4_000, 2))
    assert count == 2_000


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

    def test_if_nobody_fetches_them_they_take_little_memory(self, tmp_path: Path) -> None:
        with parking_run(table(tmp_path, range(10)), tmp_path, max_rows=100) as run:
            for start in range(1000, 31_000, 300):
                all_of(run, run.push(batch(range(start, start + 300), start)))
            all_of(run, run.flush())
            assert run.memory["parking"] <= 20_000
            assert sum(part.num_rows for part in run.dead_letters()) == 29_900
            assert len(run._store.files) <= 2  # the newest rows may be in two files
            assert run.memory["parking"] < 200

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


def test_versions_back_and_forth(tmp_path: Path) -> None:
    """Tuples gathered at several versions, in any order, are written once each."""
    master = table(tmp_path, range(10))
    master.upsert(master_rows([20]))
    with parking_run(master, tmp_path, algorithm="inlj") as run:
        for number, version in enumerate((2, 1, 2)):
            run.use(version)
            all_of(run, run.push(batch([100 + number], number)))
        all_of(run, run.flush())
        assert run.parked == 3
        ss.MasterTable.open(tmp_path / "table").upsert(master_rows([100, 101, 102]))
        run.use(3)
        assert numbers(all_of(run, run.flush())) == [0, 1, 2]


def test_a_checkpoint_of_both_stores_forgets_nothing_early(tmp_path: Path) -> None:
    """Shed tuples have returned and match nothing, and the disk is full when they are parked."""
    master = table(tmp_path, range(10))
    open_with = {"shedding": ss.Shedding("keep", store=tmp_path / "shed"), "buffer": 20_000}
    options = {"open_with": open_with, "memory": 400_000, "buffer": 200_000}
    run = parking_run(master, tmp_path, **options)
    for start in range(1000, 2600, 200):
        run.offer(batch(range(start, start + 200), start))
    while run.stats.waiting or run.stored:
        all_of(run, run.step())
    shed = run.overload.shed
    assert shed
    full = OSError(errno.ENOSPC, "No space left on device")
    with (
        mock.patch.object(run._store._folder.files, "sync", side_effect=full),
        pytest.raises(ss.SemistreamError, match="No space left"),
    ):
        all_of(run, run.checkpoint())
    crash(run)
    with parking_run(master, tmp_path, **options) as again:
        assert again.stored == shed


def test_a_new_version_while_the_buffer_is_full(tmp_path: Path) -> None:
    """The tuples that came back are more than the buffer has room for, which is backpressure."""
    master = table(tmp_path, range(10))
    with parking_run(master, tmp_path, buffer=20_000, open_with={"buffer": 2_000}) as run:
        for start in range(1000, 2000, 50):
            all_of(run, run.push(batch(range(start, start + 50), start)))
        all_of(run, run.flush())
        master = master.upsert(master_rows(range(1000, 1990)))
        found = all_of(run, run.step())
        run.step()  # its rows are not taken
        master.upsert(master_rows(range(1990, 2000)))
        assert run.memory["stream buffer"] > 1_000
        found += all_of(run, run.flush())
    assert numbers(found) == list(range(1000, 2000))


def test_a_push_that_raises_has_not_accepted_the_batch(tmp_path: Path) -> None:
    master = table(tmp_path, range(10))
    calls = 0

    def flaky(self: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise ss.MasterTableError("the folder cannot be listed")
        return 1

    with (
        mock.patch.object(ss.MasterTable, "newest_version", flaky),
        ss.SweepJoin(memory=100_000).open(master, on="k", buffer=20_000) as run,
    ):
        for number in range(4):
            before = run.stats.tuples_in
            try:
                all_of(run, run.push(batch([number], number)))
            except ss.MasterTableError:
                assert run.stats.tuples_in == before


def test_many_parked_tuples_of_which_a_few_come_back(tmp_path: Path) -> None:
    """What is known of every parked tuple is a few bits, and stays within the buffer."""
    master = table(tmp_path, range(10))
    keys = range(1000, 31_000)
    with parking_run(master, tmp_path, buffer=20_000) as run:
        for start in range(keys.start, keys.stop, 300):
            all_of(run, run.push(batch(range(start, start + 300), start)))
        all_of(run, run.flush())
        master = master.upsert(master_rows(keys[::100]))
        assert numbers(all_of(run, run.flush())) == list(keys[::100])
        assert run.parked == 29_700
        assert run.memory["parking"] <= 20_000
    with parking_run(master, tmp_path, buffer=20_000) as again:
        assert again.parked == 29_700
        master.upsert(master_rows(keys[1::100]))
        assert numbers(all_of(again, again.flush())) == list(keys[1::100])
        assert again.parked == 29_400
