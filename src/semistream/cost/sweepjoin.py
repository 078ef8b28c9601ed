"""SweepJoin (ours; docs/algorithms/sweepjoin.md).

A sweep goes round the table and reads the pages that tuples wait for. A tuple that comes waits
for the sweep to reach its page, half a sweep on average: where h tuples are in the lists, M = 2 h
tuples come and go in one sweep (Little's law; ``one_sweep``). A page with load q is read if any of
them needs it, with the probability 1 - exp(-M q). A visit serves one stretch, or several where few
tuples wait (``visits_of``). Rows are returned, and tuples admitted, when some visits have served
enough (``hand_overs``); a large visit makes several output batches, and its room takes several
calls to fill. Reads are ahead of the visit that is being joined, so the slower one of disk and
processor decides.

The front stage counts over a sweep (``front_stage.py``). Without ``front_stage=`` the run moves
memory between front stage and window to where it gains more: the model takes the share with the
highest rate. A drained batch of m misses needs the pages that m tuples need, and nothing waits
afterwards; memory of a window that is mostly idle goes to the front stage.

Where the page cache has the pages, a visit may copy rows out of them instead of keeping them
(``joins/sweep/visit_copies.py``): such a visit has more pages than a buffer. They are read one by
one, or mapped, which costs one fault for each huge page that has any of them. The run times all
ways and takes the fastest one: so does the model. Of a table that stays mapped
(``mapped="resident"``) every page costs as much as one in a huge page that is mapped.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from semistream.cost.case import Case, Work
from semistream.cost.keys import poisson_tail
from semistream.cost.loads import Loads
from semistream.cost.moving import at_rest
from semistream.cost.prediction import Prediction
from semistream.cost.window_stage import add_admission, behind_front_stage, front_capacity, portions
from semistream.engine.memory_mover import IDLE_ROOM
from semistream.engine.rows.copied_rows import MANY
from semistream.master.page_buffer import HUGE

START_SHARE = 0.3  # of the front stage, before memory moves
IDLE_SHARE = 0.85  # where batches are drained, and the window is mostly idle
_ROOMS = 8  # values of an even distribution
_HISTORY = 2.0  # counts are halved every sweep: two sweeps count
_READ, _READ_ROWS, _MAP_ROWS = range(3)
_SKETCH_SPAN = 4.0  # tuples per cached row over which a sketch counts


def predict(case: Case) -> Prediction:
    if case.join.moves_memory and case.traffic.drained:
        idle = case.using(front_stage=IDLE_SHARE, adapt=False)
        start = sweep(case.using(front_stage=START_SHARE, adapt=False))
        if IDLE_ROOM * case.traffic.push * (1.0 - start.front_share) <= _window(idle):
            return sweep(idle)
    return at_rest(case, sweep)


def _window(case: Case) -> int:
    assert case.plan.window is not None
    return case.plan.window.capacity


def sweep(case: Case) -> Prediction:
    """With the front stage's share as it is, and the fastest way to the pages."""
    found = [_sweep(case, _MAP_ROWS if case.table.resident else _READ)]
    many = 1.0 - found[0].front_share > MANY * found[0].pages_per_tuple
    if case.machine.is_cached and not many:
        if getattr(case.plan, "copied_rows", 0):
            found.append(_sweep(case, _READ_ROWS))
        if getattr(case.plan, "mapped_bytes", 0):
            found.append(_sweep(case, _MAP_ROWS))
    return max(found, key=lambda one: one.rate)


def _sweep(case: Case, way: int) -> Prediction:
    plan, table, traffic = case.plan, case.table, case.traffic
    window = float(_window(case))

    def span(hit: float) -> float:
        if traffic.drained:
            return max(float(traffic.push), _SKETCH_SPAN * front_capacity(case))
        return _HISTORY * 2 * window / (1.0 - hit)

    hit = case.settle(lambda hit: behind_front_stage(case, span(hit))[1])
    keys, _ = behind_front_stage(case, span(hit))
    loads, stretches = case.loads(keys), case.loads(keys, plan.buffer_pages)
    visit_pages = _visit_pages(case, way != _READ)
    if traffic.drained:
        tuples = float(traffic.push)
        missed = tuples * (1.0 - hit)
        last, whole = min(missed, window), one_sweep(case, stretches, visit_pages)
        sweeps = (missed - last) / whole
        pages = loads.visited(last) + sweeps * loads.visited(whole)
        visits = visits_of(case, stretches, last, visit_pages)
        visits += sweeps * visits_of(case, stretches, whole, visit_pages)
        held, longest = missed / 2, tuples
    else:
        missed = one_sweep(case, stretches, visit_pages)
        tuples = missed / (1.0 - hit)
        pages, visits = loads.visited(missed), visits_of(case, stretches, missed, visit_pages)
        sweeps, held, longest = 1.0, window, tuples
    total = max(1, table.num_pages)
    density = min(1.0, pages / total)
    gap = getattr(plan, "gap_pages", 0)
    jumps = (1.0 - density) ** np.arange(1, gap + 1)
    between = pages * density * float((np.arange(1, gap + 1) * jumps).sum())
    between *= bridged(visit_pages, stretches, visits, missed, pages, between)
    read = pages if way != _READ else min(float(total), pages + between)
    requests = max(pages * (1.0 - density) ** (gap + 1), read / visit_pages, 1e-9)
    if way != _READ:
        visits = max(visits, missed / _most_tuples(case, stretches))
    work = Work(case)
    rounds = hand_overs(case, visits, missed)
    admitted = rounds if sweeps else 1.0  # a drained batch that the window holds: at once
    add_admission(work, case, tuples, tuples * hit, rounds=max(admitted, min(1.0, tuples)))
    work.add("sweep.visit", visits)
    if way == _READ:
        work.add("sweep.request", requests)
        work.add("sweep.page", pages)
    elif way == _READ_ROWS:
        work.add("sweep.single", pages)
    else:
        per_huge = max(1.0, HUGE / table.max_page_bytes)
        if not table.resident:
            work.add("sweep.huge", total / per_huge * -math.expm1(per_huge * _log_rest(density)))
        work.add("sweep.copied", pages)
    if way != _READ and not table.resident:
        work.add("sweep.row", missed)
        work.add("sweep.part", max(visits, missed / max(1, getattr(plan, "copied_rows", 0))))
    work.add("sweep.tuple", missed)
    work.add("batch", min(portions(rounds, missed, case.output_rows), missed))
    assert plan.window is not None
    work.touch(missed, 8 * plan.window.capacity)
    work.touch(2 * missed, plan.window.nbytes)
    work.read(requests, read / requests * table.max_page_bytes, in_flight=1 + _ahead(case))
    return work.predict(
        iterations=visits,
        tuples=tuples,
        front_share=hit,
        held=held,
        longest=longest,
        pages=read,
        overlap=_ahead(case) > 0,
    )


def one_sweep(case: Case, stretches: Loads, visit_pages: int) -> float:
    """Tuples that come, and leave, while a full window is swept once.

    They wait half a sweep on average. Slots are also taken by the visits that were found ahead,
    by tuples that were served since the last admission, and by the last chunk of every list.
    """
    window: Any = case.plan.window
    lists = float(stretches.counts.sum())
    slots = window.capacity - min(lists * (window.chunk - 1) / 2, window.capacity / 2)
    found = float(2.0 * slots)
    for _ in range(4):
        visits = max(1.0, visits_of(case, stretches, found, visit_pages))
        served = max(found / visits, _enough(case))  # between two admissions
        ahead = min(1.0 + _ahead(case), visits)
        found = max(1.0, 2.0 * (slots - min(served, slots) / 2) / (1.0 + 2.0 * ahead / visits))
    return found


def visits_of(case: Case, stretches: Loads, tuples: float, visit_pages: int) -> float:
    """Visits that serve this many tuples, as ``kernels.sweep.collect`` divides them.

    A visit takes the next stretches as long as their tuples, or their pages if these are fewer,
    are no more than the buffer's pages. The stretch that does not fit any more leaves some
    unused: half of one that is chosen by its size.
    """
    most, pages = visit_pages, max(1, case.plan.buffer_pages)
    waiting = stretches.load * tuples
    each = np.minimum(waiting, pages)
    if case.traffic.clustered:  # then the next one has about as many; one that is full fits exactly
        left = most - np.where(waiting < pages, each / 2, 0.0)
        each = np.minimum(each / np.maximum(left, 1.0), -np.expm1(-waiting))
        return max(float((stretches.counts * each).sum()), min(1.0, tuples))
    needed = float((stretches.counts * each).sum())
    share = stretches.counts * each / max(needed, 1e-300)
    unused = (float((share * np.minimum(1.0 + waiting, pages)).sum()) - 1.0) / 2
    packed = needed / max(1.0, most - max(0.0, unused))
    return max(min(packed, stretches.visited(tuples)), needed / most / 2, min(1.0, tuples))


def bridged(
    visit_pages: int, stretches: Loads, visits: float, missed: float, pages: float, between: float
) -> float:
    """Share of the pages ``between`` needed ones that are read along with them.

    A visit to several stretches reads all of its own, or none if the buffer has no room for them
    (``Route.find_pages``). Their number is a Poisson variable, and the room evenly distributed.
    """
    each, room = between / max(visits, 1e-12), visit_pages - pages / max(visits, 1e-12)
    several = min(1.0, max(0.0, stretches.visited(missed) / max(visits, 1e-12) - 1.0))
    rooms = 2.0 * max(0.0, room) * (np.arange(_ROOMS) + 0.5) / _ROOMS
    left = [float(poisson_tail(each, int(one))) for one in rooms]
    return 1.0 - several * float(np.mean(left))


def hand_overs(case: Case, visits: float, missed: float) -> float:
    """How often rows are returned and tuples admitted: after as many visits as serve enough."""
    per_visit = missed / max(visits, 1e-12)
    together = min(math.ceil(_enough(case) / max(per_visit, 1e-12)), case.settings.visits_per_batch)
    return max(visits / max(1, together), min(1.0, missed))


def _most_tuples(case: Case, stretches: Loads) -> float:
    """Of a visit, as ``Sweep._set_enough``. Visits to the pages of one buffer have fewer."""
    settings, nbytes = case.settings, case.plan.buffer_pages * case.table.max_page_bytes
    usual = _window(case) / float(stretches.counts.sum())
    return max(settings.stretch_fill * usual, nbytes / settings.visit_bytes_per_tuple, 1.0)


def _enough(case: Case) -> float:
    """Tuples that are admitted together, as ``Sweep._set_enough``."""
    settings, page = case.settings, case.table.max_page_bytes
    nbytes = max(1, _ahead(case)) * _visit_pages(case) * page
    return max(1.0, min(nbytes / settings.disk_bytes_per_miss, _window(case) / settings.vacancy))


def _visit_pages(case: Case, copies: bool = False) -> int:
    pages = getattr(case.plan, "visit_pages", case.plan.buffer_pages)
    copied = getattr(case.plan, "copied_pages", 0) if copies else 0
    return max(1, copied or pages)


def _log_rest(density: float) -> float:
    """The logarithm of the share of the pages that are not needed."""
    return math.log1p(-min(density, 1.0 - 1e-12))


def _ahead(case: Case) -> int:
    return int(getattr(case.plan, "reads_ahead", 0))
