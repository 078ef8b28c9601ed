"""SweepJoin's loop, seen from outside: which pages are read in which order, who leaves when."""

from __future__ import annotations

import random
import weakref
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import naive
import semistream as ss
from engine.kit import MemoryPages, pages_of
from harness import check_books, drain_by_steps, drive, watched
from semistream.engine.front.counting_cache import CountingCache
from semistream.joins.sweep import sweepjoin
from semistream.testing import RecordingObserver

PAGES = 20  # of two keys each, in stretches of four pages
PAGE_BYTES = 3000  # so that one page between two others is read along


def table(pages: int = PAGES) -> MemoryPages:
    """Keys 10 and 11 lie in page 1, 20 and 21 in page 2; 12 to 19 are absent."""
    keys = [[10 * page, 10 * page + 1] for page in range(pages)]
    return pages_of(keys, can_address=True, page_bytes=PAGE_BYTES)


def batch(*keys: Any) -> pa.RecordBatch:
    return pa.record_batch({"k": keys, "a": range(len(keys))})


class Watched:
    """A run, and the pages that it reads. No front stage, unless a share is given."""

    def __init__(self, source: MemoryPages, front_stage: float = 0.0, **options: Any) -> None:
        self.observer = RecordingObserver()
        self._source = source
        options = {"memory": 200_000, "disk_buffer_pages": 4, "how": "left", **options}
        join = ss.SweepJoin(front_stage=front_stage, **options)
        self.run = join.open(source, on="k", observer=self.observer)

    def reads(self) -> list[list[int]]:
        """The pages of every read since the last call."""
        reads = list(self._source.loaded)
        reported = [(first, count) for first, count, *_ in self.observer.named("page_read")]
        assert reported == [(pages[0], len(pages)) for pages in reads]
        self._source.loaded.clear()
        self.observer.events.clear()
        return reads

    def serve(self, *keys: Any) -> list[Any]:
        """The master's values for these keys, in the order in which they come out."""
        rows = drive(self.run, [batch(*keys)])
        return [value for one in rows for value in one.column("v").to_pylist()]


# -- which pages, and in which order -----------------------------------------------------------


def test_pages_are_read_in_key_order_and_once_for_all_who_wait() -> None:
    sweep = Watched(table())
    values = sweep.serve(150, 10, 70, 11, 150, 10, 71)
    assert sweep.reads() == [[1], [7, 15]]  # three tuples, and four
    assert values == ["10/0", "10/0", "11/1", "70/0", "71/1", "150/0", "150/0"]


@pytest.mark.parametrize(
    ("pages", "reads"),
    [
        ([0, 1], [[0, 1]]),
        ([0, 2], [[0, 1, 2]]),  # one page between them is read along
        ([0, 3], [[0, 3]]),  # two are not
        ([0, 1, 3], [[0, 1, 2, 3]]),
        ([3, 4], [[3, 4]]),  # of two stretches
        ([0, 6, 8, 19], [[0, 6, 8, 19]]),  # with page 7 they would not fit into the buffer
        ([0, 5, 10, 15, 19], [[0, 5, 10, 15], [19]]),  # five pages are too many for a visit
    ],
    ids=str,
)
def test_pages_of_several_tuples_are_read_together(
    pages: list[int], reads: list[list[int]]
) -> None:
    sweep = Watched(table())
    values = sweep.serve(*[10 * page for page in reversed(pages)])
    assert sweep.reads() == reads
    assert values == [f"{10 * page}/0" for page in pages]


@pytest.mark.parametrize(("tuples", "reads"), [(3, [[5, 15]]), (4, [[5], [15]]), (99, [[5], [15]])])
def test_a_stretch_with_many_waiters_is_visited_alone(tuples: int, reads: list[list[int]]) -> None:
    """They may need all its pages, so that no other would fit into the buffer."""
    sweep = Watched(table())
    assert sweep.serve(*[50] * tuples, 150) == [*["50/0"] * tuples, "150/0"]
    assert sweep.reads() == reads


def test_a_batch_after_a_flush_is_one_visit_wherever_the_last_one_ended() -> None:
    """While tuples wait, the sweep goes on where it was: test_route.py."""
    sweep = Watched(table())
    for _ in range(2):
        sweep.serve(150)
        sweep.serve(20, 170, 160)
        assert sweep.reads() == [[15], [2, 16, 17]]


def test_an_absent_key_is_looked_for_in_one_page_and_then_known() -> None:
    sweep = Watched(table())
    assert sweep.serve(15, 55, -3, 999) == [None] * 4
    assert sweep.reads() == [[0, 1, 5, 19]]
    assert sweep.serve(15, 55, -3, 999) == [None] * 4
    assert sweep.reads() == []
    assert sweep.run.stats.unmatched == 8


def test_a_hot_row_is_served_from_memory() -> None:
    sweep = Watched(table(), front_stage=0.3)
    sweep.serve(*[50] * 5, 20)
    sweep.reads()
    assert sweep.serve(50, 50) == ["50/0"] * 2
    assert sweep.reads() == []
    assert sweep.run.stats.front_stage_hits == 2


# -- who waits, and for how long ---------------------------------------------------------------


def test_an_iteration_is_a_visit_and_its_tuples_leave_together() -> None:
    sweep = Watched(table())
    run = sweep.run
    assert list(run.push(batch(190, 150, 10, 11, 70, 71, 70))) == []
    left = []
    while run.stats.waiting:
        rows = list(watched(run, run.step()))
        left.append([row["k"] for one in rows for row in one.to_pylist()])
    assert left == [[10, 11], [70, 70, 71, 150], [190]]
    assert run.stats.iterations == 3


def test_a_tuple_that_comes_in_time_is_served_with_those_that_wait() -> None:
    """Four visits are found ahead; who comes before that has room in the one after them."""
    sweep = Watched(table(pages=40))
    run = sweep.run
    list(run.push(batch(*[10 * page for page in range(0, 32, 4) for _ in range(4)])))
    list(run.step())
    list(run.push(batch(281, 161, 1)))
    rows = naive.rows_of(drain_by_steps(run))
    assert [row[0] for row in rows] == [
        *(10 * page for page in range(4, 32, 4) for _ in range(4)), 281, 1, 161
    ]  # fmt: skip
    assert sweep.reads() == [*([page] for page in range(0, 32, 4)), [0, 16]]


def test_no_tuple_waits_longer_than_the_bound() -> None:
    rng, came, longest = random.Random(1), {}, 0
    sweep = Watched(table())
    run = sweep.run
    for number in range(300):
        key = 10 * rng.randrange(PAGES)
        came[number] = run.stats.iterations
        arriving = pa.record_batch({"k": [key], "a": [number]})
        for rows in (*run.push(arriving), *run.step()):
            waits = [run.stats.iterations - came[n] for n in rows.column("a").to_pylist()]
            longest = max(longest, *waits)
        check_books(run)
    assert run.longest_wait is not None
    assert 0 < longest <= run.longest_wait < 50


def test_a_small_window_is_served_while_tuples_come() -> None:
    """Rows leave before flush, and no more tuples are held than the window has slots."""
    sweep = Watched(table(), memory=12_000, disk_buffer_pages=1)
    run = sweep.run
    keys = [10 * (n * 7 % PAGES) for n in range(2_000)]
    out = list(watched(run, run.push(batch(*keys))))
    assert sum(rows.num_rows for rows in out) > 1_000
    assert run.plan.window is not None
    assert 0 < run.stats.waiting <= run.plan.window.capacity < 1_000
    out += watched(run, run.flush())
    assert sorted(naive.rows_of(out)) == sorted((k, n, f"{k}/0") for n, k in enumerate(keys))


# -- keys of all kinds -------------------------------------------------------------------------

REPEATED = [[1, 1], [1, 1], [1, 1], [1, 3], [3, 5], [5, 7], [9, 9], [9, 11]]


@pytest.mark.parametrize("how", naive.HOWS)
@pytest.mark.parametrize("pages", [1, 2, 8])
@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
@pytest.mark.parametrize("can_address", [False, True], ids=["batches", "addresses"])
def test_keys_that_run_through_many_pages(
    kind: pa.DataType, pages: int, how: str, can_address: bool
) -> None:
    text = pa.types.is_string(kind)
    keys = [[f"{key:02}" if text else key for key in page] for page in REPEATED]
    source = pages_of(keys, kind, can_address=can_address)
    wanted = [9, 1, 2, 3, 1, 11, 0, 12, 5, None]
    values = [None if key is None else f"{key:02}" if text else key for key in wanted]
    stream = pa.table({"k": pa.array(values, kind), "a": range(len(values))})
    join = ss.SweepJoin(memory=200_000, disk_buffer_pages=pages, how=how)
    with join.open(source, on="k") as run:
        for _ in range(3):  # the second and third time, some come from memory
            out = naive.rows_of(drive(run, stream.to_batches()))
            master = pa.Table.from_batches(source.pages)
            naive.same_rows(out, naive.join(stream, master, "k", how))


# -- failures, versions, memory ----------------------------------------------------------------


def test_a_visit_whose_read_fails_is_repeated() -> None:
    source = table()
    sweep = Watched(source)
    run = sweep.run
    list(run.push(batch(10, 70, 150)))
    source.fail = [7, 7, 15]
    failed, values = 0, []
    while run.stats.waiting:
        try:
            for rows in watched(run, run.flush()):
                values += rows.column("v").to_pylist()
        except OSError:
            failed += 1
            check_books(run)
    assert failed == 3
    assert values == ["10/0", "70/0", "150/0"]
    assert sweep.reads() == [[1, 7, 15]]


def test_a_new_version_has_other_pages() -> None:
    source = table()
    sweep = Watched(source, front_stage=0.3)
    assert sweep.serve(*[10] * 5, 15, 190) == [*["10/0"] * 5, "190/0", None]
    source.publish([pa.record_batch({"k": [10, 15], "v": ["new", "here"]})])
    assert sweep.serve(10, 15, 190) == ["new", "here", None]
    assert sweep.run.version == 2
    assert [reader.is_closed for reader in source.readers] == [True]


def test_closing_closes_every_reader() -> None:
    source = table()
    sweep = Watched(source)
    list(sweep.run.push(batch(10, 70)))
    sweep.run.close()
    assert source.readers
    assert all(reader.is_closed for reader in source.readers)
    assert sweep.run.memory.total > 0


@pytest.mark.parametrize("front_stage", [None, 0.0, 0.2])
def test_a_front_stage_has_the_share_that_was_asked_for(front_stage: float | None) -> None:
    join = ss.SweepJoin(memory=200_000, front_stage=front_stage)
    with join.open(table(), on="k") as run:
        list(run.push(batch(10)))
        expected = 200_000 * (0.3 if front_stage is None else front_stage)
        assert 0.9 * expected <= run.plan.front_bytes <= expected
        check_books(run)


def test_a_window_is_freed_before_cached_rows_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old and new front stage are in memory together; with the old window they would exceed it."""
    seen = []
    real = CountingCache.adopt

    def adopt(self: CountingCache, other: CountingCache) -> None:
        seen.append(window())
        real(self, other)

    monkeypatch.setattr(CountingCache, "adopt", adopt)
    with ss.SweepJoin(memory=200_000).open(table(), on="k") as run:
        keys = [10, 11] * 50
        assert len(drive(run, [batch(*keys)])) > 0
        *_, policy = run.parts
        window = weakref.ref(policy._window)
        policy._mover.share, policy._mover.moves = 0.2, True
        assert sum(rows.num_rows for rows in drive(run, [batch(*keys)])) == 100
    assert seen == [None]


def test_a_window_that_cannot_be_allocated_is_allocated_by_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ss.SweepJoin(memory=200_000).open(table(), on="k") as run:
        keys = [10, 11] * 50
        drive(run, [batch(*keys)])
        *_, policy = run.parts
        policy._mover.share, policy._mover.moves = 0.2, True
        with monkeypatch.context() as patch:
            patch.setattr(sweepjoin, "StretchWindow", mock.Mock(side_effect=MemoryError))
            with pytest.raises(MemoryError):
                list(run.push(batch(*keys)))
        assert sum(rows.num_rows for rows in drive(run, [batch(*keys)])) == 200
