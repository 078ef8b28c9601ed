"""Distributions of keys: against exact sums, and recovered from samples."""

from __future__ import annotations

import math

import numpy as np
import pytest

import semistream as ss
from semistream import workload
from semistream.cost.keys import Keys, from_sample, poisson_tail, uniform, zipf


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.3])
def test_zipf_is_the_sum_over_all_ranks(exponent: float) -> None:
    ranks = np.arange(1, 100_001, dtype=float) ** -exponent
    exact = ranks / ranks.sum()
    keys = zipf(100_000, exponent)
    assert keys.mass.sum() == pytest.approx(1.0)
    assert keys.counts.sum() == 100_000
    for count in (1, 10, 300, 5_000, 99_000):
        assert keys.top(count) == pytest.approx(exact[:count].sum(), rel=2e-3)
    distinct = -np.expm1(-exact * 20_000)
    assert keys.distinct(20_000) == pytest.approx(distinct.sum(), rel=2e-3)


def test_uniform_has_no_top() -> None:
    assert uniform(1_000).top(250) == pytest.approx(0.25)
    assert uniform(1_000).top(0) == 0.0


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("tuples", [5_000, 100_000])
def test_a_sample_shows_the_distribution_behind_it(exponent: float, tuples: int) -> None:
    domain = 200_000
    sample = workload.zipf(tuples, domain, exponent, seed=3)
    counts = np.unique(sample, return_counts=True)[1]
    found, true = from_sample(counts, domain), zipf(domain, exponent)
    assert found.mass.sum() == pytest.approx(1.0)
    for count in (2_000, 20_000, 100_000):
        assert found.top(count) == pytest.approx(true.top(count), abs=0.06)
    assert found.distinct(300_000) == pytest.approx(true.distinct(300_000), rel=0.12)


def test_a_sample_of_few_keys_is_taken_as_it_is() -> None:
    keys = from_sample([600, 300, 100], 1_000_000)
    assert keys.top(1) == pytest.approx(0.6)
    assert keys.top(3) == pytest.approx(1.0)


def test_a_sample_of_ten_tuples_is_taken_as_uniform() -> None:
    assert from_sample(np.ones(10), 10_000).top(1_000) == pytest.approx(0.1, abs=0.02)


def test_a_sample_without_a_tuple_is_refused() -> None:
    with pytest.raises(ss.ConfigError, match="no tuple with a key of the table"):
        from_sample([], 100)
    with pytest.raises(ss.ConfigError, match="exponent"):
        zipf(100, -1.0)


@pytest.mark.parametrize("least", [0, 1, 3, 12, 60])
def test_poisson_tail(least: int) -> None:
    for mean in (0.3, 4.0, 45.0, 70.0):
        below = sum(math.exp(-mean + i * math.log(mean) - math.lgamma(i + 1)) for i in range(least))
        assert float(poisson_tail(mean, least)) == pytest.approx(1 - below, abs=0.02)


def test_what_a_front_stage_holds_leaves_the_stream() -> None:
    keys = Keys.of([1, 1, 2], [4.0, 2.0, 1.0])
    missed, served = keys.without([1.0, 0.0, 0.5])
    assert served == pytest.approx(0.5 + 0.125)
    assert missed.mass.sum() == pytest.approx(1.0)
    assert missed.top(1) == pytest.approx(0.25 / 0.375)
