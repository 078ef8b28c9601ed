"""MESHJOIN (004, equations 1 to 6).

| equation | here |
|---|---|
| 1: memory | the memory plan; the hash table's factor f is exact |
| 2: cost of an iteration: c_I/O(b) | ``mesh.page`` and the disk |
| + w (c_E + c_S + c_A) | ``mesh.tuple``, which includes c_O |
| + rows (c_H + sigma c_O) | ``mesh.row`` for c_H |
| 3: rate = w / cost | the same, with the hits of a front stage added to w |
| 4: reads per tuple = b / w | ``pages_per_tuple`` |
| 5, 6: w = rate * cost | solved for memory by the tuner |

Changed: a fixed cost per iteration and per output batch; probing costs more in a larger window
(random accesses to memory); c_O is paid per waiting tuple, not per row of R, since every tuple
that is not absent has its output. Draining a batch of m tuples takes m / w iterations to admit
it and one whole cycle until the last one leaves.
"""

from __future__ import annotations

from semistream.cost.case import Case, Work
from semistream.cost.moving import at_rest
from semistream.cost.prediction import Prediction
from semistream.cost.window_stage import add_admission, add_window, behind_front_stage


def predict(case: Case) -> Prediction:
    return at_rest(case, lambda case: mesh(case, partition_pages=case.plan.buffer_pages))


def mesh(case: Case, partition_pages: int) -> Prediction:
    """A cyclic scan in partitions of this many pages, behind a front stage if the plan has one."""
    plan, table, traffic = case.plan, case.table, case.traffic
    assert plan.window is not None
    pages = max(1, table.num_pages)
    partition = max(1, min(partition_pages, pages))
    cycle = -(-pages // partition)  # iterations; k in the paper
    capacity = plan.window.capacity
    chunk = -(-capacity // cycle)  # w
    reads = -(-partition // max(1, plan.buffer_pages)) * (pages / cycle / partition)

    def span(hit: float) -> float:
        """Tuples of the stream between two visits to a page."""
        if traffic.drained:
            return min(float(traffic.push), capacity / (1.0 - hit))
        return capacity / (1.0 - hit)

    threshold = getattr(case.join, "threshold", 1)
    hit = case.settle(lambda hit: behind_front_stage(case, span(hit), threshold)[1])
    keys, _ = behind_front_stage(case, span(hit), threshold)
    if traffic.drained:
        tuples = float(traffic.push)
        admissions = max(1.0, tuples * (1.0 - hit) / chunk)
        iterations = tuples * (1.0 - hit) / chunk + cycle
        waiting, longest = tuples * (1.0 - hit) / 2, tuples
    else:
        tuples, iterations, admissions = chunk / (1.0 - hit), 1.0, 1.0
        # A tuple meets its row halfway round, on average.
        waiting, longest = capacity / 2.0, capacity / (1.0 - hit)
    missed = tuples * (1.0 - hit)
    scanned = iterations * pages / cycle
    work = Work(case)
    add_admission(work, case, tuples, tuples * hit, rounds=min(admissions, missed))
    add_window(
        work,
        case,
        "mesh",
        pages=scanned,
        requests=iterations * reads,
        tuples=missed,
        keys=keys,
        held=min(missed, capacity) if traffic.drained else capacity,
    )
    return work.predict(
        iterations=iterations,
        tuples=tuples,
        front_share=hit,
        held=waiting,
        longest=longest,
        pages=scanned,
    )
