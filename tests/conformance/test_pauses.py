"""Streams that pause, end, trickle and burst."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pyarrow as pa

import naive
import semistream as ss
from conformance.suite import every_algorithm
from harness import (
    ALL_AT_ONCE,
    Case,
    cut,
    drain_by_steps,
    drive,
    every_join_and_how,
    smallest_memory,
    watched,
)

EVEN = pa.table({"k": range(0, 2000, 2), "v": range(1000), "pad": ["x" * 20] * 1000})


def stream(seed: int, count: int) -> pa.Table:
    keys = np.random.default_rng(seed).integers(-20, 2020, count)
    return pa.table({"n": range(count), "k": keys})


CASE = Case("pauses", stream(1, 300), EVEN)


def open_run(algorithm: str, master: Any, how: str = "left", factor: float = 1.5) -> Any:
    """A run with slightly more than the smallest budget."""
    least = smallest_memory(algorithm, master, cut(CASE.stream, ALL_AT_ONCE), "k", how=how)
    return ss.join(algorithm, memory=int(factor * least), how=how).open(master, on="k")


@every_join_and_how
def test_steps_drain_the_window_during_a_pause(algorithm: str, how: str, master_of: Any) -> None:
    with open_run(algorithm, master_of(CASE), how) as run:
        out = []
        for batch in cut(CASE.stream, 60):
            out += watched(run, run.push(batch))
            out += drain_by_steps(run)
        assert run.stats.waiting == 0
        naive.same_rows(naive.rows_of(out), CASE.expected(how))
        assert list(run.flush()) == []
        assert list(run.step()) == []


@every_join_and_how
def test_a_flush_in_the_middle(algorithm: str, how: str, master_of: Any) -> None:
    with open_run(algorithm, master_of(CASE), how) as run:
        out = []
        for batch in cut(CASE.stream, 77):
            out += drive_more(run, batch)
        naive.same_rows(naive.rows_of(out), CASE.expected(how))


def drive_more(run: Any, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    out = [*watched(run, run.push(batch)), *watched(run, run.flush())]
    assert run.stats.waiting == 0
    return out


@every_algorithm
def test_alternating_pushes_and_steps(algorithm: str, master_of: Any) -> None:
    with open_run(algorithm, master_of(CASE)) as run:
        out = []
        for turn, batch in enumerate(cut(CASE.stream, 10)):
            out += watched(run, run.push(batch))
            for _ in range(turn % 4):
                out += watched(run, run.step())
        out += watched(run, run.flush())
        naive.same_rows(naive.rows_of(out), CASE.expected("left"))


@every_algorithm
def test_interleaved_empty_batches(algorithm: str, master_of: Any) -> None:
    empty = CASE.stream.schema.empty_table().to_batches() or cut(CASE.stream.slice(0, 0), 1)
    with open_run(algorithm, master_of(CASE)) as run:
        batches = [piece for batch in cut(CASE.stream, 50) for piece in (*empty, batch, *empty)]
        naive.same_rows(naive.rows_of(drive(run, batches)), CASE.expected("left"))


@every_algorithm
def test_nothing_pushed(algorithm: str, master_of: Any) -> None:
    with open_run(algorithm, master_of(CASE)) as run:
        assert list(run.step()) == []
        assert list(run.flush()) == []
        assert run.stats.tuples_in == run.stats.pages_read == 0


@every_algorithm
def test_a_slow_phase_does_not_shrink_the_window(algorithm: str, master_of: Any) -> None:
    """After a trickle, a burst reads no more pages than it does without one."""
    rush = cut(stream(2, 1500), 500)
    dribble = cut(stream(3, 40), 1)
    pages = []
    for prelude in ([], dribble):
        with open_run(algorithm, master_of(CASE), factor=3) as run:
            for batch in prelude:
                list(run.push(batch))
            drain_by_steps(run)
            before = run.stats.pages_read
            drive(run, rush)
            pages.append(run.stats.pages_read - before)
    fresh, after_dribble = pages
    assert after_dribble <= 1.25 * fresh + 40


@every_algorithm
def test_no_tuple_starves(algorithm: str, master_of: Any) -> None:
    """A tuple that shares its page with no other leaves while the stream continues."""
    with open_run(algorithm, master_of(CASE)) as run:
        lone = pa.record_batch({"n": pa.array([-1]), "k": pa.array([1999])})
        out = list(run.push(lone))
        hot = np.random.default_rng(4).integers(0, 40, 40)
        batch = pa.record_batch({"n": pa.array(hot), "k": pa.array(hot)})
        for _ in range(400):
            if any(-1 in rows["n"].to_pylist() for rows in out):
                return
            out = list(run.push(batch))
        raise AssertionError(f"still waiting after {run.stats.tuples_in} tuples")


@every_algorithm
def test_waiting_tuples_do_not_keep_their_batch_alive(algorithm: str, master_of: Any) -> None:
    keys = np.random.default_rng(5).integers(0, 2000, 400)
    numbers = np.arange(400)
    alive = [weakref.ref(keys), weakref.ref(numbers)]
    batch = pa.record_batch({"n": pa.array(numbers), "k": pa.array(keys)})
    with open_run(algorithm, master_of(CASE)) as run:
        for _ in run.push(batch):
            pass
        del batch, keys, numbers, _
        gc.collect()
        dead = [array() is None for array in alive]
        assert all(dead), f"the batch lives on while {run.stats.waiting} of its tuples wait"


@every_algorithm
def test_capacity_is_counted_in_tuples(algorithm: str, master_of: Any) -> None:
    """Many tuples with one key fill the window like tuples with many keys."""
    one_key = pa.table({"n": range(3000), "k": [1000] * 3000})
    with open_run(algorithm, master_of(CASE)) as run:
        drive(run, cut(one_key, 1000))
        assert run.stats.matched == 3000
