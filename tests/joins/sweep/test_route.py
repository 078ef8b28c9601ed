"""The order of a sweep: which tuples make a visit, and the pages that it reads."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from engine.kit import binding, context, layout, pages_of
from semistream.joins.sweep.route import Route
from semistream.joins.sweep.stretch_window import NEVER, StretchWindow, StretchWindowSize
from semistream.joins.sweep.stretches import Stretches
from semistream.joins.sweep.visit import Visit
from semistream.master.index import PageIndex

PAGES = pages_of([[10 * page, 10 * page + 1] for page in range(24)])


def route_of(
    stretch_pages: int,
    keys: list[int],
    pages: Any = PAGES,
    most: int = 1,
    gap: int = 0,
    dense: int = NEVER,
) -> tuple[Route, StretchWindow]:
    stretches = Stretches(pages.index, stretch_pages)
    window = StretchWindow(layout(), StretchWindowSize(128, 0, 0, 1), stretches)
    add(window, keys)
    return Route(context(binding(pages)), stretches, most, gap, dense), window


def add(window: StretchWindow, keys: list[int]) -> None:
    columns = [pa.array(range(len(keys)), pa.int64())]
    rows = np.arange(len(keys))
    assert window.add(np.array(keys, np.int64), columns, rows, lambda _: []) == len(keys)


def next_visits(route: Route, window: StretchWindow) -> list[Visit]:
    visits = route.next_visits(window)
    for visit in visits:
        route.find_pages(window, visit)
    return visits


def visits_of(route: Route, window: StretchWindow) -> list[Visit]:
    """All that follow until no tuple waits; their chunks are given back."""
    visits = []
    while some := next_visits(route, window):
        visits += some
        for visit in some:
            window.leave(visit.slots)
    assert window.count == 0
    return visits


def pages_read(visits: list[Visit]) -> list[list[int]]:
    return [visit.pages.tolist() for visit in visits]


def test_stretches_come_in_key_order_and_those_without_tuples_are_skipped() -> None:
    route, window = route_of(1, [200, 30, 110, 30])
    visits = visits_of(route, window)
    assert pages_read(visits) == [[3], [11], [20]]
    assert [len(v.slots) for v in visits] == [2, 1, 1]
    assert next_visits(route, window) == []
    assert route.sweeps == 0


def test_a_tuple_behind_the_sweep_waits_until_it_has_gone_round() -> None:
    route, window = route_of(1, [110])
    next_visits(route, window)
    add(window, [30, 200])
    following = [*next_visits(route, window), *next_visits(route, window)]
    assert pages_read(following) == [[20], [3]]
    assert route.sweeps == 1


def test_looking_for_urgent_tuples_does_not_end_the_sweep() -> None:
    route, window = route_of(1, [110])
    next_visits(route, window)
    assert route.next_visits(window, first=18) == []  # none waits, here or elsewhere
    add(window, [30, 200])
    assert pages_read(next_visits(route, window)) == [[20]]


@pytest.mark.parametrize(
    ("waiting", "order"), [(1, [3, 18, 5, 19, 7, 20]), (3, [3, 18, 19, 20, 5, 7])]
)
def test_folded_deltas_have_every_second_turn_or_all_while_many_wait_for_them(
    waiting: int, order: list[int]
) -> None:
    route, window = route_of(1, [30, 30, 50, 50, 70, 70])
    first = next_visits(route, window)
    add(window, [180, 190, 200] * waiting)
    route._stretches.own = 18  # the others are of folded deltas
    visits = first + visits_of_rest(route, window)
    assert [visit.pages.tolist() for visit in visits] == [[page] for page in order]


def test_the_oldest_folded_delta_comes_first() -> None:
    route, window = route_of(1, [180, 190, 200, 210])
    route._stretches.own = 18
    route._stretches.segment_ends = [18, 20, 24]  # 20 to 23 were folded before 18 and 19
    visits = visits_of_rest(route, window)
    assert [visit.pages.tolist() for visit in visits] == [[20], [21], [18], [19]]


def visits_of_rest(route: Route, window: StretchWindow) -> list[Visit]:
    visits = []
    while some := next_visits(route, window):
        visits += some
    return visits


def test_a_drained_window_begins_with_a_new_sweep() -> None:
    """So that the next micro-batch is one visit, wherever the last one ended."""
    route, window = route_of(1, [110], most=8)
    assert visits_of(route, window) != []
    for sweep in (1, 2):
        add(window, [30, 200])
        assert pages_read(visits_of(route, window)) == [[3, 20]]
        assert visits_of(route, window) == []
        assert route.sweeps == sweep


def test_only_pages_that_tuples_wait_for_are_read() -> None:
    route, window = route_of(24, [0, 1, 20, 230, 235])
    (visit,) = visits_of(route, window)
    assert visit.pages.tolist() == [0, 2, 23]
    assert visit.places.tolist() == [0, 0, 1, 2, 2]
    assert window.codes[visit.slots].tolist() == [0, 1, 20, 230, 235]
    assert not visit.ended


@pytest.mark.parametrize(
    ("gap", "pages"),
    [(0, [0, 2, 5, 23]), (1, [0, 1, 2, 5, 23]), (2, [0, 1, 2, 3, 4, 5, 23])],
)
def test_pages_in_small_gaps_are_read_along(gap: int, pages: list[int]) -> None:
    route, window = route_of(24, [50, 230, 0, 20], gap=gap)
    (visit,) = visits_of(route, window)
    assert visit.pages.tolist() == pages
    assert visit.pages[visit.places].tolist() == [0, 2, 5, 23]


@pytest.mark.parametrize(("most", "pages"), [(7, [0, 1, 2, 3, 4, 12, 20]), (6, [0, 4, 12, 20])])
def test_gaps_are_not_read_if_the_visit_would_not_fit(most: int, pages: list[int]) -> None:
    route, window = route_of(4, [0, 40, 120, 200], most=most, gap=3)
    (visit,) = visits_of(route, window)
    assert visit.pages.tolist() == pages
    assert visit.pages[visit.places].tolist() == [0, 4, 12, 20]


def test_few_tuples_of_several_stretches_make_one_visit() -> None:
    keys = [0, 40, 41, 80, 130, 200]  # pages 0, 4, 8, 13, 20 of stretches 0, 1, 2, 3, 5
    route, window = route_of(4, keys, most=4)
    visits = visits_of(route, window)
    assert pages_read(visits) == [[0, 4, 8], [13, 20]]  # the tuples of stretch 1 may need two
    assert [v.stretches for v in visits] == [3, 3]
    assert [window.codes[v.slots].tolist() for v in visits] == [[0, 40, 41, 80], [130, 200]]
    assert route.sweeps == 0


def test_a_visit_does_not_go_past_the_last_stretch() -> None:
    route, window = route_of(4, [200], most=100)
    assert pages_read(visits_of(route, window)) == [[20]]
    add(window, [230, 0])
    visits = visits_of(route, window)
    assert pages_read(visits) == [[0, 23]]
    assert (visits[0].stretches, route.sweeps) == (6, 1)


def test_a_stretch_has_all_its_tuples_in_one_visit_whatever_it_needs() -> None:
    route, window = route_of(8, [10 * page for page in range(8)], most=2)
    assert pages_read(visits_of(route, window)) == [list(range(8))]


def test_a_key_in_several_pages_needs_all_of_them() -> None:
    pages = pages_of([[1, 2], [2, 2], [2, 3], [4, 5], [6, 7]])
    route, window = route_of(2, [7, 2, 3], pages, most=9)
    (visit,) = visits_of(route, window)
    assert visit.pages.tolist() == [0, 1, 2, 4]
    assert visit.places.tolist() == [0, 2, 3]


def test_an_empty_table_has_nothing_to_read() -> None:
    empty = pages_of([[1]])
    empty.index = PageIndex(empty.index.codec, np.zeros(0, np.int64), np.zeros(0, np.bool_))
    route, window = route_of(3, [5, 4], empty, most=9)
    (visit,) = visits_of(route, window)
    assert (len(visit.pages), len(visit.slots), visit.ended) == (0, 2, True)


def test_pages_in_another_order_are_read_stretch_by_stretch() -> None:
    """Without the order of codes, any page of a stretch can have any of its tuples."""
    pages = pages_of([[str(page)] for page in range(6)], pa.string())
    stretches = Stretches(pages.index, 2)
    stream = pa.schema([("k", pa.string()), ("a", pa.int64())])
    size = StretchWindowSize(8, 1000, 0, 1)
    window = StretchWindow(layout(stream, pages), size, stretches)
    route = Route(context(binding(pages, stream)), stretches, 9, 9)
    batch = pa.record_batch({"k": ["5", "0"], "a": [0, 1]})
    keys = [batch.column("k").cast(pa.large_binary())]
    codes, _ = binding(pages, stream).stream_codes(batch)
    window.add(codes, window.layout.columns(batch), np.arange(2), lambda _: keys)
    visits = visits_of(route, window)
    assert pages_read(visits) == [[0, 1], [4, 5]]
    assert [v.places.tolist() for v in visits] == [[0], [0]]


@pytest.mark.parametrize("seed", range(20))
def test_every_tuple_is_in_one_visit_with_the_pages_of_its_key(seed: int) -> None:
    rng = random.Random(seed)
    stretch_pages, most, gap = rng.choice([1, 3, 24]), rng.randint(1, 12), rng.choice([0, 0, 2])
    keys = [rng.randrange(-5, 250) for _ in range(rng.randint(1, 60))]
    route, window = route_of(stretch_pages, keys, most=most, gap=gap)
    visits = visits_of(route, window)
    assert len(visits) <= route.most_visits
    assert route.sweeps == 0
    served = [window.codes[visit.slots].tolist() for visit in visits]
    assert [code for codes in served for code in codes] == sorted(keys)
    for visit, codes in zip(visits, served, strict=True):
        needed = [min(max(code // 10, 0), 23) for code in codes]
        assert visit.pages[visit.places].tolist() == needed
        assert set(needed) <= set(visit.pages.tolist())
        if not gap:
            assert visit.pages.tolist() == sorted(set(needed))
        assert visit.stretches == 1 or len(set(needed)) <= most
    assert sum(visit.stretches for visit in visits) <= route.most_visits


def test_a_dense_stretch_is_visited_alone() -> None:
    keys = [0, 40, 50, 60, 80, 120]  # stretches of four pages: one, three, one and one page
    route, window = route_of(4, keys, most=20, dense=3)
    assert pages_read(visits_of(route, window)) == [[0], [4, 5, 6], [8, 12]]
    route, window = route_of(4, keys, most=20, dense=4)
    assert pages_read(visits_of(route, window)) == [[0, 4, 5, 6, 8, 12]]


@pytest.mark.parametrize("chunk", [1, 3])
def test_a_stretch_with_too_many_tuples_is_served_by_several_visits(chunk: int) -> None:
    """Whoever comes for it meanwhile waits until the sweep has gone round."""
    keys = [0, *([40, 51, 40, 62] * 5), 200]
    stretches = Stretches(PAGES.index, 4)
    window = StretchWindow(layout(), StretchWindowSize(128, 0, 0, chunk), stretches)
    add(window, keys)
    route = Route(context(binding(PAGES)), stretches, 20, 0)
    route.most_tuples = 6
    first, *parts = next_visits(route, window) + next_visits(route, window)
    assert window.codes[first.slots].tolist() == [0]
    assert all(0 < len(part.slots) <= 6 and part.first == 1 for part in parts)
    assert sorted(c for part in parts for c in window.codes[part.slots].tolist()) == sorted(
        keys[1:-1]
    )
    for part in parts:
        assert set(part.chunks.tolist()) == {slot // chunk for slot in part.slots.tolist()}
        assert part.pages[part.places].tolist() == [c // 10 for c in window.codes[part.slots]]
    add(window, [40])
    (last,) = next_visits(route, window)
    assert window.codes[last.slots].tolist() == [200]
