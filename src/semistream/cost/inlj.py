"""INLJ (000, 004: neither has equations for it beyond one random read per tuple).

Derived: the buffer pool is LRU over the pages' loads. By Che's approximation a page stays in
the pool for the same number of tuples T, however popular it is: T is where the pages that T
tuples need are as many as the pool holds, and a tuple misses with the probability that its page
was not needed for T tuples. Tuples are served in waves, each a few calls (``waves_of``). A page
of a larger table costs more even if the page cache has it: the kernel looks it up.
"""

from __future__ import annotations

import math

import numpy as np

from semistream.cost.case import Case, Work
from semistream.cost.keys import Keys
from semistream.cost.loads import Loads
from semistream.cost.machine import IN_FLIGHT
from semistream.cost.prediction import Prediction
from semistream.cost.window_stage import add_admission_calls, front_capacity, portions

# The page cache has a structure of 64 bytes for every 4 KiB. To read a page, the kernel accesses
# each of its structures and the tree that leads to it; a copy lies between two such accesses.
_BLOCK, _STRUCTURE, _ACCESSES = 4096, 64, 2


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


def waves_of(case: Case, loads: Loads, hit: float) -> float:
    """Waves that serve a batch.

    A wave looks at a fixed number of tuples: as many as the output batch has rows or, with a front
    stage, twice as many. It ends earlier if its hits or its misses fill the output batch, or if its
    misses need more pages than the pool has: then its size varies.
    """
    push, most, frames = float(case.traffic.push), float(case.output_rows), case.plan.buffer_pages
    looked_at, missed = most, push
    if front_capacity(case):
        looked_at *= case.settings.lookups_per_output_row
        missed = most
    if loads.visited(missed) > frames:
        low, high = 1.0, missed
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if loads.visited(middle) < frames else (low, middle)
        missed = low
    varying = min(missed / (1.0 - hit), most / max(hit, 1e-12))
    if varying < min(looked_at, push):
        return portions(1.0, push, varying)
    return float(math.ceil(push / looked_at))


def pooled(case: Case, keys: Keys, hit: float, offered: float | None = None) -> Prediction:
    """Tuples that miss the front stage are looked up in their pages, through the pool.

    ``offered``: their keys are counted in a temporary buffer, and the rows of this share of them
    are offered to the front stage."""
    plan, table, traffic = case.plan, case.table, case.traffic
    frames = plan.buffer_pages
    loads = case.loads(keys)
    miss = pool_misses(loads, frames)
    wave = traffic.push / waves_of(case, loads, hit)
    looked_up = wave * (1.0 - hit)
    work = Work(case)
    add_admission_calls(work, case, wave, wave * hit, calls=1.0)
    work.add("pool.wave", 1.0)
    work.add("pool.tuple", looked_up)
    work.add("pool.page", looked_up * miss)
    work.add("batch", min(1.0, looked_up))
    if offered is not None:
        work.add("recent.tuple", looked_up)
        work.add("recent.offer", 1.0)
        work.add("recent.row", looked_up * offered)
    work.touch(3 * looked_up, frames * table.max_page_bytes)
    if not table.direct and not table.resident:
        _touch_page_cache(work, case, looked_up * miss)
    work.read(looked_up * miss, table.max_page_bytes, in_flight=4 if looked_up * miss > 4 else 1)
    return work.predict(
        iterations=1.0,
        tuples=wave,
        front_share=hit,
        held=wave / 2,
        longest=float(traffic.push),
        pages=looked_up * miss,
    )


def _touch_page_cache(work: Work, case: Case, pages: float) -> None:
    """What the kernel does to find these pages, which are anywhere in the table."""
    blocks = case.table.max_page_bytes / _BLOCK
    structures = case.table.num_pages * blocks * _STRUCTURE
    work.touch(IN_FLIGHT * _ACCESSES * blocks * pages, structures, dependent=True)
