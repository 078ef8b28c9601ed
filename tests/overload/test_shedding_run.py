"""Load shedding: nothing blocks, nothing is lost, shed tuples come back oldest first."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import naive
import semistream as ss
from harness import check_books
from overload.kit import all_of, batch, crash, joined, numbers, shedding_run, table

KEYS = range(0, 400, 2)
every_mode = pytest.mark.parametrize("mode", ["considering", "keep", "random"])
every_join_and_mode = pytest.mark.parametrize(
    ("algorithm", "mode"),
    [
        pytest.param(name, mode, marks=[] if a % 3 == m else [pytest.mark.slow])
        for a, name in enumerate(ss.ALGORITHMS)
        for m, mode in enumerate(["keep", "random", "considering"])
    ],
)


def burst(count: int, size: int, seed: int = 1) -> list[pa.RecordBatch]:
    chance = random.Random(seed)
    made = []
    for i in range(count):
        keys = [chance.choice([None, *range(400)]) for _ in range(size)]
        made.append(batch(keys, i * size))
    return made


def offer_all(run: Any, batches: list[pa.RecordBatch], per_step: int = 3) -> naive.Rows:
    """Offer several batches for every step."""
    found: naive.Rows = []
    for i, one in enumerate(batches):
        assert run.offer(one)
        check_books(run)
        if i % per_step == per_step - 1:
            found += all_of(run, run.step())
    return found


@every_join_and_mode
def test_a_burst_ends_with_the_naive_join(algorithm: str, mode: str, tmp_path: Path) -> None:
    how = naive.HOWS[(len(algorithm) + len(mode)) % 4]
    master = table(tmp_path, KEYS)
    batches = burst(40, 200)
    with shedding_run(master, tmp_path / "shed", mode, algorithm, how=how) as run:
        found = offer_all(run, batches, per_step=5)
        assert run.overload.shed > 0
        assert run.stats.shed == run.stored
        found += all_of(run, run.flush())
        assert run.stats.waiting == run.stats.shed == run.stored == 0
        assert run.overload.returned <= run.overload.shed
    naive.same_rows(found, joined(batches, KEYS, how))
    assert list((tmp_path / "shed").glob("*.arrow")) == []


@pytest.mark.parametrize("mode", ["considering", "keep"])
def test_overload_is_detected_within_one_iteration(mode: str, tmp_path: Path) -> None:
    options = {"memory": 110_000, "buffer": 40_000}
    master = table(tmp_path, KEYS)
    with shedding_run(master, tmp_path / "shed", mode, "hybridjoin", **options) as run:
        while not run.buffered:  # until the window is full
            run.offer(batch([3 * i % 400 for i in range(500)]))
            all_of(run, run.step())
        while run.buffered:
            all_of(run, run.step())
        assert run.overload.overloads == 0
        for _ in range(4):
            run.offer(batch(range(300)))
        all_of(run, run.step())
        assert run.is_overloaded
        assert run.overload.overloads == 1
        assert run.overload.shed + run._outbox.rows > 0
        all_of(run, run.flush())


@every_mode
def test_nothing_is_shed_without_overload(mode: str, tmp_path: Path) -> None:
    """Also if batches are larger than what two iterations serve."""
    master, batches = table(tmp_path, KEYS), burst(10, 500)
    found: naive.Rows = []
    with shedding_run(master, tmp_path / "shed", mode, "hybridjoin", buffer=40_000) as run:
        for one in batches:
            run.offer(one)
            while run.buffered:
                found += all_of(run, run.step())
        found += all_of(run, run.flush())
        assert run.overload.shed == run.overload.overloads == run.overload.upfront == 0
    naive.same_rows(found, joined(batches, KEYS, "inner"))


@pytest.mark.parametrize("algorithm", ["hybridjoin", "sweepjoin", "meshjoin"])
def test_shed_tuples_return_when_there_is_room_and_oldest_first(
    algorithm: str, tmp_path: Path
) -> None:
    master, batches = table(tmp_path, range(400)), burst(30, 200)
    with shedding_run(master, tmp_path / "shed", "keep", algorithm) as run:
        found = offer_all(run, batches, per_step=10)
        shed = run.overload.shed
        assert shed
        oldest, steps = run._store._files[0].number, 0
        while run.stored or run.stats.waiting:
            found += all_of(run, run.step())
            steps += 1
            assert steps < 5_000
            if run.stored:
                assert run._store._files[0].number >= oldest
                oldest = run._store._files[0].number
        assert run.overload.returned == run.overload.shed >= shed
    naive.same_rows(found, joined(batches, range(400), "inner"))


def test_considering_sheds_cold_tuples(tmp_path: Path) -> None:
    """Tuples of hot keys are served at once more often than with keep."""
    master = table(tmp_path, range(4000))
    chance, served = random.Random(3), {}
    keys = [chance.choice(range(40)) if chance.random() < 0.5 else chance.randrange(4000)
            for _ in range(40 * 200)]  # fmt: skip
    batches = [batch(keys[i : i + 200], i) for i in range(0, len(keys), 200)]
    for mode in ("considering", "keep"):
        options = {"memory": 150_000, "buffer": 40_000}
        with shedding_run(master, tmp_path / mode, mode, "hybridjoin", **options) as run:
            offer_all(run, batches, per_step=2)
            served[mode] = run.stats.matched
    assert served["considering"] > served["keep"]


@every_mode
def test_a_full_buffer_sheds_what_arrives(mode: str, tmp_path: Path) -> None:
    """No step comes between: tuples go to the store, in memory that the buffer bounds."""
    master, batches = table(tmp_path, KEYS), burst(50, 200)
    with shedding_run(master, tmp_path / "shed", mode) as run:
        for one in batches:
            assert run.offer(one)
            check_books(run)
        assert run.overload.upfront > 0
        assert run.overload.peak_buffer <= 20_000
        found = all_of(run, run.flush())
    naive.same_rows(found, joined(batches, KEYS, "inner"))


def test_off_refuses_what_does_not_fit(tmp_path: Path) -> None:
    master, batches = table(tmp_path, KEYS), burst(50, 200)
    with shedding_run(master, tmp_path / "shed", "off") as run:
        accepted, found = [], []
        for one in batches:
            while not run.offer(one):
                found += all_of(run, run.step())
            accepted.append(one)
        found += all_of(run, run.flush())
        with pytest.raises(ss.ConfigError, match="does not fit into the buffer"):
            run.push(batch([1] * 5000))
    naive.same_rows(found, joined(accepted, KEYS, "inner"))
    assert not (tmp_path / "shed").exists()


def test_buffer_alone_is_backpressure(tmp_path: Path) -> None:
    join = ss.SweepJoin(memory=90_000)
    with join.open(table(tmp_path, KEYS), on="k", buffer=10_000) as run:
        assert run.options.mode == "off"
        assert run.memory.budget == 90_000


@every_mode
def test_push_serves_the_batch(mode: str, tmp_path: Path) -> None:
    batches, found = burst(20, 200), []
    with shedding_run(table(tmp_path, KEYS), tmp_path / "shed", mode) as run:
        for one in batches:
            found += all_of(run, run.push(one))
            assert run.buffered == 0
        found += all_of(run, run.flush())
        assert run.overload.shed == 0
        assert run.schema.names == ["n", "k", "v", "text"]
    naive.same_rows(found, joined(batches, KEYS, "inner"))


def test_an_abandoned_iterator_loses_nothing(tmp_path: Path) -> None:
    batches, found = burst(40, 200), []
    with shedding_run(table(tmp_path, KEYS), tmp_path / "shed", algorithm="hybridjoin") as run:
        for one in batches:
            run.offer(one)
            for rows in run.step():
                found += naive.rows_of([rows])
                break
        found += all_of(run, run.flush())
    naive.same_rows(found, joined(batches, KEYS, "inner"))


def test_a_batch_of_another_schema_is_refused_wherever_it_would_go(tmp_path: Path) -> None:
    with shedding_run(table(tmp_path, KEYS), tmp_path / "shed") as run:
        run.offer(batch([1]))
        for wrong in (pa.record_batch({"k": [1]}), pa.record_batch({"k": list(range(9000))})):
            with pytest.raises(ss.SchemaError):
                run.offer(wrong)
        with pytest.raises(ss.SchemaError, match="RecordBatch"):
            run.offer("tuples")
        assert run.stats.tuples_in == 1


class TestLimits:
    def test_a_full_store_raises_and_loses_nothing(self, tmp_path: Path) -> None:
        batches, errors, found = burst(60, 200), 0, []
        accepted = []
        run = shedding_run(table(tmp_path, KEYS), tmp_path / "shed", limit=30_000)
        with run:
            for i, one in enumerate(batches):
                try:
                    run.offer(one)
                    accepted.append(one)
                    if i % 4 == 0:
                        found += all_of(run, run.step())
                except ss.SemistreamError as error:
                    errors += "limit" in str(error)
                check_books(run)
            assert errors
            assert run.stored_bytes <= 30_000
            found += all_of(run, run.flush())
        naive.same_rows(found, joined(accepted, KEYS, "inner"))

    def test_or_drops_and_counts(self, tmp_path: Path) -> None:
        batches = burst(60, 200)
        options = {"limit": 30_000, "when_full": "drop"}
        with shedding_run(table(tmp_path, range(400)), tmp_path / "shed", "keep", **options) as run:
            found = offer_all(run, batches, per_step=5)
            found += all_of(run, run.flush())
            dropped = run.overload.dropped
            assert dropped > 0
            assert run.stats.shed == dropped
            assert run.stats.tuples_in == 12_000
            everything = joined(batches, range(400), "inner")
            assert len(found) == run.stats.matched
            unmatched = run.stats.unmatched
            assert len(found) + unmatched + dropped == 12_000
        assert set(numbers(found)) <= set(numbers(everything))

    def test_a_full_disk_raises_and_loses_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        batches, found, errors = burst(40, 200), [], 0
        accepted = []
        with shedding_run(table(tmp_path, KEYS), tmp_path / "shed", algorithm="hybridjoin") as run:
            folder = run._store._folder

            def full(file: Any) -> None:
                raise OSError(errno.ENOSPC, "No space left on device")

            for i, one in enumerate(batches):
                monkeypatch.setattr(folder.files, "sync", full)
                if i % 3 == 0:
                    monkeypatch.undo()
                try:
                    run.offer(one)
                    accepted.append(one)
                    found += all_of(run, run.step())
                except ss.SemistreamError as error:
                    errors += "No space left" in str(error)
                check_books(run)
            monkeypatch.undo()
            assert errors
            found += all_of(run, run.flush())
        naive.same_rows(found, joined(accepted, KEYS, "inner"))


class TestCrashes:
    def test_shed_tuples_return_in_a_new_run(self, tmp_path: Path) -> None:
        master, batches = table(tmp_path, range(400)), burst(30, 200)
        run = shedding_run(master, tmp_path / "shed", "keep")
        found = offer_all(run, batches, per_step=10)
        stored = run.stored + run._store.in_flight  # no tuple was acknowledged yet
        assert run.stored
        crash(run)
        with shedding_run(master, tmp_path / "shed", "keep") as again:
            assert again.stats.tuples_in == again.stats.shed == again.overload.recovered == stored
            check_books(again)
            returned = all_of(again, again.flush())
            assert again.stats.shed == 0
        twice = set(numbers(found)) & set(numbers(returned))
        assert len(twice) <= run._store.in_flight

    def test_a_returned_tuple_is_not_forgotten_before_it_is_served(self, tmp_path: Path) -> None:
        master, batches = table(tmp_path, range(400)), burst(30, 200)
        run = shedding_run(master, tmp_path / "shed", "keep", "meshjoin")
        offer_all(run, batches, per_step=31)
        stored = run.stored
        rows = run.flush()
        next(rows)  # tuples have returned, and the process dies
        crash(run)
        with shedding_run(master, tmp_path / "shed", "keep", "meshjoin") as again:
            assert again.stored == stored

    def test_a_run_goes_back_to_its_checkpoint(self, tmp_path: Path) -> None:
        """The caller keeps the rows up to the checkpoint and replays the stream after it."""
        master, batches = table(tmp_path, KEYS), burst(30, 200)
        options = {"recover": "checkpoint"}
        run = shedding_run(master, tmp_path / "shed", **options)
        found = offer_all(run, batches[:12])
        found += all_of(run, run.checkpoint())
        assert run.stats.waiting == 0
        assert run.stored
        offer_all(run, batches[12:20])  # these rows are lost with the process
        for _ in range(20):
            all_of(run, run.step())
        crash(run)
        with shedding_run(master, tmp_path / "shed", **options) as again:
            found += offer_all(again, batches[12:])
            found += all_of(again, again.flush())
        naive.same_rows(found, joined(batches, KEYS, "inner"))

    def test_two_runs_do_not_share_a_store(self, tmp_path: Path) -> None:
        master = table(tmp_path, KEYS)
        with (
            shedding_run(master, tmp_path / "shed"),
            pytest.raises(ss.ConfigError, match="in use by another run"),
        ):
            shedding_run(master, tmp_path / "shed")
        shedding_run(master, tmp_path / "shed").close()


class TestMemory:
    def test_the_buffer_is_part_of_the_budget(self, tmp_path: Path) -> None:
        master = table(tmp_path, KEYS)
        with shedding_run(master, tmp_path / "shed", memory=100_000, buffer=40_000) as run:
            assert run.memory.budget == 100_000
            assert run.plan.budget == 60_000
            run.offer(batch(range(100)))
            assert run.memory["stream buffer"] == 100 * 16

    def test_a_small_part_of_a_large_batch_does_not_keep_it_alive(self, tmp_path: Path) -> None:
        with shedding_run(table(tmp_path, KEYS), tmp_path / "shed") as run:
            run.offer(batch(range(100_000)).slice(500, 10))
            pushed = run._intake._batches[0].batch
            assert pushed.get_total_buffer_size() < 1000

    def test_budgets_that_are_too_small(self, tmp_path: Path) -> None:
        master = table(tmp_path, KEYS)
        with pytest.raises(ss.ConfigError, match="part of memory"):
            shedding_run(master, tmp_path / "shed", memory=10_000, buffer=10_000)
        with pytest.raises(ss.BudgetError, match="without the buffers, which take 9000 bytes"):
            shedding_run(master, tmp_path / "shed", memory=10_000, buffer=9_000)


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "sometimes"},
        {"mode": "keep", "store": None},
        {"mode": "keep", "position": 1.5},
        {"mode": "random", "rate": 0.0},
        {"mode": "keep", "sums": ["v"]},
        {"mode": "keep", "when_full": "cry"},
        {"mode": "keep", "recover": "never"},
    ],
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(ss.ConfigError):
        ss.Shedding(**{"store": "shed", **options})


@every_mode
def test_every_batch_may_have_a_dictionary_of_its_own(mode: str, tmp_path: Path) -> None:
    with shedding_run(table(tmp_path, KEYS), tmp_path / "shed", mode) as run:
        for first in range(0, 4000, 40):
            texts = pa.array([f"text {first + i}" for i in range(40)]).dictionary_encode()
            keys = batch([2 * (i % 100) for i in range(40)], first)
            assert run.offer(keys.append_column("text_of_tuple", texts))
        assert run.overload.shed > 1000
        rows = pa.Table.from_batches([*run.flush()]).sort_by("n")
    assert rows["n"].to_pylist() == list(range(4000))
    assert rows["text_of_tuple"].to_pylist() == [f"text {n}" for n in range(4000)]
