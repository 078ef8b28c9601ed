"""Hot keys that move: sub-domains by interval, and a shifting hot set."""

from __future__ import annotations

import numpy as np
import pytest

from semistream.errors import ConfigError
from semistream.workload import locality
from workload.statistics import chi_square_deviation, zipf_probabilities


@pytest.mark.parametrize("domain", [1_000, 1_003])
@pytest.mark.parametrize("scattered", [False, True])
def test_each_interval_keeps_to_its_sub_domain(domain: int, scattered: bool) -> None:
    keys = locality.intervals(domain, 500, count=7, scattered=scattered)(0, 3_500)
    edges = [domain * i // 7 for i in range(8)]
    for i in range(7):
        part = keys[500 * i : 500 * (i + 1)]
        assert part.min() > edges[i]
        assert part.max() <= edges[i + 1]


def test_intervals_are_zipfian_inside() -> None:
    keys = locality.intervals(100_000, 200_000, count=25, seed=3)(400_000, 200_000)
    deviation = chi_square_deviation(keys - 8_000, zipf_probabilities(4_000, 1.0))
    assert abs(deviation) < 4


def test_the_first_interval_comes_again_after_the_last() -> None:
    keys = locality.intervals(100, 10, count=4)
    assert keys(40, 10).max() <= 25


def test_the_hot_set_shifts() -> None:
    keys = locality.shifting(10_000, every=50_000, by=100, seed=1)(0, 150_000)
    hottest = [np.bincount(part).argmax() for part in np.split(keys, 3)]
    assert hottest == [1, 101, 201]


def test_a_shifted_and_scattered_hot_set_is_a_new_one() -> None:
    keys = locality.shifting(10_000, every=50_000, by=1_000, seed=1, scattered=True)(0, 100_000)
    before, after = (set(np.bincount(part).argsort()[-50:]) for part in np.split(keys, 2))
    assert len(before & after) < 25


@pytest.mark.parametrize("make", [locality.intervals, locality.shifting])
def test_any_part_can_be_replayed(make) -> None:
    keys = make(1_000, 100)
    whole = keys(250, 700)
    parts = [keys(250, 3), keys(253, 0), keys(253, 597), keys(850, 100)]
    assert np.concatenate(parts).tobytes() == whole.tobytes()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: locality.intervals(0), "domain=0"),
        (lambda: locality.intervals(10, count=11), "count=11"),
        (lambda: locality.intervals(10, 0), "tuples_per_interval=0"),
        (lambda: locality.intervals(10, 1, 1, exponent=-1), "exponent=-1"),
        (lambda: locality.shifting(10, every=0), "every=0"),
        (lambda: locality.shifting(10, by=-1), "by=-1"),
    ],
)
def test_bad_input(call, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        call()
    assert said in str(error.value)
