"""Keys from a Zipf distribution: exact, without a table, from any position.

Rank k has a probability proportional to 1 / k**exponent. Exponent 0 is uniform; exponent 1 is
the papers' market, where a fifth of the products makes about four fifths of the sales.

Two methods:

- ``exact``: rejection-inversion (W. Hoermann, G. Derflinger, *Rejection-inversion to generate
  variates from monotone discrete distributions*, 1996). Constant time and memory for any domain.
- ``integral``: the papers' own (Naeem, Dobbie, Weber, *HYBRIDJOIN for Near-Real-Time Data
  Warehousing*, 2011, figure 9, lines 28-31): the integral of x**-exponent stands in for the sum.
  It makes rank 1 rarer than Zipf's law requires (at exponent 1: ln 2 instead of 1, before
  normalisation); use it to reproduce their experiments.

Each key is a function of (seed, position): ``zipf_at(offset, n)`` equals
``zipf(offset + n)[offset:]`` byte for byte, on any machine, because the arithmetic is IEEE
double without the C library's logarithm. The paper's x-max is the domain plus one here, so
that the last key can occur.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from semistream import kernels
from semistream.errors import ConfigError
from semistream.workload.checks import integer, number
from semistream.workload.seeds import stream_key

MAX_DOMAIN = 2**40
Method = Literal["exact", "integral"]
Keys = npt.NDArray[np.int64]


def zipf(
    n: int,
    domain: int,
    exponent: float = 1.0,
    seed: int = 0,
    scattered: bool = False,
    method: Method = "exact",
) -> Keys:
    """Draw ``n`` keys from 1..``domain``.

    Parameters
    ----------
    n
        Number of keys.
    domain
        The largest key; up to a billion and beyond (2**40).
    exponent
        Skew, at least 0.
    seed
        The same seed gives the same bytes.
    scattered
        False: key order is frequency order, key 1 is the most frequent (the papers' layout, where
        hot rows share pages). True: the ranks are spread over the keys by :func:`scatter`.
    method
        ``"exact"`` or the papers' ``"integral"``.

    >>> keys = zipf(100_000, domain=1_000_000_000, exponent=1.0, seed=7)
    >>> int(keys.min()) >= 1, int(keys.max()) <= 1_000_000_000
    (True, True)
    >>> bool((zipf(10, 100, seed=7)[4:] == zipf_at(4, 6, 100, seed=7)).all())
    True
    """
    return zipf_at(0, n, domain, exponent, seed, scattered, method)


def zipf_at(
    offset: int,
    n: int,
    domain: int,
    exponent: float = 1.0,
    seed: int = 0,
    scattered: bool = False,
    method: Method = "exact",
) -> Keys:
    """The keys at positions ``offset`` to ``offset + n - 1`` of the stream of :func:`zipf`."""
    offset = integer("offset", offset, 0, 2**62)
    n = integer("n", n, 0)
    domain = integer("domain", domain, 1, MAX_DOMAIN)
    exponent = number("exponent", exponent, 0.0)
    if method not in ("exact", "integral"):
        raise ConfigError(f'method={method!r} is unknown; use "exact" or "integral"')
    key = stream_key(seed, "zipf")

    from semistream.kernels import workload as kernels  # numba loads on first use

    ranks = np.empty(n, np.int64)
    fill = kernels.zipf_exact if method == "exact" else kernels.zipf_integral
    fill(ranks, key, np.int64(offset), np.int64(domain), exponent)
    if scattered:
        _scatter_into(ranks, ranks, domain, seed)
    return ranks


def scatter(ranks: npt.ArrayLike, domain: int, seed: int = 0) -> Keys:
    """Spread ranks over the keys: a seeded bijection of 1..``domain`` onto itself.

    It needs no memory, so it works for a domain of a billion as well as for one of ten.

    >>> sorted(scatter([1, 2, 3, 4, 5], domain=5, seed=1).tolist())
    [1, 2, 3, 4, 5]
    """
    domain = integer("domain", domain, 1, MAX_DOMAIN)
    given = np.asarray(ranks)
    if given.dtype.kind not in "iu" and given.size:
        raise ConfigError(f"ranks are of type {given.dtype}; give integers")
    given = np.ascontiguousarray(given, np.int64)
    if given.size and (given.min() < 1 or given.max() > domain):
        raise ConfigError(
            f"ranks range from {given.min()} to {given.max()}; they must be in 1..{domain}"
        )
    out = np.empty_like(given)
    _scatter_into(given.reshape(-1), out.reshape(-1), domain, seed)
    return out


def _scatter_into(ranks: Keys, out: Keys, domain: int, seed: int) -> None:
    kernels.workload.scatter_ranks(ranks, out, stream_key(seed, "scatter"), np.int64(domain))
