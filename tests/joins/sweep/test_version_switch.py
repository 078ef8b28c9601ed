"""Tuples of SweepJoin wait on while the table changes, and meet the rows of their own version."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import naive
import semistream as ss
from harness import build, check_books
from semistream.joins.sweep.growing_index import GrowingIndex
from semistream.master import code_list, logical_pages
from semistream.testing import RecordingObserver

KEYS = 20_000
PUSH = 500


def rows(keys: Any, version: int) -> pa.Table:
    keys = np.asarray(keys, np.int64)
    return pa.table({"k": keys, "v": keys * 1000 + version, "text": ["x" * 40] * len(keys)})


class Changing:
    """A run with waiting tuples, and what every tuple should meet."""

    def __init__(
        self, folder: Path, memory: int = 1_000_000, mapped: bool | str = False, **options: Any
    ) -> None:
        self.random = np.random.default_rng(1)
        self.versions = np.zeros(KEYS, np.int64)
        self.table = build(
            folder / "t", rows(np.arange(KEYS), 0), ["k"], unique=True, page_bytes=4096
        )
        self.observer = RecordingObserver()
        options = {"disk_buffer_pages": 8, **options}
        join = ss.SweepJoin(memory=memory, how="left", **options)
        opened = ss.MasterTable.open(self.table.path, mapped=mapped)
        self.run = join.open(opened, on="k", observer=self.observer)
        self.expected: list[tuple[int, int]] = []
        self.found: list[tuple[int, int]] = []
        self.iterations: list[int] = []
        self.has_text = False  # of the stream's tuples

    def push(self, keys: Any = None) -> None:
        keys = self.random.integers(0, KEYS, PUSH) if keys is None else np.asarray(keys)
        numbers = np.arange(len(keys)) + len(self.expected)
        values = keys * 1000 + self.versions[keys]
        self.expected += zip(numbers.tolist(), values.tolist(), strict=True)
        before = self.run.stats.iterations
        batch = pa.record_batch({"n": numbers, "k": keys})
        if self.has_text:
            batch = batch.append_column("t", pa.array([f"tuple {n}" for n in numbers]))
        self.take(self.run.push(batch))
        self.iterations.append(self.run.stats.iterations - before)
        check_books(self.run)

    def take(self, out: Any) -> None:
        for batch in out:
            self.found += zip(batch["n"].to_pylist(), batch["v"].to_pylist(), strict=True)
            if self.has_text:
                assert batch["t"].to_pylist() == [f"tuple {n}" for n in batch["n"].to_pylist()]

    def upsert(self, keys: Any) -> None:
        number = self.table.version
        self.versions[keys] = number
        self.table = self.table.upsert(rows(keys, number))

    def check(self) -> None:
        self.take(self.run.flush())
        assert sorted(self.found) == self.expected
        self.run.close()


@pytest.fixture
def changing(tmp_path: Path) -> Changing:
    return Changing(tmp_path)


def test_a_push_at_a_change_does_little_more_than_others(changing: Changing) -> None:
    """Measured in iterations: without it, the first push after a change empties the window."""
    for _ in range(80):
        changing.push()
    waited = changing.run.stats.waiting
    assert waited > 5 * PUSH
    changing.upsert(np.arange(0, 200, 2))
    changing.push()
    for _ in range(40):
        changing.push()
    steady = statistics.median(changing.iterations[-20:])
    at_changes = []
    for _ in range(12):
        changing.upsert(np.unique(changing.random.integers(0, KEYS, 30)))
        changing.push()
        at_changes.append(changing.iterations[-1])
        assert changing.run.stats.waiting > 5 * PUSH
        assert changing.run.version == changing.table.version
        changing.push()
        changing.push()
    assert max(at_changes) <= 3 * max(4, steady)
    assert len(changing.observer.named("version_changed")) == 13
    changing.check()


def test_a_push_at_a_change_visits_no_pages(tmp_path: Path) -> None:
    """After the first change: the pushes between have left room for its tuples."""
    changing = Changing(tmp_path, adapt=False)
    for _ in range(160):
        changing.push()
    steady = statistics.mean(changing.iterations[-40:])
    assert steady > 0.3
    for number in range(6):
        changing.upsert(np.unique(changing.random.integers(0, KEYS, 30)))
        for _ in range(30):
            changing.push()
        if number:
            assert changing.iterations[-30] == 0
    assert statistics.mean(changing.iterations[-150:]) < 1.5 * steady
    changing.check()


def test_lists_of_changed_codes_are_merged_between_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In steps, within the budget; what is found meanwhile is right."""
    monkeypatch.setattr(code_list, "_ADDED_AT_ONCE", 50)
    monkeypatch.setattr(code_list, "_MERGED_AT_ONCE", 60)
    changing = Changing(tmp_path, memory=2_000_000)
    for _ in range(40):
        changing.push()
    most_lists, taken = 0, 0
    for number in range(24):
        changing.upsert(np.unique(changing.random.integers(0, KEYS, 120)))
        for _ in range(3 if number % 2 else 12):
            changing.push(changing.random.choice(np.flatnonzero(changing.versions), PUSH))
            index = changing.run.source.index
            most_lists = max(most_lists, *(len(delta.codes.lists) for delta in index.deltas))
            taken = max(taken, index.merging_bytes)
            assert changing.run.memory.total <= changing.run.plan.budget
    assert most_lists > 1
    assert taken > 0
    for _ in range(200):
        changing.push()
    deltas = changing.run.source.index.deltas
    assert all(len(delta.codes.lists) == 1 and delta.codes.is_filtered for delta in deltas)
    assert changing.run.source.index.merging_bytes == 0
    changing.check()


def test_rows_of_an_older_version_are_not_remembered(tmp_path: Path) -> None:
    """Hot keys change while tuples wait for them: neither the old row nor the absence of a key
    may be cached for the tuples that come after the change."""
    changing = Changing(tmp_path)
    hot = np.arange(100, 140)
    changing.upsert(np.arange(5))
    changing.versions[:5] = 1
    for _ in range(30):
        changing.push()
    for _ in range(10):
        changing.push(np.repeat(hot, 5))
        changing.upsert(hot)
        changing.push(np.repeat(hot, 5))
        changing.push()
    changing.check()


def test_keys_that_appear_and_vanish_while_tuples_wait(tmp_path: Path) -> None:
    table = build(tmp_path / "t", rows(np.arange(0, KEYS, 2), 0), ["k"], unique=True)
    join = ss.SweepJoin(memory=700_000, how="left", disk_buffer_pages=2)
    random, found, expected = np.random.default_rng(3), [], []
    known = {key: key * 1000 for key in range(0, KEYS, 2)}
    odd = np.arange(1, KEYS, 400)
    with join.open(table, on="k") as run:
        for number in range(60):
            keys = np.concatenate([random.integers(0, KEYS, 300), np.repeat(odd, 2)])
            numbers = np.arange(len(keys)) + len(expected)
            expected += [(n, known.get(int(k))) for n, k in zip(numbers, keys, strict=True)]
            found += naive.rows_of(run.push(pa.record_batch({"n": numbers, "k": keys})))
            if number % 6 == 3:
                table = table.upsert(rows(odd, number))
                known.update({int(k): int(k) * 1000 + number for k in odd})
            elif number % 6 == 5:
                table = table.delete(pa.array(odd))
                for k in odd:
                    known.pop(int(k), None)
        found += naive.rows_of(run.flush())
    assert sorted((row[0], row[2]) for row in found) == expected


def test_a_new_base_is_not_mixed_with_the_old_one(changing: Changing) -> None:
    for _ in range(40):
        changing.push()
    changing.upsert(np.arange(0, 100))
    changing.push()
    changing.table = changing.table.compact()
    changing.push()
    assert changing.run.version == changing.table.version
    changing.check()


def test_a_switch_that_is_given_up(changing: Changing) -> None:
    """The queued batch is joined with the old version after all."""
    changing.upsert(np.arange(50))
    for _ in range(40):
        changing.push()
    changing.upsert(np.arange(100))
    version, run = changing.run.version, changing.run
    numbers = np.arange(PUSH) + len(changing.expected)
    list(
        zip(range(1), run.push(pa.record_batch({"n": numbers, "k": numbers % KEYS})), strict=False)
    )
    run.use(version)
    changing.take(run.flush())
    assert run.stats.waiting == 0


@pytest.mark.parametrize("mapped", [False, "resident"])
def test_larger_pages_in_a_delta_do_not_empty_the_window(
    mapped: bool | str, tmp_path: Path
) -> None:
    """Stretches keep their number of pages, though the largest page of the table is another."""
    changing = Changing(tmp_path, mapped=mapped, disk_buffer_pages=None)
    for _ in range(80):
        changing.push()
    assert changing.run.stats.waiting > 5 * PUSH
    largest = changing.table.max_page_bytes
    for number in range(20, 60):
        keys = np.arange(number, number + 60)
        changing.versions[keys] = changing.table.version
        # As wide as the rows of the base at most, and of all sizes: so pages are, too.
        wide = rows(keys, changing.table.version)
        wide = wide.set_column(2, "text", pa.array(["x" * (number % 40) for _ in keys]))
        changing.table = changing.table.upsert(wide)
        changing.push()
        assert changing.run.stats.waiting > 5 * PUSH
    assert changing.table.max_page_bytes > largest
    changing.check()


def test_tuples_wait_on_for_deltas_that_are_not_folded(tmp_path: Path) -> None:
    """A large delta stays when small ones follow: its tuples wait on, too, and what they meet of
    keys that have changed since is not remembered."""
    changing = Changing(tmp_path)
    old = np.arange(0, KEYS, 3)
    changing.upsert(old)
    hot = old[1000:1010]
    for _ in range(40):
        changing.push()
    for _ in range(12):
        for _ in range(3):
            changing.push(np.concatenate([np.repeat(hot, 3), changing.random.choice(old, 400)]))
        changing.upsert(hot)
        changing.push()
        assert changing.run.stats.waiting > 5 * PUSH
        # What waits for the large delta alone would be served otherwise: a third and more.
        assert max(changing.iterations[-4:]) < 20
    changing.check()


@pytest.mark.parametrize("mapped", [False, True, "resident"])
def test_tuples_wait_on_for_deltas_that_are_folded(mapped: bool | str, tmp_path: Path) -> None:
    """The pages of a folded delta stay until its tuples are served, though its file is deleted,
    and though the next change comes before."""
    changing = Changing(tmp_path, mapped=mapped, adapt=False)
    part = np.arange(0, KEYS, 3)
    changing.upsert(part)
    for _ in range(60):
        changing.push()
    for round_ in range(6):
        waited = changing.run.stats.waiting
        assert waited > 5 * PUSH
        keys = part[:3400] if round_ % 2 else part[-3400:]
        changing.upsert(keys)  # folds the large delta, and changes keys again
        assert len(changing.table.manifest.deltas) == 1
        changing.table.vacuum(keep=1)
        changing.push()
        # More than a third of the tuples waited for the folded delta.
        assert changing.run.stats.waiting > 0.9 * waited
        assert changing.iterations[-1] <= 12
        for _ in range(1 if round_ == 3 else 60):  # 1: some still wait at the next switch
            changing.push()
    changing.check()


def folded_pages(run: Any) -> int:
    index = run.source.index
    return len(index.firsts) - index.own_pages


@pytest.mark.parametrize("most", [1, 2, 16])
def test_deltas_of_several_changes_are_kept_while_tuples_wait_for_them(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every change folds all deltas before, and comes while tuples wait for some of them. If they
    are too many, tuples of the oldest are served first."""
    monkeypatch.setattr(logical_pages, "_MOST_FOLDED", most)
    changing = Changing(tmp_path, memory=1_500_000, adapt=False)
    part = np.arange(0, KEYS, 6)
    changing.upsert(part)
    for _ in range(160):
        changing.push()
    kept, waited = 0, changing.run.stats.waiting
    for round_ in range(8):
        changing.upsert(part[:1700] if round_ % 2 else part[-1700:])
        assert len(changing.table.manifest.deltas) == 1
        changing.table.vacuum(keep=1)
        for _ in range(2):
            changing.push()
            assert changing.run.memory.total <= changing.run.memory.budget
        deltas = len(changing.run.source.index.boundaries)
        assert deltas <= 1 + most
        kept = max(kept, deltas - 1)
        if most == 16:
            assert changing.run.stats.waiting > 0.7 * waited
            assert max(changing.iterations[-2:]) <= 3
    assert kept >= min(most, 6)
    for _ in range(160):
        changing.push()
    changing.upsert([5])  # the next change drops what no tuple waits for
    changing.push()
    assert folded_pages(changing.run) == 0
    changing.check()


def test_a_vacuum_between_two_pushes_does_not_empty_the_front_stage(changing: Changing) -> None:
    hot = np.arange(100, 120)
    changing.upsert(np.arange(2000, 2200))
    for _ in range(30):
        changing.push(np.repeat(hot, 25))
    changing.take(changing.run.flush())
    for key in (1, 2, 3, 4, 5, 6, 7, 100):
        changing.upsert([key])
    changing.table.vacuum(keep=1)
    hits = changing.run.stats.front_stage_hits
    changing.push(hot)
    assert changing.run.stats.front_stage_hits - hits >= len(hot) - 2
    changing.check()


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
@pytest.mark.parametrize("has_text", [False, True])
def test_the_window_gives_way_to_an_index_that_grows(
    has_text: bool, seed: int, tmp_path: Path
) -> None:
    """Many keys change, so that their index outgrows its part: the window becomes smaller while
    tuples wait, in every push a little, and the budget holds."""
    changing = Changing(tmp_path, adapt=False)
    changing.random, changing.has_text = np.random.default_rng(seed), has_text
    for _ in range(80):
        changing.push()
    before = changing.run.memory
    for _ in range(40):
        changing.upsert(np.unique(changing.random.integers(0, KEYS, 250)))
        changing.push()
        changing.push()
        assert changing.run.stats.waiting > 2 * PUSH
        assert changing.run.memory.total <= changing.run.memory.budget
    after = changing.run.memory
    assert after["page index"] > before["page index"] + 60_000
    assert after["window"] < before["window"] - 50_000
    # A sweep has more than 40 visits; when all deltas are folded, their tuples are served before.
    assert max(changing.iterations[-80:]) <= 25
    changing.check()


def test_the_window_gives_way_before_the_next_change_needs_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a change every 40 pushes, after the first ones none makes the window smaller itself."""
    changing = Changing(tmp_path, adapt=False)
    at_switches, ahead = [], []
    monkeypatch.setattr(GrowingIndex, "shrink", noting(at_switches, GrowingIndex.shrink))
    monkeypatch.setattr(GrowingIndex, "give_ahead", noting(ahead, GrowingIndex.give_ahead))
    for number in range(12):
        for _ in range(40):
            changing.push()
            memory = changing.run.memory
            assert memory.total <= memory.budget
            assert changing.run.plan.window.nbytes == memory["window"]
        if number == 4:
            at_switches.clear()
        changing.upsert(np.arange(number * 300, number * 300 + 300))
    assert at_switches == []
    assert sum(ahead) >= 5
    changing.check()


def noting(results: list[Any], method: Any) -> Any:
    def noted(*arguments: Any) -> Any:
        results.append(method(*arguments))
        return results[-1]

    return noted


def test_a_version_that_cannot_be_attached_loses_no_tuple(
    changing: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    changing.upsert(np.arange(50))
    for _ in range(40):
        changing.push()
    waiting = changing.run.stats.waiting
    assert waiting > 5 * PUSH
    changing.upsert(np.arange(100, 150))

    def fails(*_: Any) -> Any:
        monkeypatch.undo()
        raise MemoryError

    monkeypatch.setattr(ss.MasterTable, "reader", fails)
    with pytest.raises(MemoryError):
        changing.push()
    changing.iterations.append(0)
    changing.push()
    changing.check()
