"""Bounds of load shedding: of its buffer, of its folder, and of what it may remove there."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import naive
import semistream as ss
from disks import small_disk
from harness import check_books
from overload.kit import all_of, batch, crash, joined, shedding_run, table
from overload.test_shedding_run import KEYS, burst, offer_all


def test_a_batch_that_can_never_fit_is_an_error(tmp_path: Path) -> None:
    """False would mean: later. A caller who tries again after every step would never end."""
    with shedding_run(table(tmp_path, KEYS), tmp_path / "shed", "off") as run:
        with pytest.raises(ss.ConfigError, match="does not fit into the buffer"):
            run.offer(batch([1] * 5000))
        assert run.stats.tuples_in == 0
        assert run.offer(batch([1] * 300))
        with pytest.raises(ss.ConfigError, match="does not fit into the buffer"):
            run.offer(batch([1] * 5000))


@pytest.mark.parametrize("algorithm", ["hybridjoin", "sweepjoin"])
def test_an_empty_batch_does_not_raise_the_memory_use(algorithm: str, tmp_path: Path) -> None:
    options = {"memory": 260_000, "buffer": 20_000}
    with shedding_run(
        table(tmp_path, range(4000)), tmp_path / "shed", "considering", algorithm, **options
    ) as run:
        for start in range(0, 4000, 400):
            all_of(run, run.push(batch(range(start, start + 400))))
        for turn in range(20):
            for size in (300, 300, 20):
                run.offer(batch([(997 * turn + 7 * i) % 4000 for i in range(size)]))
            run.offer(batch([]))
            all_of(run, run.step())
        assert run.overload.shed
        assert run.overload.peak_buffer <= 20_000


def test_a_few_shed_tuples_do_not_keep_their_batch_alive(tmp_path: Path) -> None:
    """A slight overload: every batch loses its last tuples."""
    with shedding_run(table(tmp_path, KEYS), tmp_path / "shed", "keep", buffer=40_000) as run:
        for start in range(0, 4000, 1000):
            run.offer(batch(range(1000), start))
            run._withdraw(10)
            all_of(run, run.inner.flush())
        assert run._outbox.rows == 40
        assert sum(part.get_total_buffer_size() for part in run._outbox) < 2_000


@pytest.mark.parametrize("when_full", ["raise", "drop"])
def test_a_checkpoint_serves_what_the_folder_has_no_room_for(
    when_full: str, tmp_path: Path
) -> None:
    batches = burst(3, 200)
    options = {"limit": 1_000, "when_full": when_full}
    with shedding_run(table(tmp_path, KEYS), tmp_path / "shed", "keep", **options) as run:
        for one in batches:
            run.offer(one)
        found = all_of(run, run.checkpoint())
        assert run.overload.dropped == run.stats.waiting == 0
        found += all_of(run, run.flush())
    naive.same_rows(found, joined(batches, KEYS, "inner"))


def test_a_stream_without_pause_frees_the_folder(tmp_path: Path) -> None:
    """Bursts come again and again, and in between tuples return, but something always waits."""
    master, offered, found, steps = table(tmp_path, KEYS), [], [], 0
    with shedding_run(master, tmp_path / "shed", "keep", "meshjoin", limit=90_000) as run:
        for number, one in enumerate(burst(150, 200)):
            run.offer(one)
            offered.append(one)
            if number % 15 < 14:
                continue
            while run.stored:
                run.offer(batch([number]))
                offered.append(batch([number]))
                found += all_of(run, run.step())
                steps += 1
                assert steps < 5_000
        assert run.overload.shed * 16 > 90_000
        found += all_of(run, run.flush())
    naive.same_rows(found, joined(offered, KEYS, "inner"))


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "shed"
    folder.mkdir()
    names = ["2024.arrow", "letter.draft", "notes.txt"]
    for name in names:
        (folder / name).write_text("mine")
    for recover in ("all", "checkpoint"):
        with shedding_run(table(tmp_path / recover, KEYS), folder, recover=recover) as run:
            offer_all(run, burst(30, 200))
            all_of(run, run.flush())
            all_of(run, run.checkpoint())
            check_books(run)
    assert [(folder / name).read_text() for name in names] == ["mine"] * 3


def test_shed_and_parked_tuples_need_a_folder_each(tmp_path: Path) -> None:
    master, folder = table(tmp_path, KEYS), tmp_path / "both"
    shedding, parking = ss.Shedding("keep", store=folder), ss.Parking(folder, buffer=20_000)
    join = ss.SweepJoin(memory=200_000)
    with pytest.raises(ss.ConfigError, match="a folder each"):
        join.open(
            master, on="k", shedding=shedding, buffer=20_000, unmatched="park", parking=parking
        )
    with join.open(master, on="k", unmatched="park", parking=parking) as run:
        all_of(run, run.push(batch([1])))
        all_of(run, run.flush())
    for _ in range(2):
        with pytest.raises(ss.ConfigError, match="a folder each"):
            join.open(master, on="k", shedding=shedding, buffer=20_000)


def test_batches_with_different_dictionaries_in_one_file(tmp_path: Path) -> None:
    offered, found = [], []
    with shedding_run(table(tmp_path), tmp_path / "shed", "keep", memory=300_000) as run:
        for start in range(0, 3600, 60):
            one = batch([i % 400 for i in range(start, start + 60)], start)
            words = [f"{start} {i % 7}" for i in range(60)]
            one = one.append_column("c", pa.array(words).dictionary_encode())
            offered += one.to_pylist()
            run.offer(one)
        assert run.overload.shed
        for rows in run.flush():
            found += rows.select(["n", "k", "c"]).to_pylist()
    assert sorted(found, key=lambda row: row["n"]) == offered


@pytest.mark.parametrize("mode", ["considering", "keep", "random"])
def test_a_disk_that_is_full_to_the_last_byte(mode: str, tmp_path: Path) -> None:
    batches, accepted, found, errors = burst(40, 200), [], [], 0
    with (
        small_disk(tmp_path / "disk", 1 << 20) as disk,
        shedding_run(table(tmp_path, KEYS), disk.path / "shed", mode, "hybridjoin") as run,
    ):
        for i, one in enumerate(batches):
            if i == 10:
                disk.fill()
            if i == 30:
                disk.make_room()
            try:
                run.offer(one)
                accepted.append(one)
                found += all_of(run, run.step())
            except ss.SemistreamError as error:
                errors += "No space left" in str(error)
            check_books(run)
        assert errors
        found += all_of(run, run.flush())
    naive.same_rows(found, joined(accepted, KEYS, "inner"))


class TestEstimates:
    def test_a_checkpoint_does_not_bias_them(self, tmp_path: Path) -> None:
        """Every tuple has one row."""
        batches = [batch(range(200), i) for i in range(0, 8000, 200)]
        with shedding_run(table(tmp_path), tmp_path / "shed", "random", seed=1) as run:
            for i, one in enumerate(batches):
                run.offer(one)
                if i % 10 == 9:
                    all_of(run, run.step())
            all_of(run, run.checkpoint())
            guess = run.estimate()
            assert guess.unseen
            assert guess.rows.value == pytest.approx(8000)

    def test_dropped_tuples_stay_estimated(self, tmp_path: Path) -> None:
        batches = [batch(range(200), i) for i in range(0, 8000, 200)]
        options = {"seed": 1, "limit": 20_000, "when_full": "drop"}
        with shedding_run(table(tmp_path), tmp_path / "shed", "random", **options) as run:
            offer_all(run, batches, per_step=10)
            all_of(run, run.flush())
            all_of(run, run.step())
            assert run.estimate().unseen == run.overload.dropped > 0
            assert run.estimate().rows.value == pytest.approx(8000)


def test_a_damaged_file_can_be_given_up(tmp_path: Path) -> None:
    """The message says how, and it works."""
    master = table(tmp_path, KEYS)
    run = shedding_run(master, tmp_path / "shed", "keep", recover="checkpoint")
    for one in burst(20, 200):
        run.offer(one)
    all_of(run, run.checkpoint())
    stored = run.stored
    crash(run)
    first = min((tmp_path / "shed").glob("*.arrow"))
    first.write_bytes(b"damaged")
    with pytest.raises(ss.SemistreamError, match=r"from checkpoint\.json"):
        shedding_run(master, tmp_path / "shed", "keep", recover="checkpoint")
    first.unlink()
    with pytest.raises(ss.SemistreamError, match=r"from checkpoint\.json"):
        shedding_run(master, tmp_path / "shed", "keep", recover="checkpoint")
    path = tmp_path / "shed" / "checkpoint.json"
    content = json.loads(path.read_text())
    del content["live"][str(int(first.stem))]
    path.write_text(json.dumps(content))
    with shedding_run(master, tmp_path / "shed", "keep", recover="checkpoint") as again:
        assert 0 < again.stored < stored
