"""The parts that the window joins have in common: admission, the front stage, probing."""

from __future__ import annotations

import math

import numpy as np

from semistream.cost.case import MOST_SERVED, Case, Work
from semistream.cost.front_stage import held
from semistream.cost.keys import Keys

_NODE = 16  # bytes of a tuple's code and links
_HEAD = 4  # bytes of a bucket
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
    calls = min(max(calls, pushes), tuples)
    work.add("push", pushes * (2 if case.traffic.drained else 1))
    work.add("admit", calls)
    work.add("tuple", tuples)
    if front_capacity(case):
        nbytes = case.plan.front_bytes
        work.add("look_up", tuples)
        work.add("hit", hits)
        work.touch(tuples, (_HEAD + 8) * front_capacity(case))
        work.touch(2 * hits, nbytes)
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
) -> None:
    """Probe pages against a hash window, from which ``tuples`` tuples leave joined."""
    window = case.plan.window
    assert window is not None
    rows = pages * case.rows_per_page
    work.add(f"{family}.read", requests)
    work.add(f"{family}.page", pages)
    work.add(f"{family}.row", rows)
    work.add(f"{family}.tuple", tuples)
    work.add("batch", max(min(requests, tuples), tuples / case.output_rows))
    if front_capacity(case) and family != "pinned":
        work.add("learn", requests)
    filled = min(1.0, window.capacity / max(1, case.table.num_rows))
    work.touch(rows * (1 + filled), _HEAD * window.capacity)
    work.touch(2 * tuples, _NODE * window.capacity)  # when it enters, and when it leaves
    work.touch(tuples, window.nbytes)  # its columns
    if requests:
        nbytes = pages / requests * case.table.max_page_bytes
        work.read(requests, nbytes)
