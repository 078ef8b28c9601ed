"""Keys follow Zipf's law exactly, replay exactly, and are generated fast."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import ConfigError
from semistream.workload import scatter, zipf, zipf_at
from workload.statistics import chi_square_deviation, zipf_probabilities

N = 1_000_000
EXPONENTS = (0.0, 0.5, 0.8, 1.0, 1.2)


@pytest.mark.parametrize("domain", [10, 20_000])
@pytest.mark.parametrize("exponent", [*EXPONENTS, 0.999_999, 1.000_001, 2.5])
def test_ranks_follow_the_law(exponent: float, domain: int) -> None:
    ranks = zipf(N, domain, exponent, seed=11)
    assert abs(chi_square_deviation(ranks, zipf_probabilities(domain, exponent))) < 4


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_the_chi_square_test_can_fail(exponent: float) -> None:
    law = zipf_probabilities(20_000, exponent)
    assert chi_square_deviation(zipf(N, 20_000, exponent + 0.02, seed=11), law) > 8


def test_the_integral_method_is_not_zipfs_law() -> None:
    ranks = zipf(N, 20_000, 1.0, seed=11, method="integral")
    assert chi_square_deviation(ranks, zipf_probabilities(20_000, 1.0)) > 8


def test_the_integral_method_follows_its_own_law() -> None:
    edges = np.log(np.arange(1, 1_002))
    law = np.diff(edges) / edges[-1]
    ranks = zipf(N, 1_000, 1.0, seed=5, method="integral")
    assert abs(chi_square_deviation(ranks, law)) < 4


def test_a_fifth_of_the_products_makes_the_expected_share_of_sales() -> None:
    domain = 100_000
    law = zipf_probabilities(domain, 1.0)
    share = float((zipf(N, domain, 1.0, seed=3) <= domain // 5).mean())
    assert share == pytest.approx(law[: domain // 5].sum(), abs=0.002)
    assert 0.80 < share < 0.90


def test_a_domain_of_a_billion_is_exact_at_head_and_tail() -> None:
    domain = 1_000_000_000
    ranks = zipf(N, domain, 1.0, seed=2)
    whole = np.log(domain) + 0.5772156649015329
    for low, high in ((1, 1), (2, 2), (3, 10), (11, 1_000), (1_001, 10**6), (10**6 + 1, 10**9)):
        weight = (
            sum(1 / rank for rank in range(low, high + 1))
            if high <= 1_000
            else np.log((high + 0.5) / (low - 0.5))
        )
        expected = N * weight / whole
        found = int(((ranks >= low) & (ranks <= high)).sum())
        assert abs(found - expected) < 5 * expected**0.5
    assert ranks.max() > 0.99 * domain


@settings(max_examples=50, deadline=None)
@given(
    offset=st.integers(0, 10**12),
    n=st.integers(0, 500),
    cut=st.integers(0, 500),
    domain=st.integers(1, 10**9),
    exponent=st.floats(0, 50),
    scattered=st.booleans(),
    method=st.sampled_from(["exact", "integral"]),
)
def test_any_part_can_be_replayed(offset, n, cut, domain, exponent, scattered, method) -> None:
    whole = zipf_at(offset, n, domain, exponent, 9, scattered, method)
    cut = min(cut, n)
    head = zipf_at(offset, cut, domain, exponent, 9, scattered, method)
    tail = zipf_at(offset + cut, n - cut, domain, exponent, 9, scattered, method)
    assert np.concatenate([head, tail]).tobytes() == whole.tobytes()
    assert not n or (whole.min() >= 1 and whole.max() <= domain)


def test_the_same_bytes_on_every_machine() -> None:
    digest = hashlib.sha256()
    for exponent in EXPONENTS:
        for scattered in (False, True):
            keys = zipf(20_000, 20_000_000, exponent, seed=7, scattered=scattered)
            digest.update(keys.astype("<i8").tobytes())
    assert digest.hexdigest()[:16] == "a1f97d3a7fd3533c"


def test_the_compiled_keys_equal_those_of_plain_python() -> None:
    code = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "from semistream.workload import zipf\n"
        "print([zipf(40, 10**9, e, 3, True).tolist() for e in (0.5, 0.99, 1.0, 1.2)])"
    )
    run = [sys.executable, "-c", code]
    plain = subprocess.run(
        run, check=True, capture_output=True, env={**os.environ, "NUMBA_DISABLE_JIT": "1"}
    )
    compiled = [zipf(40, 10**9, e, 3, True).tolist() for e in (0.5, 0.99, 1.0, 1.2)]
    assert plain.stdout.decode().strip() == str(compiled)


def test_seeds_differ() -> None:
    assert (zipf(1_000, 10**6, seed=1) != zipf(1_000, 10**6, seed=2)).mean() > 0.8


@pytest.mark.parametrize("domain", [1, 2, 3, 4, 5, 7, 100, 1_023, 1_024, 1_025, 300_000])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_scatter_is_a_bijection(domain: int, seed: int) -> None:
    keys = scatter(np.arange(1, domain + 1), domain, seed)
    assert np.array_equal(np.sort(keys), np.arange(1, domain + 1))


def test_the_scatter_spreads_hot_ranks_over_the_keys() -> None:
    domain, hot, cells = 1_000_000, 20_000, 50
    for seed in range(5):
        keys = scatter(np.arange(1, hot + 1), domain, seed)
        counts = np.histogram(keys, bins=cells, range=(1, domain + 1))[0]
        statistic = ((counts - hot / cells) ** 2 / (hot / cells)).sum()
        assert statistic < 2 * cells, "hot keys are clustered"
        assert abs(np.corrcoef(np.arange(hot), keys)[0, 1]) < 0.05


def test_scattered_keys_are_scattered_ranks() -> None:
    ranks, keys = zipf(1_000, 5_000, seed=4), zipf(1_000, 5_000, seed=4, scattered=True)
    assert np.array_equal(scatter(ranks, 5_000, seed=4), keys)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"exponent": -0.5}, "exponent=-0.5 cannot be used; give a number of at least 0"),
        ({"exponent": float("nan")}, "exponent=nan"),
        ({"exponent": float("inf")}, "exponent=inf"),
        ({"exponent": "steep"}, "exponent='steep'"),
        ({"domain": 0}, "domain=0 cannot be used; give an integer from 1"),
        ({"domain": 2.5}, "domain=2.5"),
        ({"n": -1}, "n=-1 cannot be used; give an integer of at least 0"),
        ({"seed": -1}, "seed=-1 is not a seed"),
        ({"seed": True}, "seed=True is not a seed"),
        ({"method": "guess"}, "method='guess' is unknown"),
    ],
)
def test_bad_input(changed: dict, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        zipf(**{"n": 10, "domain": 10, **changed})
    assert said in str(error.value)


@pytest.mark.parametrize("ranks", [[0], [11], [1.5], ["a"]])
def test_bad_ranks(ranks: list) -> None:
    with pytest.raises(ConfigError, match="ranks"):
        scatter(ranks, 10)


def test_no_keys() -> None:
    assert zipf(0, 10).size == 0
    assert scatter([], 10).size == 0


@pytest.mark.parametrize("scattered", [False, True])
def test_rate_is_millions_a_second(scattered: bool) -> None:
    zipf(1_000, 20_000_000, scattered=scattered)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        zipf(N, 20_000_000, scattered=scattered)
        seconds.append(time.perf_counter() - start)
    assert N / min(seconds) > 5e6, "half of the target rate, because the test machine may be busy"


def test_importing_the_package_does_not_load_numba() -> None:
    code = "import sys, semistream.workload; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
