"""How many waiting tuples a partition serves when the oldest tuple decides which one is read.

000 fits w = k h_S d / R_t with k measured (equation 2); 002 and 001 derive averages for Zipf
with exponent 1 (002 equations 7 to 9, 001 equations 7 to 9). Here it follows from the loads of
the partitions, whatever they are. After a partition with load q was read, its next tuple
arrives after 1/q tuples of the stream on average. It is the oldest of its partition, so the
partition is read again when it is the oldest of all: after T further tuples, the same T for all
partitions. By then q T more tuples wait for it. So a partition is read once in 1/q + T tuples
and serves 1 + q T of them, and the window holds sum(q T (1 + q T / 2) / (1 + q T)) tuples, from
which T follows.

A drained batch that is larger than the window begins with a window in which nothing was served
(``drained``). Let the oldest tuple be the x-th of the batch, and A(x) the tuples admitted by then.
A partition that was not read yet, exp(-q x) of those with load q, is read with its next tuple and
serves 1 + q (A - x) tuples; one that was read when A were admitted is not read again before
x > A, which is at least a window. When all tuples are admitted, every partition with a tuple that
came after its read is read once more. A batch for which x passes a whole window is taken as a
stream in its steady state, with a full window at the end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from semistream.cost.loads import Loads

_STEPS = 80  # in which the oldest tuple passes the first window: hot partitions are read early


class Renewal(NamedTuple):
    """Of a full window."""

    age: float  # T: tuples that enter while the oldest waits
    served: float  # tuples per read; w in the papers


class Drained(NamedTuple):
    """Reads that serve a batch, after which nothing waits."""

    admitting: float  # while tuples of it still come
    emptying: float

    @property
    def reads(self) -> float:
        return self.admitting + self.emptying


def drained(loads: Loads, tuples: float, window: float, absent: float = 0.0) -> Drained:
    """The reads for a batch of this many tuples, through a window that is empty before it."""
    if tuples <= window:
        return Drained(0.0, loads.visited(tuples * (1.0 - absent)))
    counts, load = loads.counts, loads.load * (1.0 - absent)
    admitted, reads = float(window), 0.0
    places = np.r_[0.0, np.geomspace(0.5, max(1.0, window), _STEPS)]
    waiting = np.zeros(len(load))  # chance that tuples come after the partition's read
    own = np.zeros(len(load))  # tuples that it has served, in the mean: none where it is unread
    for oldest, step in zip(places.tolist(), np.diff(places).tolist(), strict=False):
        unread = np.exp(-load * oldest)
        read = unread * -np.expm1(-load * step)
        served = read * (1.0 + load * (admitted - own - oldest))
        room = float((counts * served).sum()) + absent * step
        part = min(1.0, (tuples - admitted) / max(room, 1e-300))
        reads, admitted = reads + part * float((counts * read).sum()), admitted + part * room
        own += part * served
        waiting -= part * read * np.expm1(-load * max(0.0, tuples - admitted))
        if part < 1.0:
            left = unread - part * read
            waiting -= left * np.expm1(-load * (tuples - oldest - part * step))
            return Drained(reads, float((counts * waiting).sum()))
    steady = (tuples - window) / renewal(loads, window, absent).served
    return Drained(max(reads, steady), loads.visited(window * (1.0 - absent)))


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
