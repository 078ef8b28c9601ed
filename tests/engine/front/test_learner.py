"""Which rows of the visited pages are offered to the front stage."""

from __future__ import annotations

import numpy as np
import pytest

from engine.kit import MemoryPages, binding, context, pages_of
from semistream.engine.disk_buffer import Scan
from semistream.engine.front.choice import CACHES, new_front_stage
from semistream.engine.front.contract import MOST_ROWS_PER_KEY, CacheSize
from semistream.engine.front.learner import Learner, cut_edges
from semistream.engine.page_rows import BatchRows
from semistream.testing import RecordingObserver

every_cache = pytest.mark.parametrize("cache", CACHES)


def learn(
    cache: str, source: MemoryPages, first: int, last: int, counts: list[int], least: int = 2
) -> tuple[set[int], list[tuple[int, ...]]]:
    """(keys cached after pages ``first`` to ``last`` had these matches, what was reported)."""
    observer = RecordingObserver()
    shared = context(binding(source), observer)
    front = new_front_stage(cache, [source.schema.field("v").type], CacheSize(100, 10_000, 0), 1)
    front.threshold = least
    scan = Scan(first, last)
    scan.fill(BatchRows(source.pages[first : last + 1], shared.binding))
    scan.counts[:] = counts
    Learner(shared, source).learn(front, scan)
    keys = np.arange(100)
    found = front.probe(keys, None, 0, 100, 1000, False)
    values = front.rows.take(found.hit_slots)[0].to_pylist()
    expected = [
        value
        for page in source.pages
        for key, value in zip(*(c.to_pylist() for c in page.columns), strict=True)
        if key in found.hit_rows
    ]
    assert sorted(values) == sorted(expected)  # a key is cached with all its rows
    return set(found.hit_rows.tolist()), observer.named("front_stage_changed")


@every_cache
def test_rows_with_enough_matches(cache: str) -> None:
    source = pages_of([[1, 2], [3, 4]])
    held, reported = learn(cache, source, 0, 1, [2, 1, 0, 5])
    assert held == {1, 4}
    assert reported == [(2, 0, 2, 2)] or (cache != "recorder" and reported == [(2, 0, 2, 1)])


@every_cache
def test_nothing_is_reported_without_hot_rows(cache: str) -> None:
    assert learn(cache, pages_of([[1, 2]]), 0, 0, [1, 0]) == (set(), [])


@every_cache
def test_a_key_is_admitted_with_all_its_rows(cache: str) -> None:
    source = pages_of([[1, 1, 2], [3, 3]])
    assert learn(cache, source, 0, 1, [0, 2, 1, 9, 9])[0] == {1, 3}


@every_cache
def test_a_key_that_continues_outside_the_buffer_is_skipped(cache: str) -> None:
    source = pages_of([[1, 2], [2, 3], [3, 4]])
    assert learn(cache, source, 1, 1, [9, 9])[0] == set()
    assert learn(cache, source, 0, 1, [9, 9, 9, 9])[0] == {1, 2}
    assert learn(cache, source, 0, 2, [9] * 6)[0] == {1, 2, 3, 4}


@every_cache
def test_a_key_with_too_many_rows_is_skipped(cache: str) -> None:
    most = MOST_ROWS_PER_KEY
    source = pages_of([[1] * most + [2] * (most + 1)])
    assert learn(cache, source, 0, 0, [5] * (2 * most + 1))[0] == {1}


def test_keys_that_cross_the_buffers_edges() -> None:
    source = pages_of([[1, 2], [2, 3], [3, 4], [5]])
    edges = []
    for first, last in ((0, 0), (1, 1), (2, 2), (0, 2), (3, 3)):
        scan = Scan(first, last)
        scan.fill(BatchRows(source.pages[first : last + 1], binding(source)))
        edges.append(cut_edges(source, scan))
    assert edges == [(False, True), (True, True), (True, False), (False, False), (False, False)]


def test_a_key_is_ranked_by_its_row_with_most_matches() -> None:
    """With conditions, as in a table with history, the first row of a key may match nobody."""
    source = pages_of([[1, 1, 2]])
    shared = context(binding(source))
    kind = source.schema.field("v").type
    front = new_front_stage("recorder", [kind], CacheSize(100, 10_000, 0), 1)
    scan = Scan(0, 0)
    scan.fill(BatchRows(source.pages, shared.binding))
    scan.counts[:] = 0, 9, 3
    Learner(shared, source).learn(front, scan)
    assert front._evict(98) == 1, "key 2, which matched least"
    assert front.probe(np.array([1, 2]), None, 0, 2, 10, False).hit_rows.tolist() == [0, 0]
