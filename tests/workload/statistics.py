"""Statistics for the workload tests; no SciPy needed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def zipf_probabilities(domain: int, exponent: float) -> npt.NDArray[np.float64]:
    """The law itself, rank by rank: the reference for small domains."""
    weights = np.arange(1, domain + 1, dtype=np.float64) ** -exponent
    return weights / weights.sum()


def chi_square_deviation(
    ranks: npt.NDArray[np.int64], probabilities: npt.NDArray[np.float64]
) -> float:
    """The distance of the chi-square statistic from its expectation, in standard deviations.

    Ranks are pooled into cells that expect at least 50 tuples: single ranks at the head, wider
    and wider stretches behind. The statistic is made normal by Wilson and Hilferty (1931).
    """
    expected_each = probabilities * ranks.size
    edges, start = [0], 0
    while start < probabilities.size:
        stop = max(start + 1, int(start * 1.02))
        while stop < probabilities.size and expected_each[start:stop].sum() < 50:
            stop = stop + 1 + stop // 50
        stop = min(stop, probabilities.size)
        edges.append(stop)
        start = stop
    if expected_each[edges[-2] :].sum() < 50:
        del edges[-2]
    observed = np.add.reduceat(
        np.bincount(ranks, minlength=probabilities.size + 1)[1:], edges[:-1]
    ).astype(np.float64)
    expected = np.add.reduceat(expected_each, edges[:-1])
    freedom = expected.size - 1
    statistic = float(((observed - expected) ** 2 / expected).sum())
    spread = 2 / (9 * freedom)
    return float(((statistic / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5)


def hurst(counts: npt.NDArray[np.int64], scales: int = 9) -> float:
    """Hurst parameter from the variance-time slope: Var(mean over m steps) ~ m**(2H - 2)."""
    sizes = 2 ** np.arange(scales)
    variances = [
        counts[: counts.size // size * size].reshape(-1, size).mean(axis=1).var() for size in sizes
    ]
    slope = np.polyfit(np.log(sizes), np.log(variances), 1)[0]
    return float(1 + slope / 2)
