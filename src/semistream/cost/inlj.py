"""INLJ (000, 004: neither has equations for it beyond one random read per tuple).

Derived: the buffer pool is LRU over the pages' loads. By Che's approximation a page stays in
the pool for the same number of tuples T, however popular it is: T is where the pages that T
tuples need are as many as the pool holds, and a tuple misses with the probability that its page
was not needed for T tuples. Tuples are served in waves, each a few calls; a wave ends when the
output batch is full or when it needs more pages than the pool has.
"""

from __future__ import annotations

import numpy as np

from semistream.cost.case import Case, Work
from semistream.cost.keys import Keys
from semistream.cost.loads import Loads
from semistream.cost.prediction import Prediction
from semistream.cost.window_stage import add_admission, portions


def predict(case: Case) -> Prediction:
    return pooled(case, case.traffic.keys, hit=0.0)


def pool_misses(loads: Loads, frames: float) -> float:
    """The share of look-ups whose page is not in an LRU pool of this many frames."""
    if frames >= loads.counts.sum():
        return 0.0
    low, high = 0.0, 1e18
    for _ in range(200):
        middle = (low * high) ** 0.5 if low > 0 else high / 1e9
        if loads.visited(middle) < frames:
            low = middle
        else:
            high = middle
        if low > 0 and high / low < 1 + 1e-6:
            break
        if high < 1e-9:
            break
    return float((loads.counts * loads.load * np.exp(-loads.load * high)).sum())


def pooled(case: Case, keys: Keys, hit: float, counts: bool = False) -> Prediction:
    """Tuples that miss the front stage are looked up in their pages, through the pool.

    ``counts``: their keys are counted in a temporary buffer."""
    plan, table, traffic = case.plan, case.table, case.traffic
    frames = plan.buffer_pages
    loads = case.loads(keys)
    miss = pool_misses(loads, frames)
    # A wave may need as many different pages as there are frames.
    low, wave = 0.0, float(case.output_rows) * (case.settings.lookups_per_output_row if hit else 1)
    wave = min(wave, float(traffic.push))
    looked_up = wave * (1.0 - hit)
    if loads.visited(looked_up) > frames:
        high = looked_up
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if loads.visited(middle) < frames else (low, middle)
        looked_up = max(1.0, low)
        wave = looked_up / (1.0 - hit)
    # The last wave of a batch is smaller: a batch that is hardly too large needs two of them.
    wave = traffic.push / portions(1.0, float(traffic.push), wave)
    looked_up = wave * (1.0 - hit)
    work = Work(case)
    add_admission(work, case, wave, wave * hit, rounds=1.0)
    work.add("pool.wave", 1.0)
    work.add("pool.tuple", looked_up)
    work.add("pool.page", looked_up * miss)
    work.add("batch", min(1.0, looked_up))
    if counts:
        work.add("recent.tuple", looked_up)
        work.add("learn", 1.0)
    work.touch(3 * looked_up, frames * table.max_page_bytes)
    work.read(looked_up * miss, table.max_page_bytes, in_flight=4 if looked_up * miss > 4 else 1)
    return work.predict(
        iterations=1.0,
        tuples=wave,
        front_share=hit,
        held=wave / 2,
        longest=float(traffic.push),
        pages=looked_up * miss,
    )
