"""The parts of the models against plain simulations."""

from __future__ import annotations

from collections import OrderedDict, deque

import numpy as np
import pytest

from semistream import workload
from semistream.cost.front_stage import held
from semistream.cost.inlj import pool_misses
from semistream.cost.keys import uniform, zipf
from semistream.cost.loads import Loads, partition_loads
from semistream.cost.renewal import drained, renewal

ROWS, PER_PAGE = 60_000, 100


def pages_of(exponent: float, scattered: bool, tuples: int) -> np.ndarray:
    keys = workload.zipf(tuples, ROWS, exponent, seed=5, scattered=scattered)
    return (keys - 1) // PER_PAGE


@pytest.mark.parametrize("scattered", [True, False])
@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_pages_that_tuples_need(exponent: float, scattered: bool) -> None:
    loads = partition_loads(zipf(ROWS, exponent), ROWS // PER_PAGE, not scattered)
    assert (loads.counts * loads.load).sum() == pytest.approx(1.0)
    assert loads.counts.sum() == ROWS // PER_PAGE
    for tuples in (100, 1_000, 10_000):
        seen = len(np.unique(pages_of(exponent, scattered, tuples)))
        assert loads.visited(tuples) == pytest.approx(seen, rel=0.06, abs=5)


def hybrid_queue(pages: np.ndarray, window: int) -> tuple[float, float]:
    """HYBRIDJOIN's window without rows: (tuples served per read, tuples that pass the oldest)."""
    queue: deque[int] = deque()  # positions in the stream; those that have left are skipped
    by_page: dict[int, list[int]] = {}
    gone: set[int] = set()
    waiting, position, reads, served, ages = 0, 0, 0, 0, []
    while position < len(pages):
        while waiting < window and position < len(pages):
            queue.append(position)
            by_page.setdefault(int(pages[position]), []).append(position)
            waiting, position = waiting + 1, position + 1
        while queue[0] in gone:
            gone.discard(queue.popleft())
        ages.append(position - queue[0])
        leaving = by_page.pop(int(pages[queue[0]]))
        gone.update(leaving)
        waiting -= len(leaving)
        if position > len(pages) // 2:  # settled
            reads, served = reads + 1, served + len(leaving)
    return served / reads, float(np.mean(ages[len(ages) // 2 :]))


@pytest.mark.parametrize("scattered", [True, False])
@pytest.mark.parametrize("exponent", [0.0, 1.0])
@pytest.mark.parametrize("window", [200, 5_000])
def test_tuples_that_hybridjoin_serves_per_read(
    exponent: float, scattered: bool, window: int
) -> None:
    pages = pages_of(exponent, scattered, 120_000)
    served, age = hybrid_queue(pages, window)
    loads = partition_loads(zipf(ROWS, exponent), ROWS // PER_PAGE, not scattered)
    found = renewal(loads, window)
    assert found.served == pytest.approx(served, rel=0.1)
    assert found.age == pytest.approx(age, rel=0.15)


@pytest.mark.parametrize("exponent", [0.0, 1.0])
@pytest.mark.parametrize("frames", [20, 200])
def test_pages_that_an_lru_pool_misses(exponent: float, frames: int) -> None:
    pool: OrderedDict[int, None] = OrderedDict()
    missed = 0
    pages = pages_of(exponent, True, 20_000).tolist()
    for page in pages:
        missed += page not in pool
        pool.pop(page, None)
        pool[page] = None
        if len(pool) > frames:
            pool.popitem(last=False)
    loads = partition_loads(zipf(ROWS, exponent), ROWS // PER_PAGE, False)
    assert pool_misses(loads, frames) == pytest.approx(missed / len(pages), rel=0.05)


def test_a_pool_for_all_pages_misses_none() -> None:
    assert pool_misses(Loads(np.ones(3), np.array([0.5, 0.3, 0.2])), 3) == 0.0


@pytest.mark.parametrize("span", [100.0, 3_000.0, 1e7])
def test_a_front_stage_is_full_and_holds_the_frequent(span: float) -> None:
    keys = zipf(50_000, 1.0)
    kept = held(keys, 1_000, span, threshold=2)
    assert (keys.counts * kept).sum() == pytest.approx(1_000, rel=1e-3)
    assert (np.diff(kept) <= 1e-9).all()
    served = (keys.mass * kept).sum()
    assert served <= keys.top(1_000) + 1e-9
    if span == 1e7:  # counts are exact
        assert served == pytest.approx(keys.top(1_000), rel=0.01)


def test_front_stages_at_the_limits() -> None:
    keys = uniform(100)
    assert held(keys, 0, 1_000).sum() == 0
    assert held(keys, 100, 10).min() == 1.0


def reads_of_a_batch(pages: np.ndarray, window: int) -> tuple[int, int]:
    """HYBRIDJOIN's window without rows: reads until all is admitted, and until it is empty."""
    queue: deque[int] = deque()  # positions; those that have left are skipped
    by_page: dict[int, list[int]] = {}
    gone: set[int] = set()
    waiting, position, reads, admitting = 0, 0, 0, 0
    while position < len(pages) or waiting:
        while waiting < window and position < len(pages):
            queue.append(position)
            by_page.setdefault(int(pages[position]), []).append(position)
            waiting, position = waiting + 1, position + 1
        if position == len(pages) and not admitting:
            admitting = reads + 1
        while queue[0] in gone:
            gone.discard(queue.popleft())
        leaving = by_page.pop(int(pages[queue[0]]))
        gone.update(leaving)
        waiting, reads = waiting - len(leaving), reads + 1
    return admitting - 1, reads


@pytest.mark.parametrize("scattered", [True, False])
@pytest.mark.parametrize("exponent", [0.0, 1.0])
@pytest.mark.parametrize("windows", [0.7, 1.5, 2.3, 4.0])
def test_reads_of_a_drained_batch(exponent: float, scattered: bool, windows: float) -> None:
    window, partition = 4_000, 4 * PER_PAGE
    tuples, counted = int(windows * window), []
    for seed in range(4):  # a read of a hot partition sooner or later makes a difference
        keys = workload.zipf(tuples, ROWS, exponent, seed=seed, scattered=scattered)
        counted.append(reads_of_a_batch((keys - 1) // partition, window))
    admitting, reads = np.mean(counted, axis=0)
    loads = partition_loads(zipf(ROWS, exponent), ROWS // partition, not scattered)
    found = drained(loads, float(tuples), float(window))
    assert found.reads == pytest.approx(reads, rel=0.08)
    if windows < 3:
        assert found.admitting == pytest.approx(admitting, rel=0.12, abs=4)
