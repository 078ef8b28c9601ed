"""SweepJoin (ours; docs/algorithms/sweepjoin.md).

A sweep goes round the table and reads the pages that tuples wait for. A tuple that comes waits
for the sweep to reach its page, half a sweep on average: a window of h tuples has 2 h tuples
come and go in one sweep (Little's law). A page with load q is read if any of them needs it,
with the probability 1 - exp(-2 h q). Visits have as many needed pages as the disk buffer holds.
Reads are ahead of the visit that is being joined, so the slower one of disk and processor
decides.

The front stage counts over a sweep (``front_stage.py``). Without ``front_stage=`` the run moves
memory between front stage and window to where it gains more: the model takes the share with the
highest rate. A drained batch of m misses needs the pages that m tuples need, and nothing waits
afterwards; memory of a window that is mostly idle goes to the front stage.
"""

from __future__ import annotations

import numpy as np

from semistream.cost.case import Case, Work
from semistream.cost.prediction import Prediction
from semistream.cost.window_stage import add_admission, behind_front_stage, front_capacity

SHARES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)  # between which memory moves
IDLE_SHARE = 0.6  # where batches are drained, and the window is mostly idle
_FULL = 0.94  # of the window: tuples are admitted when an eighth is vacant
_HISTORY = 2.0  # counts are halved every sweep: two sweeps count
_SKETCH_SPAN = 4.0  # tuples per cached row over which a sketch counts


def predict(case: Case) -> Prediction:
    if case.join.front_stage is not None:
        return sweep(case)
    if case.traffic.drained and case.traffic.push * 4 <= _window(case.using(front_stage=0.3)):
        return sweep(case.using(front_stage=IDLE_SHARE))
    return max((sweep(case.using(front_stage=s)) for s in SHARES), key=lambda found: found.rate)


def _window(case: Case) -> int:
    assert case.plan.window is not None
    return case.plan.window.capacity


def sweep(case: Case) -> Prediction:
    """With the front stage's share as it is."""
    plan, table, traffic = case.plan, case.table, case.traffic
    window = _window(case) * _FULL

    def span(hit: float) -> float:
        if traffic.drained:
            return max(float(traffic.push), _SKETCH_SPAN * front_capacity(case))
        return _HISTORY * 2 * window / (1.0 - hit)

    hit = case.settle(lambda hit: behind_front_stage(case, span(hit))[1])
    keys, _ = behind_front_stage(case, span(hit))
    loads = case.loads(keys)
    if traffic.drained:
        tuples = float(traffic.push)
        missed = tuples * (1.0 - hit)
        last = min(missed, window)
        pages = loads.visited(last) + (missed - last) / (2 * window) * loads.visited(2 * window)
        held, longest = missed / 2, tuples
    else:
        missed = 2 * window
        tuples = missed / (1.0 - hit)
        pages = loads.visited(missed)
        held, longest = window, tuples
    total = max(1, table.num_pages)
    visit_pages = max(1, getattr(plan, "visit_pages", plan.buffer_pages))
    visits = max(pages / visit_pages, min(1.0, missed))
    density = min(1.0, pages / total)
    gap = getattr(plan, "gap_pages", 0)
    jumps = (1.0 - density) ** np.arange(1, gap + 1)
    read = min(float(total), pages * (1.0 + density * float((np.arange(1, gap + 1) * jumps).sum())))
    requests = max(pages * (1.0 - density) ** (gap + 1), read / visit_pages, 1e-9)
    work = Work(case)
    ahead = getattr(plan, "reads_ahead", 0)
    # Tuples are admitted, and rows returned, when some have been served.
    settings, buffers = case.settings, max(1, ahead) * visit_pages * table.max_page_bytes
    enough = min(buffers / settings.disk_bytes_per_miss, window / settings.vacancy)
    rounds = min(missed / max(1.0, enough), missed)
    add_admission(work, case, tuples, tuples * hit, rounds=max(rounds, min(1.0, tuples)))
    work.add("sweep.visit", visits)
    work.add("sweep.page", pages)
    work.add("sweep.tuple", missed)
    gathered = visits / settings.visits_per_batch
    work.add("batch", max(min(gathered, missed), rounds, missed / case.output_rows))
    assert plan.window is not None
    work.touch(missed, 8 * plan.window.capacity)
    work.touch(2 * missed, plan.window.nbytes)
    work.read(requests, read / requests * table.max_page_bytes, in_flight=1 + ahead)
    return work.predict(
        iterations=visits,
        tuples=tuples,
        front_share=hit,
        held=held,
        longest=longest,
        pages=read,
        overlap=ahead > 0,
    )
