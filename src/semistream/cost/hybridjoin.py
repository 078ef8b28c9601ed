"""HYBRIDJOIN (000, equations 1 to 4).

| equation | here |
|---|---|
| 1: memory | the memory plan |
| 2: w = k h_S d / R_t, with k = 1.36 measured | ``renewal.py``: any distribution, nothing fitted |
| 3: cost of an iteration: c_I/O(v_P) | ``hybrid.page`` and the disk |
| + rows c_H | ``hybrid.row`` |
| + w (c_O + c_E + c_S + c_A) | ``hybrid.tuple`` |
| 4: rate = w / cost | the same, with the hits of a front stage added to w |

Changed: a fixed cost per iteration and per output batch; random accesses cost more in a larger
window; tuples without a row wait until they are the oldest. A drained batch of m tuples that
the window holds takes one iteration per partition that any of them needs; a larger one takes
those of ``renewal.drained``.
"""

from __future__ import annotations

from typing import NamedTuple

from semistream.cost.case import Case, Work
from semistream.cost.keys import Keys
from semistream.cost.moving import at_rest
from semistream.cost.prediction import Prediction
from semistream.cost.renewal import drained, renewal
from semistream.cost.window_stage import add_admission, add_window, behind_front_stage


def predict(case: Case) -> Prediction:
    return at_rest(case, hybrid)


def hybrid(case: Case) -> Prediction:
    """HYBRIDJOIN, behind a front stage if the plan has one."""
    threshold = getattr(case.join, "threshold", 1)

    def span(hit: float) -> float:
        """Tuples of the stream between two visits to a page."""
        window = capacity(case)
        if case.traffic.drained:
            return min(float(case.traffic.push), window / (1.0 - hit))
        return 1.4 * window / (1.0 - hit)

    hit = case.settle(lambda hit: behind_front_stage(case, span(hit), threshold)[1])
    keys, _ = behind_front_stage(case, span(hit), threshold)
    return served_by_disk(case, keys, hit)


def capacity(case: Case) -> int:
    assert case.plan.window is not None
    return case.plan.window.capacity


class Turns(NamedTuple):
    """Iterations that serve some tuples."""

    iterations: float
    admissions: float  # the rest of a drained batch is admitted at once
    tuples: float  # that leave the window
    held: float
    age: float  # of the oldest, in tuples


def turns(case: Case, keys: Keys, missed_per_batch: float) -> Turns:
    """One iteration of a stream, or all of a drained batch with this many misses."""
    window = capacity(case)
    loads = case.loads(keys, case.plan.buffer_pages)
    absent = case.traffic.absent
    if not case.traffic.drained:
        steady = renewal(loads, window, absent)
        return Turns(1.0, 1.0, steady.served, float(window), steady.age)
    last = min(missed_per_batch, float(window))
    batch = drained(loads, missed_per_batch, window, absent)
    iterations = max(min(1.0, last), batch.reads)
    return Turns(iterations, batch.admitting + 1.0, missed_per_batch, last / 2, missed_per_batch)


def served_by_disk(case: Case, keys: Keys, hit: float) -> Prediction:
    """What misses the front stage waits in the window; ``hit`` is the share that does not."""
    turn = turns(case, keys, case.traffic.push * (1.0 - hit))
    tuples = turn.tuples / (1.0 - hit)
    work = Work(case)
    add_admission(work, case, tuples, tuples * hit, rounds=min(turn.admissions, turn.tuples))
    pages = add_partitions(work, case, turn.iterations, turn.tuples, keys, turn.held)
    return work.predict(
        iterations=turn.iterations,
        tuples=tuples,
        front_share=hit,
        held=turn.held,
        longest=turn.age / (1.0 - hit),
        pages=pages,
    )


def add_partitions(
    work: Work, case: Case, iterations: float, tuples: float, keys: Keys, held: float
) -> float:
    """Read a partition in every iteration, and probe the window with it; returns the pages.

    ``tuples`` tuples leave the window joined; ``held`` tuples with these keys wait in it.
    """
    pages = iterations * min(case.plan.buffer_pages, max(1, case.table.num_pages))
    add_window(
        work, case, "hybrid", pages=pages, requests=iterations, tuples=tuples, keys=keys, held=held
    )
    return pages
