"""How the stream's tuples are spread over the pages of the table.

*Clustered* ranks: the table is sorted by popularity, as the papers assume; hot rows share
pages. *Scattered* ranks: popularity has nothing to do with the key, so every page has its hot
row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from semistream.cost.keys import Keys, Numbers

_ALONE = 4  # this many keys per partition are placed one by one, all others evenly
_CLASSES = 512
_SEED = 20070415


@dataclass(frozen=True, eq=False)
class Loads:
    """``counts[i]`` partitions get the share ``load[i]`` of the tuples each; together 1."""

    counts: Numbers
    load: Numbers

    def visited(self, tuples: float) -> float:
        """Expected partitions that at least one of this many tuples needs."""
        return float((self.counts * -np.expm1(-self.load * tuples)).sum())


def partition_loads(keys: Keys, partitions: int, clustered: bool) -> Loads:
    """The loads of equal partitions of the table."""
    return classes(each_load(keys, max(1, int(partitions)), clustered))


def each_load(keys: Keys, partitions: int, clustered: bool) -> Numbers:
    """The load of every partition, in the order of the table."""
    if partitions == 1:
        return np.ones(1)
    return _clustered(keys, partitions) if clustered else _scattered(keys, partitions)


def _clustered(keys: Keys, partitions: int) -> Numbers:
    ends = np.cumsum(keys.counts)
    edges = np.linspace(0.0, ends[-1], partitions + 1)
    sums = np.interp(edges, np.r_[0.0, ends], np.r_[0.0, np.cumsum(keys.mass)])
    return np.asarray(np.maximum(np.diff(sums), 0.0))


def _scattered(keys: Keys, partitions: int) -> Numbers:
    """The same every time: a model must not depend on chance."""
    most = _ALONE * partitions
    counts = np.minimum(np.round(keys.counts * keys.active), most).astype(np.int64)
    alone = np.cumsum(counts) <= most
    weights = np.repeat(keys.probability[alone], counts[alone])
    places = np.random.default_rng(_SEED).integers(0, partitions, len(weights))
    load = np.bincount(places, weights, minlength=partitions)
    return np.asarray(load + max(0.0, 1.0 - load.sum()) / partitions)


def classes(load: Any) -> Loads:
    """Partitions of about the same load as one class."""
    load = np.sort(load)[::-1]
    if len(load) <= _CLASSES:
        return Loads(np.ones(len(load)), load)
    first = np.unique(np.geomspace(1, len(load), _CLASSES).astype(np.int64)) - 1
    counts = np.diff(np.r_[first, len(load)])
    return Loads(counts.astype(np.float64), np.add.reduceat(load, first) / counts)
