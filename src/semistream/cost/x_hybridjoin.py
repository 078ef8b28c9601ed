"""X-HYBRIDJOIN (002, equations 4 to 9).

| equation | here |
|---|---|
| 4: memory with k + l pages | the memory plan: disk buffer and pinned pages |
| 5: cost: c_I/O(k v_P) + d_S c_H + w (c_O + c_E + c_S + c_A) | as HYBRIDJOIN |
| + d_N c_H | ``pinned.row`` |
| 6: rate = w / cost | the same |
| 7, 8: p_old = 1 / n, p_new = p_N + p_S / n, for Zipf(1) | ``pinned.py``, any distribution |
| 9: w from p (1 - p) | p_N w tuples leave at once, the others as in ``renewal.py`` |

Changed: equation 9 multiplies by (1 - p) what should be an expected number, n p; the difference
is small for small p. Popular pages are chosen from a sample of the stream.
"""

from __future__ import annotations

from semistream.cost.case import Case, Work
from semistream.cost.hybridjoin import add_partitions, capacity
from semistream.cost.pinned import pinned_pages
from semistream.cost.prediction import Prediction
from semistream.cost.renewal import drained, renewal
from semistream.cost.window_stage import add_admission, touch_window


def predict(case: Case) -> Prediction:
    plan, table, traffic = case.plan, case.table, case.traffic
    row_bytes = max(1.0, table.row_bytes)
    pages = min(plan.pinned_bytes / (row_bytes * max(1.0, case.rows_per_page)), table.num_pages)
    pages = float(int(pages))
    pinned = pinned_pages(case, pages)
    window = capacity(case)
    # A tuple of a pinned page leaves in the iteration in which it came.
    steady = renewal(pinned.rest, window, traffic.absent)
    if traffic.drained:
        tuples = float(traffic.push)
        waiting = tuples * (1.0 - pinned.share)
        batch = drained(pinned.rest, waiting, window, traffic.absent)
        admissions, iterations = batch.admitting + 1.0, max(1.0, batch.reads)
        held, longest = waiting / 2, tuples
    else:
        iterations = admissions = 1.0
        tuples = steady.served / max(1e-9, 1.0 - pinned.share)
        # As many slots as come free in an iteration hold tuples of pinned pages.
        tuples = min(tuples, float(window))
        held, longest = float(window), steady.age / max(1e-9, 1.0 - pinned.share)
    work = Work(case)
    add_admission(work, case, tuples, 0.0, rounds=min(admissions, tuples))
    read = add_partitions(work, case, iterations, tuples, traffic.keys, held)
    rows = iterations * pages * case.rows_per_page
    work.add("pinned.row", rows)
    touch_window(work, case, rows, traffic.keys, held)
    if pages:
        work.add("pinned.scan", iterations)
        work.add("batch", min(iterations, tuples * pinned.share))
    return work.predict(
        iterations=iterations,
        tuples=tuples,
        front_share=pinned.share,
        held=held,
        longest=longest,
        pages=read,
    )
