"""Fields of generated rows against Python's integers: functions of (seed, position) alone."""

from __future__ import annotations

import numpy as np
import pytest

from semistream.kernels import workload, workload_rows

WORD, GOLDEN = 2**64 - 1, 0x9E3779B97F4A7C15
KEY = 0x0123456789ABCDEF


def mix(z: int) -> int:
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB & WORD
    return z ^ z >> 31


def state(index: int) -> int:
    return mix(KEY + (index + 1) * GOLDEN & WORD)


def test_prices_and_quantities() -> None:
    ids = np.array([1, 2, 10**12], np.int64)
    prices = np.empty(3)
    workload_rows.prices(ids, prices, np.uint64(KEY))
    assert prices.tolist() == [(state(i) % 99_999 + 1) / 100 for i in ids.tolist()]
    quantities = np.empty(50, np.int32)
    workload_rows.quantities(quantities, np.uint64(KEY), 7)
    draws = [state(7 + i) for i in range(50)]
    assert quantities.tolist() == [1 + min((d >> 40) % 7, (d >> 16) % 7) for d in draws]


@pytest.mark.parametrize("domain", [1, 2, 3, 10, 1000, 1025])
def test_scattered_ranks_are_a_permutation(domain: int) -> None:
    ranks, out = np.arange(1, domain + 1), np.empty(domain, np.int64)
    workload.scatter_ranks(ranks, out, np.uint64(KEY), domain)
    assert sorted(out.tolist()) == ranks.tolist()
    some = np.empty(1, np.int64)
    workload.scatter_ranks(ranks[-1:], some, np.uint64(KEY), domain)
    assert some[0] == out[-1]
