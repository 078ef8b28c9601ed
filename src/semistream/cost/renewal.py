"""How many waiting tuples a partition serves when the oldest tuple decides which one is read.

000 fits w = k h_S d / R_t with k measured (equation 2); 002 and 001 derive averages for Zipf
with exponent 1 (002 equations 7 to 9, 001 equations 7 to 9). Here it follows from the loads of
the partitions, whatever they are. After a partition with load q was read, its next tuple
arrives after 1/q tuples of the stream on average. It is the oldest of its partition, so the
partition is read again when it is the oldest of all: after T further tuples, the same T for all
partitions. By then q T more tuples wait for it. So a partition is read once in 1/q + T tuples
and serves 1 + q T of them, and the window holds sum(q T (1 + q T / 2) / (1 + q T)) tuples, from
which T follows.
"""

from __future__ import annotations

from typing import NamedTuple

from semistream.cost.loads import Loads


class Renewal(NamedTuple):
    """Of a full window."""

    age: float  # T: tuples that enter while the oldest waits
    served: float  # tuples per read; w in the papers


def renewal(loads: Loads, window: float, absent: float = 0.0) -> Renewal:
    """The steady state of a window of this many tuples.

    ``absent``: the share of tuples without a row, which wait until they are the oldest.
    """
    counts, load = loads.counts, loads.load * (1.0 - absent)

    def holds(age: float) -> float:
        met = load * age
        return float((counts * met * (1 + met / 2) / (1 + met)).sum() + absent * age)

    low, high = 0.25 * window, 4.0 * window + 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) < window else (low, middle)
    reads = float((counts * load / (1 + load * low)).sum())
    return Renewal(low, 1.0 / max(reads, 1e-300))
