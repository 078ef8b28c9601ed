"""Which pages X-HYBRIDJOIN pins, and how much of the stream they serve."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from semistream.cost.case import MOST_SERVED, Case
from semistream.cost.front_stage import held
from semistream.cost.keys import Keys
from semistream.cost.loads import Loads, classes, each_load


class Pinned(NamedTuple):
    share: float  # of the stream
    rest: Loads  # of the swappable part's partitions, without what the pinned pages serve


def pinned_pages(case: Case, pages: float) -> Pinned:
    """The pages that look most popular among the first ``observe`` tuples are pinned.

    002 and 001 take the first pages of a table that is sorted by popularity (p_N; 001 equation 4).
    Ours are chosen from a sample: a page is pinned if it occurs often enough in it.
    """
    total = max(1, case.table.num_pages)
    load = each_load(case.traffic.keys, total, case.traffic.clustered)
    observed, hot = case.join.observe, case.join.hot_keys
    if hot is not None:
        observed = max(1, len(hot[0]) if isinstance(hot, (list, tuple)) else len(hot))
    kept = held(Keys(np.ones(total), load, np.ones(total)), pages, observed)
    share = float((load * kept).sum())
    size = case.plan.buffer_pages
    rest = np.add.reduceat(load * (1.0 - kept), np.arange(0, total, size))
    served = min(share * (1.0 - case.traffic.absent), MOST_SERVED)
    return Pinned(served, classes(rest / max(1e-9, 1.0 - share)))
