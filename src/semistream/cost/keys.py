"""How often the keys of a stream occur: Zipf of any exponent, uniform, or from a sample.

A distribution is kept as *classes* of keys with the same probability, most frequent first. The
first ranks have a class each, later ones share classes of a few percent of their rank: a table
of a billion rows takes some hundred numbers, and a sum over all keys is a sum over classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from semistream.errors import ConfigError

Numbers = np.ndarray[Any, np.dtype[np.float64]]

_SINGLE = 256  # the most frequent ranks have a class each
_GROWTH = 1.04  # ranks in one class, as a ratio
_OFTEN = 5  # tuples of a sample with one key: then its frequency is that of the sample
_MOST_SKEWED = 4.0


@dataclass(frozen=True, eq=False)
class Keys:
    """``counts[i]`` keys have the probability ``probability[i]`` each.

    ``active[i]`` is the part of them that is left in the stream behind a front stage. The
    probabilities of the active keys sum up to 1.
    """

    counts: Numbers
    probability: Numbers
    active: Numbers

    @classmethod
    def of(cls, counts: Any, weights: Any) -> Keys:
        """Classes of ``counts`` keys with these weights, which need not sum up to 1."""
        counts, weights = np.asarray(counts, np.float64), np.asarray(weights, np.float64)
        order = np.argsort(-weights, kind="stable")
        counts, weights = counts[order], weights[order]
        return cls(counts, weights / max((counts * weights).sum(), 1e-300), np.ones(len(counts)))

    @property
    def mass(self) -> Numbers:
        """The share of the stream that each class has."""
        return self.counts * self.probability * self.active

    def top(self, count: float) -> float:
        """The share of the stream with one of the ``count`` most frequent keys."""
        if count <= 0:
            return 0.0
        ends = np.cumsum(self.counts * self.active)
        return float(np.interp(count, np.r_[0.0, ends], np.r_[0.0, np.cumsum(self.mass)]))

    def distinct(self, tuples: float) -> float:
        """Expected number of different keys in this many tuples."""
        seen = -np.expm1(-self.probability * tuples)
        return float((self.counts * self.active * seen).sum())

    def without(self, kept: Any) -> tuple[Keys, float]:
        """The stream without the tuples of ``kept[i]`` of each class's keys, and their share."""
        served = float((self.mass * kept).sum())
        left = max(1.0 - served, 1e-9)
        active = self.active * (1.0 - np.asarray(kept))
        return replace(self, probability=self.probability / left, active=active), served


def zipf(domain: int, exponent: float) -> Keys:
    """Rank k of ``domain`` keys has a probability proportional to ``1 / k**exponent``.

    The papers' models have exponent 1 only, and sum it as a logarithm.

    >>> round(zipf(20_000_000, 1.0).top(226_000), 2)
    0.74
    """
    counts, weights = zipf_ranks(0, domain, exponent)
    return Keys.of(counts, weights)


def uniform(domain: int) -> Keys:
    """All keys are equally frequent."""
    return Keys.of([max(1, domain)], [1.0])


def zipf_ranks(first: int, last: int, exponent: float) -> tuple[Numbers, Numbers]:
    """(keys per class, weight of a key) of the ranks ``first + 1`` to ``last``."""
    if exponent < 0 or not np.isfinite(exponent):
        raise ConfigError(f"exponent={exponent!r}: give a number of at least 0")
    last = max(last, first + 1)
    bounds = [float(rank) for rank in range(first, min(first + _SINGLE, last) + 1)]
    while bounds[-1] < last:
        bounds.append(min(float(last), np.ceil(bounds[-1] * _GROWTH)))
    edges = np.array(bounds)
    counts = np.diff(edges)
    low, high = edges[:-1] + 0.5, edges[1:] + 0.5
    if abs(exponent - 1.0) < 1e-9:
        sums = np.log(high / low)
    else:
        sums = (high ** (1 - exponent) - low ** (1 - exponent)) / (1 - exponent)
    single = counts == 1  # exact: the integral is off where the curve is steep
    weights = np.where(single, edges[1:] ** -exponent, sums / counts)
    return counts, weights


def from_sample(frequencies: Any, domain: int) -> Keys:
    """The distribution behind a sample in which keys occur this often.

    A key that occurs often has the frequency that it has in the sample. The others are the tail:
    a Zipf law over all remaining keys of the table, with the exponent that makes as many of them
    appear in such a sample as have appeared.
    """
    found = np.sort(np.asarray(frequencies, np.float64))[::-1]
    tuples = found.sum()
    if not tuples:
        raise ConfigError("the sample has no tuple with a key of the table; give another one")
    head = found[found >= _OFTEN]
    tail, left = found[found < _OFTEN], max(1, domain - len(head))
    if not len(tail):
        return Keys.of(np.ones(len(head)), head)
    mass = tail.sum() / tuples

    def law(exponent: float) -> tuple[Numbers, Numbers]:
        counts, weights = zipf_ranks(len(head), len(head) + left, exponent)
        return counts, weights * mass / (counts * weights).sum()

    def appear(exponent: float) -> float:
        """Keys of the tail that occur in a sample, but not often."""
        counts, probability = law(exponent)
        mean = probability * tuples
        return float((counts * (poisson_tail(mean, 1) - poisson_tail(mean, _OFTEN))).sum())

    low, high = 0.0, _MOST_SKEWED
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if appear(middle) > len(tail) else (low, middle)
    counts, probability = law((low + high) / 2)
    return Keys.of(np.r_[np.ones(len(head)), counts], np.r_[head / tuples, probability])


def poisson_tail(mean: Any, at_least: int) -> Numbers:
    """The probability that a Poisson variable of this mean is ``at_least`` this large."""
    mean = np.asarray(mean, np.float64)
    if at_least <= 0:
        return np.ones_like(mean)
    if at_least > 30:  # the normal distribution, as a logistic curve
        distance = (mean - at_least + 0.5) / np.sqrt(np.maximum(mean, 1e-12))
        return np.asarray(1.0 / (1.0 + np.exp(np.clip(-1.702 * distance, -60, 60))))
    term = np.exp(-mean)
    total = term.copy()
    for i in range(1, at_least):
        term = term * mean / i
        total += term
    return np.asarray(np.clip(1.0 - total, 0.0, 1.0))
