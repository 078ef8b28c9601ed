"""The order of a sweep: round the stretches in key order, in visits to the needed pages."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa

from engine.kit import binding, context, layout, pages_of
from semistream.joins.sweep.route import Route
from semistream.joins.sweep.stretch_window import StretchWindow, StretchWindowSize
from semistream.joins.sweep.stretches import Stretches

PAGES = pages_of([[10 * page, 10 * page + 1] for page in range(24)])


def route_of(
    stretch_pages: int, keys: list[int], pages: object = PAGES
) -> tuple[Route, StretchWindow]:
    stretches = Stretches(pages.index, stretch_pages)  # type: ignore[attr-defined]
    window = StretchWindow(layout(), StretchWindowSize(64, 0, 0, 1), stretches)
    add(window, keys)
    return Route(context(binding(PAGES)), stretches), window


def add(window: StretchWindow, keys: list[int]) -> None:
    columns = [pa.array(range(len(keys)), pa.int64())]
    assert window.add(np.array(keys, np.int64), columns, np.arange(len(keys)), []) == len(keys)


def test_stretches_come_in_key_order_and_those_without_tuples_are_skipped() -> None:
    route, window = route_of(1, [200, 30, 110, 30])
    seen = [route.next_stretch(window) for _ in range(3)]
    assert [[(v.first, v.last, len(v.slots)) for v in visits] for visits in seen] == [
        [(3, 3, 2)],
        [(11, 11, 1)],
        [(20, 20, 1)],
    ]
    assert route.next_stretch(window) == []
    assert route.sweeps == 0


def test_a_tuple_behind_the_sweep_waits_until_it_has_gone_round() -> None:
    route, window = route_of(1, [110])
    route.next_stretch(window)
    add(window, [30, 200])
    assert [route.next_stretch(window)[0].first for _ in range(2)] == [20, 3]
    assert route.sweeps == 1


def test_a_stretch_is_cut_where_pages_are_not_needed() -> None:
    route, window = route_of(24, [0, 1, 20, 230])  # pages 0, 2 and, far away, 23
    visits = route.next_stretch(window)
    gap = context().settings.gap_pages
    assert gap < 20
    assert [(v.first, v.last) for v in visits][-1] == (23, 23)
    assert all(b.first - a.last > 1 + gap for a, b in pairwise(visits))
    assert sum(len(v.slots) for v in visits) == 4
    assert [v.ends_stretch for v in visits] == [False] * (len(visits) - 1) + [True]


def test_many_waiters_get_the_whole_stretch_in_one_visit() -> None:
    dense = context().settings.dense_waiters
    route, window = route_of(2, [0] * (2 * dense + 1))
    assert [(v.first, v.last) for v in route.next_stretch(window)] == [(0, 1)]


def test_a_sweep_never_has_more_visits_than_it_says() -> None:
    keys = [10 * page for page in range(24)]
    for pages in (1, 3, 24):
        for step in (1, 2, 5, 9):
            route, window = route_of(pages, keys[::step])
            found = [route.next_stretch(window) for _ in range(24)]
            whole, of_a_stretch = route.most_visits
            assert sum(map(len, found)) <= whole
            assert max(map(len, found)) <= of_a_stretch
