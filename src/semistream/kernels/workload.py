"""Compiled generators for :mod:`semistream.workload`.

Every value is a function of (seed key, tuple index) and nothing else, so a stream can
start at any position and be replayed exactly. The logarithm and the exponential are implemented
in plain IEEE double arithmetic instead of the platform's C library, whose last bit differs between
machines: the same seed gives the same bytes everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from semistream.kernels.compile import compiled

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # splitmix64's increment
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)
_U1, _U2, _U11, _U27, _U30, _U31 = (np.uint64(i) for i in (1, 2, 11, 27, 30, 31))
_UNIT = 2.0**-53
# log(2) in two parts, so that exponent * LN2_HIGH is exact.
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_SQRT_HALF = 0.7071067811865476
_ROUNDS = 4


@compiled(inline=True)
def mix64(z: Any) -> Any:
    """Finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection that scrambles 64 bits."""
    z = (z ^ (z >> _U30)) * _MIX_A
    z = (z ^ (z >> _U27)) * _MIX_B
    return z ^ (z >> _U31)


@compiled(inline=True)
def tuple_state(key: Any, index: Any) -> Any:
    """The random state of one tuple: splitmix64 at position ``index``."""
    return mix64(key + (np.uint64(index) + _U1) * GOLDEN)


@compiled(inline=True)
def unit(z: Any) -> Any:
    """Upper 53 bits as a float in [0, 1)."""
    return np.float64(z >> _U11) * _UNIT


@compiled(inline=True)
def _log_near_one(t: Any) -> Any:
    """log(1 + t) / t for 1 + t between sqrt(1/2) and sqrt(2): the series of 2 atanh(z)."""
    z = t / (2.0 + t)
    q = z * z
    p = 1.0 / 21.0
    p = p * q + 1.0 / 19.0
    p = p * q + 1.0 / 17.0
    p = p * q + 1.0 / 15.0
    p = p * q + 1.0 / 13.0
    p = p * q + 1.0 / 11.0
    p = p * q + 1.0 / 9.0
    p = p * q + 1.0 / 7.0
    p = p * q + 1.0 / 5.0
    p = p * q + 1.0 / 3.0
    p = p * q + 1.0
    return 2.0 * p / (2.0 + t)


@compiled(inline=True)
def log(x: Any) -> Any:
    """Natural logarithm of a normal, positive double."""
    bits = np.float64(x).view(np.int64)
    exponent = (bits >> 52) - 1023
    mantissa = np.int64((bits & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000).view(np.float64)
    if mantissa > 2.0 * _SQRT_HALF:
        mantissa *= 0.5
        exponent += 1
    t = mantissa - 1.0
    return exponent * _LN2_HIGH + (t * _log_near_one(t) + exponent * _LN2_LOW)


@compiled(inline=True)
def _exp_series(y: Any) -> Any:
    """(exp(y) - 1) / y for small y: thirteen terms of the Taylor series."""
    p = 1.0 + y / 14.0
    p = 1.0 + y * (1.0 / 13.0) * p
    p = 1.0 + y * (1.0 / 12.0) * p
    p = 1.0 + y * (1.0 / 11.0) * p
    p = 1.0 + y * (1.0 / 10.0) * p
    p = 1.0 + y * (1.0 / 9.0) * p
    p = 1.0 + y * (1.0 / 8.0) * p
    p = 1.0 + y * (1.0 / 7.0) * p
    p = 1.0 + y * (1.0 / 6.0) * p
    p = 1.0 + y * (1.0 / 5.0) * p
    p = 1.0 + y * (1.0 / 4.0) * p
    p = 1.0 + y * (1.0 / 3.0) * p
    return 1.0 + y * 0.5 * p


@compiled(inline=True)
def _exp(y: Any) -> Any:
    """exp(y); 0 below -700 and the largest useful value above 700."""
    if y < -700.0:
        return 0.0
    if y > 700.0:
        y = 700.0
    exponent = np.int64(np.floor(y * 1.4426950408889634 + 0.5))
    rest = (y - exponent * _LN2_HIGH) - exponent * _LN2_LOW
    scale = np.int64((exponent + 1023) << 52).view(np.float64)
    return (1.0 + rest * _exp_series(rest)) * scale


@compiled(inline=True)
def integral(x: Any, exponent: Any) -> Any:
    """Integral of t**-exponent from 1 to x, stable for exponents close to 1."""
    log_x = log(x)
    y = (1.0 - exponent) * log_x
    if -0.5 < y < 0.5:
        return _exp_series(y) * log_x
    return (_exp(y) - 1.0) / (1.0 - exponent)


@compiled(inline=True)
def inverse_integral(area: Any, exponent: Any) -> Any:
    """The x whose :func:`integral` is ``area``."""
    if exponent == 1.0:
        return _exp(area)
    t = area * (1.0 - exponent)
    if t <= -1.0:  # rounding put the point past the end of the curve
        t = -1.0 + 2.0**-53
    if -0.29 < t < 0.41:
        return _exp(_log_near_one(t) * area)
    return _exp(log(1.0 + t) / (1.0 - exponent))


@compiled
def zipf_exact(out: Any, key: Any, offset: Any, domain: Any, exponent: Any) -> None:
    """Fill ``out`` with Zipf ranks by rejection-inversion (Hoermann and Derflinger 1996).

    A point below the continuous hat x**-exponent is inverted and rounded to a rank; it is
    rejected when it falls outside that rank's bar. At most about one in four is rejected,
    whatever the domain, and no table is needed.
    """
    if exponent == 0.0:
        for i in range(out.size):
            out[i] = np.int64(unit(tuple_state(key, offset + i)) * domain) + 1
        return
    low = integral(1.5, exponent) - 1.0
    high = integral(domain + 0.5, exponent)
    # Points this close to their rank are always inside its bar.
    safe = 2.0 - inverse_integral(integral(2.5, exponent) - _exp(-exponent * log(2.0)), exponent)
    for i in range(out.size):
        state = tuple_state(key, offset + i)
        while True:
            area = high + unit(state) * (low - high)
            x = inverse_integral(area, exponent)
            rank = np.int64(x + 0.5)
            if rank < 1:
                rank = np.int64(1)
            elif rank > domain:
                rank = np.int64(domain)
            if rank - x <= safe:
                break
            if area >= integral(rank + 0.5, exponent) - _exp(-exponent * log(np.float64(rank))):
                break
            state = mix64(state + GOLDEN)
        out[i] = rank


@compiled
def zipf_integral(out: Any, key: Any, offset: Any, domain: Any, exponent: Any) -> None:
    """Fill ``out`` by the papers' method: the integral approximates the sum of frequencies."""
    high = integral(domain + 1.0, exponent)
    for i in range(out.size):
        rank = np.int64(inverse_integral(unit(tuple_state(key, offset + i)) * high, exponent))
        out[i] = min(max(rank, np.int64(1)), np.int64(domain))


@compiled
def scatter_ranks(ranks: Any, out: Any, key: Any, domain: Any) -> None:
    """Map every rank in 1..domain by a keyed bijection on 1..domain.

    Multiplying by an odd number, adding, and folding the upper half onto the lower half are
    each invertible on words of any width, so four keyed rounds of them permute the smallest
    power of two that holds the domain; values outside the domain are permuted again until they are
    inside (cycle walking, Black and Rogaway 2002: fewer than two steps on average).
    """
    bits = np.uint64(1)
    while (_U1 << bits) < np.uint64(domain):
        bits += _U1
    mask = (_U1 << bits) - _U1
    fold = (bits + _U1) // _U2
    multipliers = np.empty(_ROUNDS, np.uint64)
    addends = np.empty(_ROUNDS, np.uint64)
    for r in range(_ROUNDS):
        multipliers[r] = (mix64(key + np.uint64(2 * r + 1) * GOLDEN) | _U1) & mask
        addends[r] = mix64(key + np.uint64(2 * r + 2) * GOLDEN) & mask
    m0, m1, m2, m3 = multipliers[0], multipliers[1], multipliers[2], multipliers[3]
    a0, a1, a2, a3 = addends[0], addends[1], addends[2], addends[3]
    limit = np.uint64(domain)
    for i in range(ranks.size):
        v = np.uint64(ranks[i] - 1)
        while True:
            v = (v * m0 + a0) & mask
            v ^= v >> fold
            v = (v * m1 + a1) & mask
            v ^= v >> fold
            v = (v * m2 + a2) & mask
            v ^= v >> fold
            v = (v * m3 + a3) & mask
            v ^= v >> fold
            if v < limit:
                break
        out[i] = np.int64(v) + 1
