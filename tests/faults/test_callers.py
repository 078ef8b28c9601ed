"""Callers that abandon iterators, call after close, or share joins."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import naive
import semistream as ss
from harness import (
    build,
    check_books,
    cut,
    drain_by_steps,
    every_join_and_how,
    smallest_memory,
    watched,
)

STREAM = pa.table({"n": range(600), "k": np.random.default_rng(1).integers(-10, 1010, 600)})
MASTER = pa.table({"k": range(1000), "v": range(1000), "text": ["x" * 30] * 1000})

every_algorithm = pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return build(tmp_path_factory.mktemp("callers") / "table", MASTER, ["k"])


def open_run(algorithm: str, master: Any, how: str = "left") -> Any:
    least = smallest_memory(algorithm, master, cut(STREAM, 50), "k", how=how)
    return ss.join(algorithm, memory=int(1.3 * least), how=how).open(master, on="k")


def first_of(out: list[pa.RecordBatch], rows: Any, count: int) -> None:
    """Take ``count`` batches and abandon the iterator."""
    if count == 0:
        return
    for taken, batch in enumerate(rows, start=1):
        out.append(batch)
        if taken == count:
            break


@every_join_and_how
def test_an_abandoned_push_is_finished_by_the_next_call(
    algorithm: str, how: str, master: Any
) -> None:
    out: list[pa.RecordBatch] = []
    with open_run(algorithm, master, how) as run:
        for turn, batch in enumerate(cut(STREAM, 100)):
            first_of(out, run.push(batch), 1 + turn % 2)
            assert run.stats.tuples_in == 100 * (turn + 1)
            check_books(run)
        first_of(out, run.flush(), 1)
        check_books(run)
        first_of(out, run.step(), 1)
        check_books(run)
        out += watched(run, run.flush())
        assert run.stats.waiting == 0
        assert run.stats.rows_out == sum(rows.num_rows for rows in out)
    naive.same_rows(naive.rows_of(out), naive.join(STREAM, MASTER, "k", how))


@every_algorithm
def test_an_abandoned_push_is_finished_by_steps(algorithm: str, master: Any) -> None:
    out: list[pa.RecordBatch] = []
    with open_run(algorithm, master) as run:
        first_of(out, run.push(cut(STREAM, 600)[0]), 1)
        out += drain_by_steps(run)
    naive.same_rows(naive.rows_of(out), naive.join(STREAM, MASTER, "k", "left"))


@every_algorithm
def test_an_error_in_the_callers_loop(algorithm: str, master: Any) -> None:
    out: list[pa.RecordBatch] = []
    with open_run(algorithm, master) as run:
        with pytest.raises(ZeroDivisionError):
            for rows in run.push(cut(STREAM, 600)[0]):
                out.append(rows)
                1 / 0  # noqa: B018
        out += watched(run, run.flush())
    naive.same_rows(naive.rows_of(out), naive.join(STREAM, MASTER, "k", "left"))


@every_algorithm
@pytest.mark.parametrize("method", ["push", "step", "flush"])
def test_after_close(algorithm: str, method: str, master: Any) -> None:
    with open_run(algorithm, master) as run:
        list(run.push(cut(STREAM, 50)[0]))
    arguments = [cut(STREAM, 50)[0]] if method == "push" else []
    with pytest.raises(ss.SemistreamError, match="closed"):
        list(getattr(run, method)(*arguments))
    run.close()
    assert run.stats.tuples_in == 50, "the counters can still be read"


@every_algorithm
def test_two_runs_of_one_join_are_independent(algorithm: str, master: Any) -> None:
    join = ss.join(algorithm, memory="1MB")
    with join.open(master, on="k") as one, join.open(master, on="k") as other:
        list(one.push(cut(STREAM, 50)[0]))
        assert one.stats.tuples_in == 50
        assert other.stats.tuples_in == 0
        assert list(other.flush()) == []


@every_algorithm
def test_a_join_is_a_value(algorithm: str, master: Any) -> None:
    join = ss.join(algorithm, memory="1MB", how="left")
    assert isinstance(join, ss.ALGORITHMS[algorithm])
    assert join == ss.join(algorithm, memory="1MB", how="left")
    assert join != ss.join(algorithm, memory="2MB", how="left")
    assert hash(join) == hash(ss.join(algorithm, memory="1MB", how="left"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        join.memory = "2MB"
    copy = pickle.loads(pickle.dumps(join))
    assert copy == join
    with copy.open(master, on="k") as run:
        out = [*run.push(cut(STREAM, 600)[0]), *run.flush()]
    naive.same_rows(naive.rows_of(out), naive.join(STREAM, MASTER, "k", "left"))


@pytest.mark.parametrize(
    ("error", "base"),
    [
        (ss.ConfigError, ValueError),
        (ss.SchemaError, ValueError),
        (ss.MasterTableError, ss.SemistreamError),
        (ss.BudgetError, ss.SemistreamError),
        (ss.InternalError, ss.SemistreamError),
    ],
)
def test_errors_pickle(error: type[Exception], base: type[Exception]) -> None:
    raised = error("what was wrong, with what value, what to do")
    copy = pickle.loads(pickle.dumps(raised))
    assert type(copy) is error
    assert str(copy) == str(raised)
    assert issubclass(error, base)
    assert issubclass(error, ss.SemistreamError)
