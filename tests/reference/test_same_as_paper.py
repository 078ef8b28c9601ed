"""Our joins do what the papers' loops do, up to the differences that their files state.

Every call of a run is compared with the same call of the reference: which pages are read in
which order, how many tuples leave in each iteration, which rows come out, how the front stage
changes, how many tuples wait.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import naive
from reference.observed import as_stream, as_table, build, relation_of
from reference.pairs import JOINS, Knobs, pair
from reference.trace import Call, Relation, Tuple, visible

every_join = pytest.mark.parametrize("name", JOINS)
SEVERAL_ROWS = [key for key in range(40) for _ in range(1 + (key % 3 == 0) + 7 * (key % 13 == 5))]


def numbered(keys: Sequence[int | None]) -> list[Tuple]:
    return [Tuple(number, key) for number, key in enumerate(keys)]


def pushes(tuples: Sequence[Tuple], sizes: Sequence[int]) -> list[list[Tuple]]:
    """The tuples cut into batches of these sizes, over and over."""
    batches, start = [], 0
    while start < len(tuples):
        size = sizes[len(batches) % len(sizes)]
        batches.append(list(tuples[start : start + size]))
        start += size
    return batches


def same_call(ours: Call, reference: Call, what: str) -> None:
    assert ours.events == visible(reference.events), what
    assert sorted(ours.rows, key=str) == sorted(reference.rows, key=str), what
    assert (ours.hits, ours.waiting) == (reference.hits, reference.waiting), what


def compare(
    name: str,
    master: Any,
    relation: Relation,
    knobs: Knobs,
    tuples: Sequence[Tuple],
    sizes: Sequence[int] = (1,),
    pause_every: int = 0,
    finish_by_steps: bool = True,
) -> list[Any]:
    """Feed both sides the same calls. Returns all events of the reference."""
    both = pair(name, master, relation, knobs)
    sizes = [min(size, both.largest_push) for size in sizes]
    rows: list[tuple[int, int | None]] = []
    events: list[Any] = []

    def call(what: str, *arguments: Any) -> int:
        reference = getattr(both.reference, what)(*arguments)
        ours = getattr(both.ours, what)(*arguments)
        same_call(ours, reference, f"{name}: {what} {arguments}")
        rows.extend(reference.rows)
        events.extend(reference.events)
        return reference.waiting

    with both.ours:
        for number, batch in enumerate(pushes(tuples, sizes)):
            call("push", batch)
            if pause_every and number % pause_every == pause_every - 1:
                call("step")
        while finish_by_steps and call("step"):
            pass
        assert call("flush") == 0
    master_rows = [row for page in relation.pages for row in page]
    expected = naive.join(as_stream(tuples), as_table(master_rows), "k", "left")
    naive.same_rows(rows, [(row[0], row[2]) for row in expected])
    return events


# -- fixed cases ----------------------------------------------------------------------------------


def skewed(seed: int, count: int, keys: Sequence[int]) -> list[int]:
    """Mostly the first keys, sometimes any other, sometimes none of the master's."""
    draw = random.Random(seed)
    return [
        draw.choice(keys[:4] if draw.random() < 0.5 else keys)
        if draw.random() < 0.9
        else draw.randrange(-3, max(keys) + 3)
        for _ in range(count)
    ]


CASES: dict[str, tuple[list[int], list[int | None]]] = {
    "foreign keys": (list(range(60)), [(i * 7) % 60 for i in range(90)]),
    "hot keys": (list(range(0, 120, 2)), list(skewed(1, 150, range(0, 120, 2)))),
    "one hot key": (list(range(60)), [5] * 80),
    "all absent": (list(range(0, 60, 2)), [(2 * i + 1) % 70 for i in range(80)]),
    "all above": (list(range(60)), [100] * 50 + [101] * 20),
    "null keys": (list(range(60)), [None if i % 3 == 0 else i % 50 for i in range(80)]),
    "several rows": (SEVERAL_ROWS, list(skewed(2, 120, range(40)))),
    "a key over pages": ([1] * 3 + [2] * 40 + [3, 4, 5], [2, 3, 9, 1, 2, 0, 4] * 12),
    "all keys over pages": ([0] * 8 + [4] * 8, [3, 17, 3, 0, 3, 4, 17, 3] * 4),
    "one page": ([1, 2, 3], [1, 2, 3, 4, 1, 2] * 20),
    "empty": ([], [1, 2, 3] * 30),
}


@pytest.fixture(scope="module")
def master_of(tmp_path_factory: pytest.TempPathFactory) -> Any:
    built: dict[str, tuple[Any, Relation]] = {}

    def get(case: str) -> tuple[Any, Relation]:
        if case not in built:
            master = build(tmp_path_factory.mktemp("reference") / "table", CASES[case][0], 320)
            built[case] = master, relation_of(master)
        return built[case]

    return get


@pytest.mark.parametrize("case", CASES)
@every_join
def test_fixed_cases(name: str, case: str, master_of: Any) -> None:
    stream = numbered(CASES[case][1])
    knobs = Knobs(pages_at_once=1 + 2 * (len(case) % 2))
    compare(name, *master_of(case), knobs, stream, sizes=(1, 2, 5), pause_every=9)


# -- drawn cases ----------------------------------------------------------------------------------

master_keys = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from([1, 1, 1, 1, 2, 3, 20])),
    max_size=40,
    unique_by=lambda drawn: drawn[0],
).map(lambda drawn: sorted(key for key, rows in drawn for _ in range(rows)))
unique_keys = st.lists(st.integers(0, 60), max_size=60, unique=True).map(sorted)
streams = st.lists(st.sampled_from([3, 4, 17]) | st.integers(-3, 64) | st.none(), max_size=90)
knobs = st.builds(
    Knobs,
    extra_memory=st.integers(0, 9_000),
    padding=st.sampled_from([16, 128, 400]),
    pages_at_once=st.integers(1, 4),
    threshold=st.integers(1, 4),
    # none, or two and more rows: how many fit is observed, and one slot is never filled by learning
    front_bytes=st.integers(2_048, 2_088) | st.integers(2_130, 2_600),
    pinned_rows=st.integers(1, 40),
    hot_keys=st.none() | st.lists(st.integers(-1, 64), max_size=12).map(tuple),
    observe=st.integers(1, 60),
    span=st.integers(1, 30),
)


def drawn_cases(examples: int) -> Any:
    def decorate(test: Any) -> Any:
        drawn = given(
            keys=unique_keys | master_keys,
            page_bytes=st.sampled_from([256, 320, 384]),
            stream=streams,
            # the first batch is not empty: the memory plan depends on its tuples
            sizes=st.lists(st.integers(0, 12), min_size=1, max_size=4).filter(itemgetter(0)),
            pause_every=st.integers(0, 5),
            finish_by_steps=st.booleans(),
            knobs=knobs,
        )
        return every_join(settings(max_examples=examples)(drawn(test)))

    return decorate


def check_drawn(
    name: str, keys: list[int], page_bytes: int, stream: list[int | None], **how: Any
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        master = build(Path(folder) / "table", keys, page_bytes)
        relation = relation_of(master)
        note(f"pages: {[[row.key for row in page] for page in relation.pages]}")
        compare(name, master, relation, tuples=numbered(stream), **how)


@drawn_cases(examples=4)
def test_drawn_cases(name: str, **drawn: Any) -> None:
    check_drawn(name, **drawn)


@pytest.mark.slow
@drawn_cases(examples=40)
def test_many_drawn_cases(name: str, **drawn: Any) -> None:
    check_drawn(name, **drawn)
