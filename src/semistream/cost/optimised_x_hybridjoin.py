"""Optimised X-HYBRIDJOIN (001, equations 1 to 9).

| equation | here |
|---|---|
| 1: memory with k pages and H_R | the memory plan: disk buffer and front stage |
| 2: cost: c_I/O(k v_P) + d c_H + w_S (c_O + c_E + c_S + c_A) | as HYBRIDJOIN |
| + w_N (c_H + c_O + c_S) | ``look_up`` and ``hit`` |
| 3: rate = (w_N + w_S) / cost | the same |
| 4 to 6: p_N = ln h_R / ln R_t, then a fitted power law | ``pinned.py``, any distribution |
| 7 to 9: w_S as a power law of d, h_R, R_t with fitted exponents | ``renewal.py`` |

Changed: nothing is fitted. A power law is exact only near the point where it was fitted.
"""

from __future__ import annotations

from semistream.cost.case import MOST_SERVED, Case, Work
from semistream.cost.hybridjoin import add_partitions, capacity
from semistream.cost.pinned import pinned_pages
from semistream.cost.prediction import Prediction
from semistream.cost.renewal import drained, renewal
from semistream.cost.window_stage import LEARNING, add_admission, front_capacity


def predict(case: Case) -> Prediction:
    table, traffic = case.table, case.traffic
    rows = max(1.0, case.rows_per_page)
    pages = float(min(int(front_capacity(case) / rows), table.num_pages))
    pinned = pinned_pages(case, pages)
    hit = pinned.share if case.front_share is None else min(case.front_share, MOST_SERVED)
    window = capacity(case)
    steady = renewal(pinned.rest, window, traffic.absent)
    if traffic.drained:
        tuples = float(traffic.push)
        missed = tuples * (1.0 - hit)
        batch = drained(pinned.rest, missed, window, traffic.absent)
        admissions, iterations = batch.admitting + 1.0, max(min(1.0, missed), batch.reads)
        held, longest = missed / 2, tuples
    else:
        iterations, admissions, missed = 1.0, 1.0, steady.served
        tuples = missed / max(1e-9, 1.0 - hit)
        held, longest = float(window), steady.age / max(1e-9, 1.0 - hit)
    work = Work(case)
    add_admission(work, case, tuples, tuples * hit, rounds=min(admissions, tuples))
    read = add_partitions(work, case, iterations, missed, traffic.keys, held)
    for factor in LEARNING:  # H_R is filled once
        work.amounts.pop(factor, None)
    return work.predict(
        iterations=iterations,
        tuples=tuples,
        front_share=hit,
        held=held,
        longest=longest,
        pages=read,
    )
