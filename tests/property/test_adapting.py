"""Whatever moves during a run (hot keys, memory, pinned pages), no row is lost or wrong."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
import semistream as ss
from harness import build, check_books, takes

ROWS = 600
PHASES = 4


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Any:
    keys = np.arange(ROWS)
    table = pa.table({"k": keys, "v": [f"row {key}" for key in keys.tolist()]})
    return build(tmp_path_factory.mktemp("adapting") / "table", table, ["k"], page_bytes=512)


class SlowOrFast:
    """A clock whose ticks change, so that waiting is worth much or nothing."""

    def __init__(self, ticks: list[float]) -> None:
        self._ticks, self._calls, self._now = ticks, 0, 0.0

    def __call__(self) -> float:
        self._now += self._ticks[self._calls // 400 % len(self._ticks)]
        self._calls += 1
        return self._now


def moving_stream(seed: int, skews: list[float], batch: int) -> Iterator[pa.RecordBatch]:
    """In every phase other keys are the hot ones; some keys are absent."""
    random, number = np.random.default_rng(seed), 0
    for skew in skews:
        ranks = random.permutation(ROWS + 20)
        weights = np.arange(1, len(ranks) + 1) ** -skew
        for _ in range(8):
            keys = random.choice(ranks, batch, p=weights / weights.sum())
            numbers = np.arange(number, number + batch)
            number += batch
            yield pa.record_batch({"k": keys, "n": numbers})


class Shares:
    """A part's bytes whenever they have changed."""

    def __init__(self, run: Any, part: str) -> None:
        self._run, self._part, self.seen = run, part, [0]

    def look(self) -> None:
        nbytes = self._run.memory.get(self._part, 0)
        if nbytes != self.seen[-1]:
            self.seen.append(nbytes)


def served(
    join: ss.Join,
    master: Any,
    batches: list[pa.RecordBatch],
    ticks: list[float],
    part: str = "front stage",
    drained: bool = False,
) -> tuple[Counter[Any], list[int], dict[str, int]]:
    rows: Counter[Any] = Counter()
    with join.open(master, on="k", clock=SlowOrFast(ticks)) as run:
        shares = Shares(run, part)
        for batch in batches:
            for out in chain(run.push(batch), run.flush() if drained else ()):
                rows.update(zip(*(out.column(i).to_pylist() for i in range(3)), strict=True))
                check_books(run)
                shares.look()
        for out in run.flush():
            rows.update(zip(*(out.column(i).to_pylist() for i in range(3)), strict=True))
        check_books(run)
        assert run.stats.waiting == 0
        return rows, shares.seen, run.stats.as_dict()


def options_of(name: str) -> dict[str, Any]:
    return {"observe": 200} if takes(name, "observe") else {}


@settings(max_examples=5, deadline=None)
@given(
    seed=st.integers(0, 1_000),
    skews=st.lists(st.sampled_from([0.0, 0.7, 1.3, 2.0]), min_size=PHASES, max_size=PHASES),
    ticks=st.lists(st.sampled_from([1e-9, 1e-5, 1e-3]), min_size=1, max_size=3),
    memory=st.integers(24_000, 60_000),
    batch=st.sampled_from([97, 400]),
)
@pytest.mark.parametrize(
    "name",
    [
        "chybridjoin",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in sorted(ss.ALGORITHMS)
            if name not in ("chybridjoin", "inlj", "cinlj")
        ),
    ],
)
def test_rows_are_those_of_the_naive_join(
    name: str,
    seed: int,
    skews: list[float],
    ticks: list[float],
    memory: int,
    batch: int,
    master: Any,
) -> None:
    join = ss.join(name, memory=memory, how="left", adapt=True, **options_of(name))
    batches = list(moving_stream(seed, skews, batch))
    rows, shares, stats = served(join, master, batches, ticks)
    stream = pa.Table.from_batches(batches)
    want = naive.join(stream, master.read(), "k", "left", ["v"])
    assert rows == Counter(want)
    again = served(join, master, batches, ticks)
    assert again == (rows, shares, stats), "decisions are repeatable under an injected clock"


@pytest.mark.parametrize("name", ["sweepjoin", "chybridjoin", "cmeshjoin"])
@pytest.mark.parametrize(
    ("skew", "start"), [pytest.param(0.0, 0.4, marks=pytest.mark.slow), (1.2, 0.04)]
)
def test_memory_moves_to_where_it_gains(
    name: str, skew: float, start: float, master: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where waiting is expensive: a uniform stream has no hot rows, a skewed one many. The disk
    buffer stays: a larger one would leave so little that the window gains more, too."""
    monkeypatch.setattr(ss.ALGORITHMS[name], "can_move_buffer", False)
    batches = list(moving_stream(1, [skew], 2_000)) * 3
    moves = ss.join(name, memory=60_000, front_stage=start, adapt=True)
    stays = ss.join(name, memory=60_000, front_stage=start, adapt=False)
    rows, shares, stats = served(moves, master, batches, [1e-3])
    fixed_rows, fixed, fixed_stats = served(stays, master, batches, [1e-3])
    assert rows == fixed_rows
    assert len(fixed) == 2
    assert (shares[-1] > fixed[-1]) is (start < 0.1)
    more_hits = stats["front_stage_hits"] > fixed_stats["front_stage_hits"]
    assert more_hits is (start < 0.1)


BUFFER_JOINS = ["meshjoin", "r-meshjoin", "hybridjoin", "cmeshjoin", "chybridjoin"]


@pytest.mark.parametrize("drained", [pytest.param(True, marks=pytest.mark.slow), False])
@pytest.mark.parametrize("name", BUFFER_JOINS)
def test_the_disk_buffer_moves_where_reading_costs_more_than_it_serves(
    name: str, drained: bool, master: Any
) -> None:
    """A read costs as much as 2,048 pages of this table: the disk buffer grows, as far as it may,
    and the run holds no more than its budget at any time (``check_books``)."""
    batches = list(moving_stream(1, [0.7], 300 if drained else 2_000)) * 3

    def serve(**options: Any) -> tuple[Counter[Any], list[int], dict[str, int]]:
        join = ss.join(name, memory=60_000, how="left", **options)
        return served(join, master, batches, [1e-3], "disk buffer", drained)

    moves, again = serve(), serve()
    assert moves == again, "decisions are repeatable under an injected clock"
    rows, sizes, stats = moves
    want = naive.join(pa.Table.from_batches(batches), master.read(), "k", "left", ["v"])
    assert rows == Counter(want)
    assert sizes[-1] > 1.5 * sizes[1]
    for options in ({"adapt": False}, {"disk_buffer_pages": 2}):
        rows, fixed, fixed_stats = serve(**options)
        assert rows == Counter(want)
        assert len(fixed) == 2
        if name != "r-meshjoin":  # whose iteration is a group of pages
            assert stats["iterations"] < fixed_stats["iterations"]


@pytest.mark.parametrize("name", ["meshjoin", "chybridjoin"])
def test_a_disk_buffer_that_cannot_be_opened_is_tried_again(
    name: str, master: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While memory moves, nothing waits: the tuples are in the intake."""
    opened, failed, reader = list[int](), list[int](), type(master).reader

    def failing(self: Any, pages: int = 1, *rest: Any) -> Any:
        opened.append(pages)
        if len(opened) in (2, 3):
            failed.append(pages)
            raise OSError("too many open files")
        return reader(self, pages, *rest)

    monkeypatch.setattr(type(master), "reader", failing)
    batches = list(moving_stream(1, [0.7], 2_000)) * 3
    rows: Counter[Any] = Counter()
    with ss.join(name, memory=60_000, how="left").open(
        master, on="k", clock=SlowOrFast([1e-3])
    ) as run:
        for batch in batches:
            calls = [batch] + [batch.slice(0, 0)] * 2
            for call in calls:
                with contextlib.suppress(OSError):
                    for out in run.push(call):
                        rows.update(zip(*(c.to_pylist() for c in out.columns), strict=True))
                check_books(run)
        for out in run.flush():
            rows.update(zip(*(c.to_pylist() for c in out.columns), strict=True))
        check_books(run)
    assert len(failed) == 2
    assert failed[0] == failed[1] == opened[3]
    monkeypatch.undo()
    want = naive.join(pa.Table.from_batches(batches), master.read(), "k", "left", ["v"])
    assert rows == Counter(want)


def test_a_configured_disk_buffer_moves_if_asked_for(master: Any) -> None:
    batches = list(moving_stream(1, [0.7], 2_000)) * 3
    join = ss.HybridJoin(memory=60_000, disk_buffer_pages=2, adapt=True)
    _, sizes, _ = served(join, master, batches, [1e-3], "disk buffer")
    assert sizes[-1] > sizes[1]


@pytest.mark.parametrize("name", ["x-hybridjoin", "optimised-x-hybridjoin"])
def test_other_pages_are_pinned_when_popularity_drifts(name: str, master: Any) -> None:
    """The first keys are hot, then the last ones."""
    random = np.random.default_rng(2)

    def batches(first: int) -> list[pa.RecordBatch]:
        keys = first + random.integers(0, 40, (20, 300))
        return [pa.record_batch({"k": some, "n": some}) for some in keys]

    stream = batches(0) + batches(500)
    pages = {}
    for adapt in (True, False):
        join = ss.join(name, memory=30_000, pinned=0.3, observe=300, adapt=adapt)
        rows, _, stats = served(join, master, stream, [1e-6])
        assert sum(rows.values()) == sum(batch.num_rows for batch in stream)
        pages[adapt] = stats["pages_read"]
    assert pages[True] < 0.75 * pages[False]


def test_a_stream_that_stays_is_not_pinned_again(master: Any) -> None:
    batches = list(moving_stream(3, [1.0], 300)) * 3
    reads = [
        served(
            ss.join("x-hybridjoin", memory=30_000, pinned=0.3, observe=300, adapt=adapt),
            master,
            batches,
            [1e-6],
        )[2]["pages_read"]
        for adapt in (None, False)
    ]
    assert reads[0] == pytest.approx(reads[1], rel=0.05)
