"""The parts that the window joins have in common: admission, the front stage, probing."""

from __future__ import annotations

from semistream.cost.case import MOST_SERVED, Case, Work
from semistream.cost.front_stage import held
from semistream.cost.keys import Keys

_NODE = 16  # bytes of a tuple's code and links
_HEAD = 4  # bytes of a bucket


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


def add_admission(work: Work, case: Case, tuples: float, hits: float, rounds: float) -> None:
    """Admit ``tuples``, of which ``hits`` are served at once, in at least ``rounds`` calls."""
    most = case.output_rows
    looked_at = most * (case.settings.lookups_per_output_row if front_capacity(case) else 1)
    calls = max(rounds, tuples / looked_at, hits / most, tuples / case.traffic.push)
    work.add("push", tuples / case.traffic.push * (2 if case.traffic.drained else 1))
    work.add("admit", calls)
    work.add("tuple", tuples)
    if front_capacity(case):
        nbytes = case.plan.front_bytes
        work.add("look_up", tuples)
        work.add("hit", hits)
        work.touch(tuples, (_HEAD + 8) * front_capacity(case))
        work.touch(2 * hits, nbytes)
        work.add("batch", max(min(calls, hits), hits / most))


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
