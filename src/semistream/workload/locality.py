"""Streams whose hot keys change: temporal locality, and a hot set that shifts.

Each function returns a key source for :func:`semistream.workload.sales`: a function of
(offset, n) that gives the keys at those positions, so that any part can be replayed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from semistream.workload.checks import integer, number
from semistream.workload.seeds import stream_key
from semistream.workload.stream import KeySource
from semistream.workload.zipfian import MAX_DOMAIN, scatter, zipf_at

Keys = npt.NDArray[np.int64]


def intervals(
    domain: int,
    tuples_per_interval: int = 2_000_000,
    count: int = 25,
    exponent: float = 1.0,
    seed: int = 0,
    scattered: bool = False,
) -> KeySource:
    """Temporal locality: in each interval of the stream, the keys come from one sub-domain.

    As in Naeem, Dobbie, Lutteroth, Weber, *Skewed Distributions in Semi-Stream Joins: How much
    can Caching help?*, section 5.2: 25 intervals of 2 million tuples, each with a Zipf
    distribution over its own twenty-fifth of the domain. For N rows per key, make the relation
    with ``products(rows, copies=N)`` and let ``domain`` be rows / N.

    Difference from the paper: it numbers the intervals from 1 and the sub-domain of interval I
    starts at I twenty-fifths, which puts the last one beyond the domain; here the first interval
    has the first sub-domain. After the last interval the first one follows again.

    Parameters
    ----------
    domain
        The largest key.
    tuples_per_interval, count
        Length and number of the intervals.
    exponent, seed
        As in :func:`semistream.workload.zipf`.
    scattered
        Spread the ranks over the sub-domain (the same way in each).

    >>> keys = intervals(domain=1_000, tuples_per_interval=10, count=4)
    >>> (keys(0, 10) <= 250).all() and (keys(30, 10) > 750).all()
    np.True_
    """
    domain = integer("domain", domain, 1, MAX_DOMAIN)
    length = integer("tuples_per_interval", tuples_per_interval, 1)
    count = integer("count", count, 1, domain)
    exponent = number("exponent", exponent, 0.0)
    stream_key(seed, "check")

    def keys(offset: int, n: int) -> Keys:
        parts = []
        while n > 0:
            number_of_interval = offset // length
            take = min(n, (number_of_interval + 1) * length - offset)
            place = number_of_interval % count
            low, high = domain * place // count, domain * (place + 1) // count
            parts.append(low + zipf_at(offset, take, high - low, exponent, seed, scattered))
            offset, n = offset + take, n - take
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    return keys


def shifting(
    domain: int,
    every: int = 1_000_000,
    by: int = 1_000,
    exponent: float = 1.0,
    seed: int = 0,
    scattered: bool = False,
) -> KeySource:
    """A hot set that shifts: after ``every`` tuples, all ranks move by ``by`` keys.

    With ``by`` larger than the hot set, the hot set is replaced at once; with a small ``by`` and
    a small ``every`` it drifts. Ranks wrap around at the end of the domain to key 1.

    >>> keys = shifting(domain=100, every=10, by=7, exponent=50.0)
    >>> keys(8, 4).tolist()
    [1, 1, 8, 8]
    """
    domain = integer("domain", domain, 1, MAX_DOMAIN)
    every = integer("every", every, 1)
    by = integer("by", by, 0, 2**40)
    exponent = number("exponent", exponent, 0.0)
    stream_key(seed, "check")

    def keys(offset: int, n: int) -> Keys:
        ranks = zipf_at(offset, n, domain, exponent, seed)
        turns = np.arange(offset, offset + n, dtype=np.int64) // every
        moved = (ranks - 1 + turns % domain * (by % domain)) % domain + 1
        return scatter(moved, domain, seed) if scattered else moved

    return keys
