"""The references themselves: exact, literal where the papers are, no switch without effect."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import naive
from reference import (
    chybridjoin,
    cinlj,
    cmeshjoin,
    hybridjoin,
    inlj,
    meshjoin,
    optimised_x_hybridjoin,
    r_meshjoin,
    x_hybridjoin,
)
from reference.observed import as_stream, as_table
from reference.trace import Call, Loop, Relation, Row, Stuck, Tuple, visible

MAKERS: dict[str, tuple[Callable[..., Loop], dict[str, Any], dict[str, bool]]] = {
    "meshjoin": (meshjoin.MeshJoin, {"pages_at_once": 2, "chunk": 3}, meshjoin.AS_BUILT),
    "r-meshjoin": (r_meshjoin.ReducedMeshJoin, {"group": 2, "chunk": 3}, r_meshjoin.AS_BUILT),
    "cmeshjoin": (
        cmeshjoin.CachedMeshJoin,
        {"pages_at_once": 2, "chunk": 3, "front_rows": 6, "threshold": 2},
        cmeshjoin.AS_BUILT,
    ),
    "hybridjoin": (
        hybridjoin.HybridJoin,
        {"pages_at_once": 2, "window": 8},
        hybridjoin.AS_BUILT,
    ),
    "x-hybridjoin": (
        x_hybridjoin.XHybridJoin,
        {"pages_at_once": 2, "window": 8, "observe": 10, "pinned_rows": 6},
        x_hybridjoin.AS_BUILT,
    ),
    "optimised-x-hybridjoin": (
        optimised_x_hybridjoin.OptimisedXHybridJoin,
        {"pages_at_once": 2, "window": 8, "observe": 10, "front_rows": 6},
        optimised_x_hybridjoin.AS_BUILT,
    ),
    "chybridjoin": (
        chybridjoin.CachedHybridJoin,
        {"pages_at_once": 2, "window": 8, "front_rows": 6, "threshold": 2},
        chybridjoin.AS_BUILT,
    ),
    "inlj": (inlj.IndexNestedLoopJoin, {"pool_pages": 2}, inlj.AS_BUILT),
    "cinlj": (
        cinlj.CachedIndexNestedLoopJoin,
        {"pool_pages": 2, "front_rows": 5, "threshold": 2, "span": 10},
        cinlj.AS_BUILT,
    ),
}
EVERY_REFERENCE = pytest.mark.parametrize("name", MAKERS)
NEED_FOREIGN_KEYS = ("hybridjoin", "x-hybridjoin", "optimised-x-hybridjoin")


def make(name: str, relation: Relation, **switches: bool) -> Loop:
    maker, sizes, _ = MAKERS[name]
    if switches.get("last_chunk_may_be_short", False):
        sizes = {**sizes, "window": 3 * -(-len(relation) // 2) - 1}
    return maker(relation, **sizes, **switches)


def as_built(name: str) -> dict[str, bool]:
    return MAKERS[name][2]


def pages(keys: Sequence[int], rows_of_a_page: int = 3) -> Relation:
    rows = [Row(key, value) for value, key in enumerate(keys)]
    starts = range(0, len(rows), rows_of_a_page)
    return Relation([rows[start : start + rows_of_a_page] for start in starts])


def zipfian(count: int, keys: Sequence[int], seed: int = 5) -> list[Tuple]:
    draw = random.Random(seed)
    weights = [1 / (place + 1) for place in range(len(keys))]
    return [Tuple(n, key) for n, key in enumerate(draw.choices(keys, weights, k=count))]


def answer(tuples: Sequence[Tuple], relation: Relation) -> list[tuple[int, int | None]]:
    master = as_table([row for page in relation.pages for row in page])
    rows = naive.join(as_stream(tuples), master, "k", "left")
    return [(row[0], row[2]) for row in rows]


def run(join: Loop, tuples: Sequence[Tuple]) -> list[Call]:
    """Small pushes with pauses, then the rest."""
    calls, start = [], 0
    while start < len(tuples):
        size = 1 + start % 9
        calls.append(join.push(tuples[start : start + size]))
        start += size
        if start % 3 == 0:
            calls.append(join.step())
    return [*calls, join.flush()]


def rows_of(calls: Sequence[Call]) -> list[tuple[int, int | None]]:
    return [row for call in calls for row in call.rows]


# -- on the papers' own ground: unique keys, pages that divide, a stream that never ends ---------

GROUND = pages(range(36))
FOREIGN_KEYS = zipfian(400, range(36))
SERVED = 100  # of the stream; the rest keeps the loop going until these have left


@EVERY_REFERENCE
def test_the_literal_loop_is_exact(name: str) -> None:
    call = make(name, GROUND).push(FOREIGN_KEYS)
    rows = [row for row in call.rows if row[0] < SERVED]
    naive.same_rows(rows, answer(FOREIGN_KEYS[:SERVED], GROUND))


@pytest.mark.parametrize("name", [name for name in MAKERS if name not in NEED_FOREIGN_KEYS])
def test_the_literal_loop_is_exact_with_absent_keys(name: str) -> None:
    stream = zipfian(400, range(-4, 40))
    rows = [row for row in make(name, GROUND).push(stream).rows if row[0] < SERVED]
    naive.same_rows(rows, answer(stream[:SERVED], GROUND))


@pytest.mark.parametrize("name", NEED_FOREIGN_KEYS)
def test_the_literal_loop_never_ends_with_an_absent_key(name: str) -> None:
    with pytest.raises(Stuck, match="100"):
        make(name, GROUND).push([*FOREIGN_KEYS[:20], Tuple(400, 100), *FOREIGN_KEYS[20:]])


@pytest.mark.parametrize("name", ["meshjoin", "r-meshjoin", "hybridjoin", "inlj"])
def test_our_differences_change_nothing_under_the_papers_assumptions(name: str) -> None:
    """The joins without a front stage or pinned pages read the same pages and return the same."""
    switches = {**as_built(name), "last_chunk_may_be_short": False}
    if "mesh" not in name:
        del switches["last_chunk_may_be_short"]
    literal = make(name, GROUND).push(FOREIGN_KEYS)
    ours = make(name, GROUND, **switches).push(FOREIGN_KEYS)
    count = min(len(literal.rows), len(ours.rows))
    assert count > SERVED
    assert literal.rows[:count] == ours.rows[:count]
    reads = min(len(literal.pages()), len(ours.pages()))
    assert reads > 10
    assert literal.pages()[:reads] == ours.pages()[:reads]


# -- anywhere ------------------------------------------------------------------------------------

HOSTILE = pages(sorted([*range(0, 60, 2), 4, 4, 10, 10, 10, 10, 10, 10, 21, 21, 22, 22]), 4)
ANY_KEYS = [
    Tuple(n, None if n % 31 == 0 else key) for n, (_, key) in enumerate(zipfian(160, range(60)))
]


@EVERY_REFERENCE
def test_the_loop_with_our_differences_is_exact_on_any_input(name: str) -> None:
    for relation in (HOSTILE, GROUND, pages([]), pages([5])):
        calls = run(make(name, relation, **as_built(name)), ANY_KEYS)
        naive.same_rows(rows_of(calls), answer(ANY_KEYS, relation))
        assert calls[-1].waiting == 0


@pytest.mark.parametrize(
    ("name", "switch"), [(name, switch) for name in MAKERS for switch in as_built(name)]
)
def test_every_switch_changes_something(name: str, switch: str) -> None:
    """A difference without an effect on the trace should not be documented."""
    built = run(make(name, HOSTILE, **as_built(name)), ANY_KEYS)
    expected = [(visible(call.events), call.rows, call.waiting) for call in built]
    try:
        without = run(make(name, HOSTILE, **{**as_built(name), switch: False}), ANY_KEYS)
    except (Stuck, AssertionError):
        return  # the paper's loop cannot process this input
    assert [(visible(call.events), call.rows, call.waiting) for call in without] != expected
