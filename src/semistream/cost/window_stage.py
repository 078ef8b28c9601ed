"""The parts that the window joins have in common: admission, the front stage, probing."""

from __future__ import annotations

import math

import numpy as np

from semistream.cost.case import MOST_SERVED, Case, Work
from semistream.cost.front_stage import held
from semistream.cost.keys import Keys

_FRONT_NODE = 16  # bytes of a key in the front stage: its bucket, its code and links
_CHAINED = 0.37  # keys of a full hash table that are not the first of their bucket
# Accesses to the window's memory by a tuple, from when it enters until it has left: independent
# ones (buckets, state, columns), and those that wait for another one: the other keys of its bucket;
# in HYBRIDJOIN's queue, whose slots are in any order, its neighbours.
_INDEPENDENT = {"mesh": 4, "hybrid": 4}
_DEPENDENT = {"mesh": 2.0, "hybrid": 3.0}
LEARNING = ("learn", "learn.row")  # by disk buffer, and by row of it
_FULL_CALLS, _CALLS = (0.9, 1.5), (1.0, 2.0)


def front_capacity(case: Case) -> int:
    return case.plan.front.capacity if case.plan.front is not None else 0


def behind_front_stage(
    case: Case, span: float, threshold: int = 1, adapts: bool = True
) -> tuple[Keys, float]:
    """The stream that enters the window, and the share that the front stage serves.

    ``span``: tuples of the stream over which the front stage compares keys.
    """
    keys, capacity = case.traffic.keys, front_capacity(case)
    present = 1.0 - case.traffic.absent
    if not capacity:
        return keys, 0.0
    kept = held(keys, capacity, span * present, threshold, adapts)
    if case.front_share is not None:  # as observed, of about the same keys
        expected = float((keys.mass * kept).sum())
        kept = kept * min(1.0, case.front_share / present / max(expected, 1e-9))
    missed, served = keys.without(kept)
    return missed, min(served * present, MOST_SERVED)


def portions(rounds: float, amount: float, most: float) -> float:
    """Calls that handle ``amount`` in so many rounds, when a call handles ``most`` at once.

    Rounded up in each round, whose size varies by a few percent; of many calls in a round, the
    last one is half empty on average.
    """
    if not rounds:
        return 0.0
    full = amount / rounds / most
    return rounds * float(np.interp(full, _FULL_CALLS, _CALLS)) + rounds * max(0.0, full - 1.5)


def add_admission(work: Work, case: Case, tuples: float, hits: float, rounds: float) -> None:
    """Admit ``tuples``, of which ``hits`` are served at once; there is room for some ``rounds``
    times."""
    most = case.output_rows
    looked_at = most * (case.settings.lookups_per_output_row if front_capacity(case) else 1)
    pushes = tuples / case.traffic.push
    calls = max(portions(rounds, tuples, looked_at), portions(rounds, hits, most))
    if not case.traffic.drained:  # the end of a batch ends a call, too
        calls += pushes
    add_admission_calls(work, case, tuples, hits, min(max(calls, pushes), tuples))


def add_admission_calls(work: Work, case: Case, tuples: float, hits: float, calls: float) -> None:
    """Admit ``tuples``, of which ``hits`` are served at once, with so many calls."""
    pushes = tuples / case.traffic.push
    work.add("push", pushes * (2 if case.traffic.drained else 1))
    work.add("admit", calls)
    work.add("tuple", tuples)
    if front_capacity(case):
        nodes = _FRONT_NODE * front_capacity(case)
        work.add("look_up", tuples)
        work.add("hit", hits)
        work.touch(2 * tuples, nodes)
        # Keys that hit are hot. A frequency recorder does not fetch the first one ahead.
        chained = _CHAINED + (getattr(case.join, "cache", "recorder") == "recorder")
        work.touch(chained * (tuples - hits), nodes, dependent=True)
        work.touch(2 * hits, case.plan.front_bytes)
        # A call without a hit returns no batch.
        work.add("batch", calls * -math.expm1(-hits / max(calls, 1e-12)))


def add_window(
    work: Work,
    case: Case,
    family: str,
    *,
    pages: float,
    requests: float,
    tuples: float,
    keys: Keys,
    held: float,
) -> None:
    """Probe pages against a hash window, from which ``tuples`` tuples leave joined.

    ``held`` tuples with these keys wait in it.
    """
    window = case.plan.window
    assert window is not None
    rows = pages * case.rows_per_page
    work.add(f"{family}.read", requests)
    work.add(f"{family}.page", pages)
    work.add(f"{family}.row", rows)
    work.add(f"{family}.tuple", tuples)
    work.add("batch", max(min(requests, tuples), tuples / case.output_rows))
    if front_capacity(case) and family != "pinned":
        for factor, amount in zip(LEARNING, (requests, rows), strict=True):
            work.add(factor, amount)
    touch_window(work, case, rows, keys, held)
    nbytes = window.nbytes * min(1.0, held / window.capacity) + beside_window(case)
    work.touch(_INDEPENDENT[family] * tuples, nbytes)
    work.touch(_DEPENDENT[family] * tuples, nbytes, dependent=True)
    if requests:
        nbytes = pages / requests * case.table.max_page_bytes
        work.read(requests, nbytes)


def touch_window(work: Work, case: Case, rows: float, keys: Keys, held: float) -> None:
    """Look up rows in the hash table of a window in which ``held`` tuples wait.

    There are as many buckets as slots. The first key of a bucket is fetched ahead, as the bucket
    is; the others of its chain are found one after the other.
    """
    window = case.plan.window
    assert window is not None
    nbytes = window.nbytes + beside_window(case)
    load = keys.distinct(min(held, window.capacity)) / window.capacity  # keys per bucket
    found = -math.expm1(-load)
    work.touch(rows * (1.0 + found), nbytes)
    work.touch(rows * (load - found), nbytes, dependent=True)


def beside_window(case: Case) -> int:
    """Bytes of the parts that share the processor's caches with the window: the disk buffer, whose
    pages pass through them in every iteration, and the front stage. Memory that moves from the
    window to one of them saves no accesses to main memory."""
    pages = min(case.plan.buffer_pages, max(1, case.table.num_pages))
    front = case.plan.front_bytes if case.plan.front is not None else 0
    return int(pages * case.table.max_page_bytes + front)
