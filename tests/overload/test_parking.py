"""Parking: unmatched tuples are joined when their key arrives, and no other is read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import naive
import semistream as ss
from harness import check_books
from overload.kit import all_of, batch, crash, joined, master_rows, numbers, table
from semistream.testing import FakeClock

every_join = pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))


def parking_run(
    master: Any,
    folder: Path,
    algorithm: str = "sweepjoin",
    how: str = "inner",
    clock: FakeClock | None = None,
    open_with: dict[str, Any] | None = None,
    memory: int = 100_000,
    **options: Any,
) -> Any:
    join = ss.join(algorithm, memory=memory, how=how)
    parking = ss.Parking(folder / "parked", **{"buffer": 20_000, **options})
    return join.open(
        master, on="k", unmatched="park", parking=parking, wall_clock=clock or FakeClock(1000.0),
        **(open_with or {}),
    )  # fmt: skip


@every_join
def test_a_key_that_arrives_later_is_joined(algorithm: str, tmp_path: Path) -> None:
    how = ["inner", "left", "left_semi"][len(algorithm) % 3]
    master = table(tmp_path, range(0, 100, 2))
    early = batch([*range(100), None, 1, 1])
    with parking_run(master, tmp_path, algorithm, how) as run:
        found = all_of(run, run.push(early)) + all_of(run, run.flush())
        assert run.parked == run.stats.shed == 52
        matched = run.stats.matched
        master.upsert(master_rows([1, 3]))
        found += all_of(run, run.push(batch([5, 3], 200)))
        found += all_of(run, run.flush())
        assert run.late_matches == 4
        assert run.stats.matched == matched + 5
        assert run.parked == 52 - 4 + 1
        assert run.stats.unmatched == 1  # the null key
    stream = [early, batch([3], 201)]
    keys = [*range(0, 100, 2), 1, 3]
    parked = {row[0] for row in joined([early], keys, "left_anti") if row[1] is not None}
    expected = [row for row in joined(stream, keys, how) if row[0] not in parked]
    naive.same_rows(found, expected)


def test_a_run_that_goes_back_and_forth_between_versions_parks_every_tuple(tmp_path: Path) -> None:
    master = table(tmp_path, range(10))
    master = master.upsert(master_rows([20]))
    with parking_run(master, tmp_path, "inlj") as run:
        for key, version in ((101, 2), (102, 1), (103, 2)):
            run.use(version)
            all_of(run, run.push(batch([key], key)))
        all_of(run, run.flush())
        assert run.parked == 3
        run.use(master.upsert(master_rows([101, 102, 103])).version)
        found = all_of(run, run.push(batch([1], 1)))
        assert numbers(found + all_of(run, run.flush())) == [1, 101, 102, 103]


def test_only_tuples_whose_key_arrived_are_read_back(tmp_path: Path) -> None:
    master = table(tmp_path, range(10))
    with parking_run(master, tmp_path) as run:
        for start in range(100, 500, 100):
            all_of(run, run.push(batch(range(start, start + 100), start)))
            all_of(run, run.flush())
        read: list[int] = []
        original = run._store.read
        run._store.read = lambda file, rows: read.append(len(rows)) or original(file, rows)
        master = master.upsert(master_rows([150, 420, 999]))
        found = all_of(run, run.push(batch([3])))
        found += all_of(run, run.flush())
        assert numbers(found) == [0, 150, 420]
        assert read == [1, 1]
        read.clear()
        found = all_of(run, run.flush()) + all_of(run, run.step())
        assert found == []
        assert read == []  # no new version: nothing is looked at
        assert run.parked == 398
        master.delete([150])
        all_of(run, run.push(batch([4])))
        assert read == []


def test_a_paused_stream_moves_to_the_new_version(tmp_path: Path) -> None:
    master = table(tmp_path, range(10))
    with parking_run(master, tmp_path) as run:
        all_of(run, run.push(batch([100])))
        all_of(run, run.flush())
        master.upsert(master_rows([100]))
        found: naive.Rows = []
        for _ in range(5):
            found += all_of(run, run.step())
        assert numbers(found) == [0]
        assert run.parked == run.stats.waiting == 0


def test_a_rebuilt_table_is_asked_about_every_tuple(tmp_path: Path) -> None:
    """Its changed codes are unknown."""
    master = table(tmp_path, range(10))
    with parking_run(master, tmp_path) as run:
        all_of(run, run.push(batch([100, 101, 102])))
        all_of(run, run.flush())
        ss.MasterTable.build(
            master_rows([100, 102]), tmp_path / "table", key="k", unique=True, overwrite=True
        )
        found = all_of(run, run.push(batch([5])))
        found += all_of(run, run.flush())
        assert numbers(found) == [0, 2]
        assert run.parked == 2


class TestLimits:
    def test_tuples_that_are_too_old_are_dead_letters(self, tmp_path: Path) -> None:
        clock, master = FakeClock(1000.0), table(tmp_path, range(10))
        with parking_run(master, tmp_path, clock=clock, max_age="1h") as run:
            all_of(run, run.push(batch([100, 101])))
            all_of(run, run.flush())
            clock.advance(1800)
            all_of(run, run.push(batch([102], 7)))
            all_of(run, run.flush())
            assert list(run.dead_letters()) == []
            clock.advance(1801)
            all_of(run, run.step())
            assert (run.parked, run.stats.shed, run.stats.unmatched) == (1, 1, 2)
            (dead,) = run.dead_letters()
            assert dead.schema.names == ["n", "k", "reason"]
            assert dead.column("k").to_pylist() == [100, 101]
            assert "max_age=1h" in dead.column("reason")[0].as_py()
            assert list(run.dead_letters()) == []
            master.upsert(master_rows([100, 102]))
            found = all_of(run, run.flush())
            assert numbers(found) == [7]
        assert list((tmp_path / "parked").glob("*.arrow")) == []

    def test_so_are_those_beyond_max_rows_oldest_first(self, tmp_path: Path) -> None:
        with parking_run(table(tmp_path, range(10)), tmp_path, max_rows=30) as run:
            for start in range(100, 200, 20):
                all_of(run, run.push(batch(range(start, start + 20), start)))
                all_of(run, run.flush())
                assert run.parked <= 30
            dead = [row for part in run.dead_letters() for row in part.to_pylist()]
            assert len(dead) == 70
            assert {row["n"] for row in dead} >= set(range(100, 160))
            assert all("max_rows=30" in row["reason"] for row in dead)
            assert run.stats.unmatched == 70

    def test_dead_letters_that_nobody_fetched_survive(self, tmp_path: Path) -> None:
        clock, master = FakeClock(1000.0), table(tmp_path, range(10))
        for recover in ("all", "checkpoint"):
            options = {"clock": clock, "max_age": "1h", "recover": recover}
            run = parking_run(master, tmp_path / recover, **options)
            all_of(run, run.push(batch([100, 101])))
            all_of(run, run.checkpoint())
            clock.advance(4000)
            all_of(run, run.checkpoint())
            assert run.parked == 0
            crash(run)
            with parking_run(master, tmp_path / recover, **options) as again:
                assert sum(part.num_rows for part in again.dead_letters()) == 2

    def test_memory_is_bounded_while_nothing_matches(self, tmp_path: Path) -> None:
        """No row comes out of an inner join, and tuples are written all the same."""
        with parking_run(table(tmp_path, range(10)), tmp_path, buffer=4_000) as run:
            all_of(run, run.push(batch(range(1000, 5000))))
            assert run.parked > 3000
            assert run.memory["parking"] <= 4_000
            check_books(run)


class TestCrashes:
    def test_parked_tuples_survive(self, tmp_path: Path) -> None:
        master = table(tmp_path, range(10))
        run = parking_run(master, tmp_path)
        all_of(run, run.push(batch([100, 101, 102])))
        all_of(run, run.flush())
        crash(run)
        master = master.upsert(master_rows([101]))  # while no run is there
        with parking_run(master, tmp_path) as again:
            assert (again.parked, again.stats.shed, again.stats.tuples_in) == (3, 3, 3)
            assert numbers(all_of(again, again.flush())) == [1]
            assert again.parked == 2

    def test_a_tuple_that_came_back_is_not_forgotten_before_it_is_served(
        self, tmp_path: Path
    ) -> None:
        master = table(tmp_path, range(10))
        run = parking_run(master, tmp_path)
        all_of(run, run.push(batch([100, 101, 102])))
        all_of(run, run.flush())
        master = master.upsert(master_rows([101]))
        rows = run.push(batch([1], 50))
        next(rows, None)  # the run moves on, and the process dies
        run._requeue_arrivals()
        assert run.parked == 2
        crash(run)
        with parking_run(master, tmp_path) as again:
            assert 1 in numbers(all_of(again, again.flush()))

    def test_a_run_goes_back_to_its_checkpoint(self, tmp_path: Path) -> None:
        master = table(tmp_path, range(10))
        run = parking_run(master, tmp_path, recover="checkpoint")
        found = all_of(run, run.push(batch([100, 101, 1])))
        found += all_of(run, run.checkpoint())
        lost = batch([102, 2], 3)
        all_of(run, run.push(lost))
        all_of(run, run.flush())
        master = master.upsert(master_rows([100, 102]))
        all_of(run, run.push(batch([3], 5)))
        crash(run)
        with parking_run(master, tmp_path, recover="checkpoint") as again:
            assert again.parked == 2
            for one in (lost, batch([3], 5)):
                found += all_of(again, again.push(one))
            found += all_of(again, again.flush())
            assert again.parked == 1
        assert numbers(found) == [0, 2, 3, 4, 5]


def test_with_shedding(tmp_path: Path) -> None:
    master = table(tmp_path, range(0, 400, 2))
    shedding = ss.Shedding("considering", store=tmp_path / "shed")
    open_with = {"shedding": shedding, "buffer": 20_000}
    batches = [batch([(7 * i) % 400 for i in range(j, j + 200)], j) for j in range(0, 6000, 200)]
    found: naive.Rows = []
    with parking_run(master, tmp_path, open_with=open_with) as run:
        for number, one in enumerate(batches):
            run.offer(one)
            check_books(run)
            if number % 5 == 4:
                found += all_of(run, run.step())
        assert run.overload.shed
        found += all_of(run, run.flush())
        assert run.parked == run.stats.shed == 3000
        master.upsert(master_rows(range(1, 400, 2)))
        found += all_of(run, run.flush())
        assert run.parked == 0
    naive.same_rows(found, joined(batches, range(400), "inner"))


def test_returned_tuples_are_kept_on_disk_until_they_are_parked_there(tmp_path: Path) -> None:
    """They are served without a match, and only gathered in memory, when the process dies."""
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
    assert run.parked == 0
    crash(run)
    with parking_run(master, tmp_path, **options) as again:
        assert again.stored == shed
        all_of(again, again.flush())
        assert again.parked == shed
    assert list((tmp_path / "shed").glob("*.arrow")) == []


@pytest.mark.parametrize(
    "options",
    [
        {"unmatched": "park"},
        {"parking": ss.Parking("parked")},
        {"unmatched": "drop", "parking": ss.Parking("parked")},
    ],
)
def test_options_belong_together(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ss.ConfigError):
        ss.SweepJoin(memory=100_000).open(table(tmp_path), on="k", **options)


def test_options_are_checked(tmp_path: Path) -> None:
    for wrong in ({"max_age": "soon"}, {"max_rows": 0}, {"recover": "x"}, {"buffer": "much"}):
        with pytest.raises(ss.ConfigError):
            ss.Parking("parked", **wrong)
    with pytest.raises(ss.ConfigError, match="left_anti"):
        parking_run(table(tmp_path), tmp_path, how="left_anti")
    random = {"shedding": ss.Shedding("random", store="shed"), "buffer": 1000}
    with pytest.raises(ss.ConfigError, match="random"):
        parking_run(table(tmp_path / "b"), tmp_path, open_with=random)


def test_texts_and_composite_keys(tmp_path: Path) -> None:
    """Codes are hashes: equal codes are compared by key, and other tuples are parked again."""
    rows = pa.table({"a": ["x", "y"], "b": [1, 2], "v": [1, 2]})
    master = ss.MasterTable.build(rows, tmp_path / "t", key=["a", "b"], unique=True)
    stream = pa.record_batch({"a": ["x", "z", None], "b": [1, 9, 1], "n": [0, 1, 2]})
    parking = ss.Parking(tmp_path / "parked", buffer=20_000)
    join = ss.SweepJoin(memory=200_000)
    with join.open(master, on=["a", "b"], unmatched="park", parking=parking) as run:
        found = all_of(run, run.push(stream)) + all_of(run, run.flush())
        assert run.parked == 1
        master.upsert(pa.table({"a": ["z"], "b": [9], "v": [3]}))
        found += all_of(run, run.flush())
    assert sorted(found) == [("x", 1, 0, 1), ("z", 9, 1, 3)]
