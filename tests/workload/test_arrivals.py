"""Arrivals: the right rate, the right burstiness, nothing lost between steps."""

from __future__ import annotations

import hashlib
import heapq

import numpy as np
import pyarrow as pa
import pytest

from semistream.errors import ConfigError
from semistream.workload import arrivals
from semistream.workload.stream import sales
from workload.statistics import hurst


@pytest.mark.parametrize("seed", range(3))
def test_bursty_is_self_similar_and_poisson_is_not(seed: int) -> None:
    assert hurst(arrivals.bursty(100_000, rate=100, seed=seed)) > 0.85
    assert 0.45 < hurst(arrivals.poisson(100_000, rate=100, seed=seed)) < 0.55


def test_bursts_end_at_the_slowest_source() -> None:
    counts = arrivals.bursty(400_000, sources=4, seed=1)
    coarse = counts.reshape(-1, 100).sum(axis=1)
    assert hurst(counts, scales=3) > 0.8
    assert hurst(coarse, scales=6) < 0.6


def test_bursty_uses_the_bandwidths_of_the_paper() -> None:
    counts = arrivals.bursty(200_000, sources=10, seed=0)
    assert counts.min() == 0
    assert counts.max() == 2**11 - 2
    assert counts.mean() == pytest.approx(2**10 - 1, rel=0.05)
    assert (counts % 2 == 0).all()


def test_bursty_switches_as_often_as_sources_in_a_priority_queue_do() -> None:
    steps, generator = 20_000, np.random.default_rng(1)
    queue = [(0.0, bandwidth, False) for bandwidth in (2, 4, 8, 16, 32)]
    reference = np.zeros(steps, np.int64)
    total = 0
    for step in range(steps):
        while queue[0][0] <= step:
            when, bandwidth, on = heapq.heappop(queue)
            total += -bandwidth if on else bandwidth
            heapq.heappush(queue, (when + generator.random() * bandwidth, bandwidth, not on))
        reference[step] = total
    counts = arrivals.bursty(steps, sources=5, seed=1)
    assert counts.mean() == pytest.approx(reference.mean(), rel=0.05)
    assert counts.std() == pytest.approx(reference.std(), rel=0.05)
    changes, expected = np.abs(np.diff(counts)).mean(), np.abs(np.diff(reference)).mean()
    assert changes == pytest.approx(expected, rel=0.05)


def test_poisson_has_its_mean_as_variance() -> None:
    for rate in (0.1, 3.0, 250.0):
        counts = arrivals.poisson(100_000, rate, seed=6)
        assert counts.mean() == pytest.approx(rate, rel=0.03)
        assert counts.var() == pytest.approx(rate, rel=0.03)


def test_constant_carries_fractions() -> None:
    counts = arrivals.constant(1_000, rate=0.3)
    assert counts.sum() == 300
    assert set(counts.tolist()) == {0, 1}


def test_on_off_is_off_for_its_share() -> None:
    counts = arrivals.on_off(500_000, rate=4, on_steps=20, off_steps=60, seed=2)
    assert (counts == 0).mean() == pytest.approx(0.75, abs=0.02)
    assert set(counts.tolist()) == {0, 4}
    switches = np.flatnonzero(np.diff(counts != 0))
    assert np.diff(switches)[::2].mean() == pytest.approx(60, rel=0.06)
    assert np.diff(switches)[1::2].mean() == pytest.approx(20, rel=0.06)


@pytest.mark.parametrize("kind", ["constant", "poisson", "bursty", "on-off"])
def test_longer_runs_begin_with_the_shorter_and_replay(kind: str) -> None:
    process = arrivals.by_name(kind, rate=7.3, seed=5)
    assert process(3_000)[:1_000].tobytes() == process(1_000).tobytes()
    counts = arrivals.until(12_345, process)
    assert counts.sum() == 12_345
    assert counts[-1] > 0
    assert np.array_equal(counts[:-1], process(counts.size)[:-1])


def test_the_same_bytes_on_every_machine() -> None:
    digest = hashlib.sha256()
    for kind in ("constant", "poisson", "bursty", "on-off"):
        digest.update(arrivals.by_name(kind, 7.3, 5)(5_000).astype("<i8").tobytes())
    assert digest.hexdigest()[:16] == "b36d98ad8c8f6bc1"


def test_timestamps_stay_in_their_step_and_in_order() -> None:
    counts = arrivals.poisson(500, rate=20, seed=1)
    times = arrivals.timestamps(counts, step_seconds=0.01)
    assert (np.diff(times) >= 0).all()
    assert np.array_equal(np.bincount(times // 10_000_000, minlength=500), counts)


def test_cut_loses_nothing() -> None:
    counts = arrivals.on_off(400, rate=30, on_steps=5, off_steps=5, seed=1)
    stream = list(sales(5_000, products=100, batch_rows=777))
    pieces = list(arrivals.cut(stream, counts))
    assert [piece.num_rows for piece in pieces[:50]] == counts[:50].tolist()
    assert pa.Table.from_batches(pieces).equals(pa.Table.from_batches(stream))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: arrivals.constant(10, 0), "rate=0 cannot be used; give a number above 0"),
        (lambda: arrivals.poisson(10, -1), "rate=-1"),
        (lambda: arrivals.bursty(10, 0), "rate=0"),
        (lambda: arrivals.bursty(-1), "steps=-1"),
        (lambda: arrivals.bursty(10, sources=0), "sources=0"),
        (lambda: arrivals.on_off(10, 1, on_steps=0), "on_steps=0"),
        (lambda: arrivals.by_name("odd", 1), "arrivals='odd' is unknown"),
        (lambda: arrivals.timestamps(np.array([1]), 0), "step_seconds=0"),
        (lambda: arrivals.timestamps(np.array([1]), 1e-12), "below a nanosecond"),
    ],
)
def test_bad_input(call, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        call()
    assert said in str(error.value)
