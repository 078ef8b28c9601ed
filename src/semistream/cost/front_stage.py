"""Which keys a front stage holds, and how much of the stream it therefore serves.

003 has no model of it; ours: over a *span* of the stream a key is counted, so its count is a
Poisson variable, and the keys with the highest counts are held. If fewer keys reach the
threshold in one span than there is room for, those of earlier spans stay. With exact counts (a
long span) this is the sum over the most frequent keys, as in 001 eq. 4.
"""

from __future__ import annotations

import numpy as np

from semistream.cost.keys import Keys, Numbers, poisson_tail

_MOST_SPANS = 1e7


def held(
    keys: Keys, capacity: float, span: float, threshold: int = 1, adapts: bool = True
) -> Numbers:
    """The part of each class's keys that a front stage of ``capacity`` keys holds.

    ``adapts``: the threshold falls as long as there is room.
    """
    if capacity <= 0:
        return np.zeros(len(keys.counts))
    number = keys.counts * keys.active
    if number.sum() <= capacity:
        return np.ones(len(number))

    def share(least: int) -> Numbers:
        return poisson_tail(keys.probability * span, least)

    if adapts and (number * share(threshold)).sum() < capacity:
        threshold = 1
    if (number * share(threshold)).sum() < capacity:
        return _over_spans(number, share(threshold), capacity)
    # The count that is needed is near that of the last key with room, if counts were exact.
    last = min(int(np.searchsorted(np.cumsum(number), capacity)), len(number) - 1)
    count = keys.probability[last] * span
    spread = 4 * count**0.5 + 4
    low, high = max(threshold, int(count - spread)), int(count + spread) + 1
    high = max(high, low + 1)
    while (number * share(high)).sum() >= capacity:
        high *= 2
    if (number * share(low)).sum() < capacity:
        low = threshold
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if (number * share(middle)).sum() >= capacity else (low, middle)
    more, fewer = share(low), share(high)
    above, below = (number * more).sum(), (number * fewer).sum()
    mixed = (capacity - below) / max(above - below, 1e-300)
    return np.asarray(fewer + (more - fewer) * min(1.0, mixed))


def _over_spans(number: Numbers, admitted: Numbers, capacity: float) -> Numbers:
    """Keys that were admitted in earlier spans and not evicted since: an admission evicts any of
    the keys that were seen as rarely, so a key stays for the same number of spans on average."""

    def present(spans: float) -> Numbers:
        return np.asarray(admitted * spans / (1.0 + admitted * spans))

    low, high = 1.0, _MOST_SPANS
    for _ in range(60):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if (number * present(middle)).sum() < capacity else (low, middle)
    return present(low)
