"""Random shedding: the sample has the rate, and the interval covers the truth."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import naive
import semistream as ss
from overload.kit import all_of, batch, joined, shedding_run, table
from semistream.overload.options import Shedding
from semistream.overload.sample import GROUPS, Sample


def simulate(seed: int, rate: float, tuples: int) -> tuple[bool, bool, float]:
    """Whether the intervals of rows and of a sum cover the truth; the relative width."""
    sample = Sample(Shedding("random", "unused", rate=rate, seed=seed, sums=("v",)))
    chance = np.random.default_rng(1000 + seed)
    fan_out = chance.choice([0, 1, 1, 1, 5], tuples)  # rows of a tuple: they come together
    value = chance.exponential(10.0, tuples)
    everything = pa.record_batch({"v": value, "fan_out": fan_out})
    kept, others = sample.choose(sample.marked(everything, -1))
    sample.kept(kept)
    rows = np.repeat(np.arange(kept.num_rows), kept.column("fan_out").to_numpy())
    for start in range(0, len(rows), 100):
        sample.observe(kept.take(pa.array(rows[start : start + 100])))
    found = sample.estimate(others.num_rows)
    true_rows, true_sum = float(fan_out.sum()), float((fan_out * value).sum())
    sums = found.sums["v"]
    return (
        found.rows.low <= true_rows <= found.rows.high,
        sums.low <= true_sum <= sums.high,
        (found.rows.high - found.rows.low) / true_rows,
    )


@pytest.mark.parametrize(("rate", "tuples"), [(0.1, 5_000), (0.5, 2_000)])
def test_intervals_cover_the_truth_in_95_percent_of_runs(rate: float, tuples: int) -> None:
    runs = 300
    found = [simulate(seed, rate, tuples) for seed in range(runs)]
    noise = 3 * math.sqrt(0.05 * 0.95 / runs)
    for which in (0, 1):
        share = sum(run[which] for run in found) / runs
        assert 0.95 - noise <= share <= min(1.0, 0.95 + noise), share
    assert 0 < np.mean([run[2] for run in found]) < 0.5


def test_a_sample_has_its_rate() -> None:
    sample = Sample(Shedding("random", "unused", rate=0.2, seed=1))
    kept, others = sample.choose(sample.marked(pa.record_batch({"a": range(100_000)}), -1))
    assert kept.num_rows + others.num_rows == 100_000
    assert abs(kept.num_rows - 20_000) < 500
    groups = kept.column(1).to_numpy()
    assert (groups.min(), groups.max()) == (0, GROUPS - 1)


def test_a_run_estimates_the_full_join(tmp_path: Path) -> None:
    keys = range(0, 400, 2)
    master, chance = table(tmp_path, keys), np.random.default_rng(5)
    covered, runs = 0, 2
    for seed in range(runs):
        batches = [batch(chance.integers(0, 400, 200).tolist(), i) for i in range(0, 8000, 200)]
        options = {"rate": 0.3, "seed": seed, "sums": ["v"]}
        with shedding_run(master, tmp_path / str(seed), "random", **options) as run:
            found: naive.Rows = []
            for number, one in enumerate(batches):
                run.offer(one)
                if number % 4 == 3:
                    found += all_of(run, run.step())
            found += all_of(run, run.drain())
            truth = joined(batches, keys, "inner")
            guess = run.estimate()
            assert guess.unseen == run.stored > 500
            assert len(found) < guess.rows.low < guess.rows.high
            covered += guess.rows.low <= len(truth) <= guess.rows.high
            total = sum(row[2] for row in truth)
            assert abs(guess.sums["v"].value - total) < 0.25 * total
            found += all_of(run, run.flush())
            exact = run.estimate()
            assert exact.unseen == 0
            assert exact.rows.low == exact.rows.value == exact.rows.high == len(truth)
            assert exact.sums["v"].value == total
            naive.same_rows(found, truth)
    assert covered >= runs - 1


@pytest.mark.slow
def test_the_intervals_of_runs_cover_the_truth(tmp_path: Path) -> None:
    """Overload comes and goes; a sum of values that vary from row to row."""
    keys = range(0, 400, 2)
    master, runs = table(tmp_path, keys), 150
    covered = np.zeros(2)
    for seed in range(runs):
        chance = np.random.default_rng(1000 + seed)
        batches = [batch(chance.integers(0, 400, 200).tolist(), i) for i in range(0, 6000, 200)]
        options = {"rate": 0.3, "seed": seed, "sums": ["v"]}
        with shedding_run(master, tmp_path / str(seed), "random", memory=88_000, **options) as run:
            for number, one in enumerate(batches):
                run.offer(one)
                if chance.random() < 0.3 or number in (8, 9, 10):
                    for _ in run.step():
                        pass
            for _ in run.drain():
                pass
            guess = run.estimate()
            assert guess.unseen > 300
            truth = joined(batches, keys, "inner")
            true = (len(truth), sum(row[2] for row in truth))
            found = (guess.rows, guess.sums["v"])
            covered += [one.low <= t <= one.high for one, t in zip(found, true, strict=True)]
    noise = 3 * math.sqrt(0.05 * 0.95 / runs)
    assert (covered / runs >= 0.95 - noise).all(), covered / runs


def test_the_batch_that_finds_no_room_is_sampled(tmp_path: Path) -> None:
    """Not only those after it: the next iteration may end the overload."""
    keys = range(0, 400, 2)
    master, chance = table(tmp_path, keys), np.random.default_rng(7)
    with shedding_run(master, tmp_path / "shed", "random", rate=0.3, seed=1) as run:
        batches = [batch(chance.integers(0, 400, 200).tolist(), i) for i in range(0, 4000, 200)]
        found: naive.Rows = []
        for number, one in enumerate(batches):
            run.offer(one)
            while run.buffered and number % 3 == 2:
                found += all_of(run, run.step())
        found += all_of(run, run.drain())
        guess = run.estimate()
        assert guess.unseen == run.stored > 300
        truth = joined(batches, keys, "inner")
        assert len(found) < len(truth)
        assert guess.rows.low <= len(truth) <= guess.rows.high
        found += all_of(run, run.flush())
        naive.same_rows(found, truth)


def test_when_there_is_nothing_to_estimate(tmp_path: Path) -> None:
    master = table(tmp_path)
    with shedding_run(master, tmp_path / "a", "keep") as run:
        run.offer(batch([1]))
        with pytest.raises(ss.ConfigError, match="needs mode 'random'"):
            run.estimate()
    with shedding_run(master, tmp_path / "b", "random") as run:
        run.offer(batch([1]))
        with pytest.raises(ss.ConfigError, match="1 tuples wait in memory"):
            run.estimate()
        all_of(run, run.drain())
        assert run.estimate().rows.value == 1
    with (
        shedding_run(master, tmp_path / "c", "random", sums=["x"]) as run,
        pytest.raises(ss.ConfigError, match="no column 'x'"),
    ):
        all_of(run, run.push(batch([1])))
        all_of(run, run.flush())
