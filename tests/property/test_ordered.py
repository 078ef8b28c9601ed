"""``order="stream"``: the rows of the join, in the order of the stream, within the budget."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import naive
import semistream as ss
from harness import build, check_books, cut, drain_by_steps, drive, soon
from semistream.engine.ordered_run import OrderedRun

ROWS = 20  # of the key with most rows


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Key k has k % ROWS rows of different lengths, so that some portions are too large."""
    keys = [k for k in range(200) for _ in range(k % ROWS)]
    data = pa.table({"k": keys, "v": range(len(keys)), "text": ["x" * (k % 50) for k in keys]})
    return build(tmp_path_factory.mktemp("ordered") / "table", data, ["k"]), data


def check(algorithm: str, how: str, table: Any, keys: list[Any], size: int, memory: int) -> Any:
    master, data = table
    stream = pa.table({"n": pa.array(range(len(keys))), "k": pa.array(keys, pa.int64())})
    join = ss.join(algorithm, **soon(algorithm, memory=memory, how=how))
    with join.open(master, on="k", order="stream") as run:
        out = drive(run, cut(stream, size))
        rows = naive.rows_of(out)
        expected = naive.join(stream, data, "k", how)
        assert [row[0] for row in rows] == [row[0] for row in expected]
        naive.same_rows(rows, expected)
        assert all(one.schema == run.schema for one in out)
        return run


@pytest.mark.parametrize("algorithm", ["meshjoin", "cinlj", "chybridjoin", "sweepjoin"])
@given(
    keys=st.lists(st.none() | st.integers(0, 30) | st.integers(-5, 205), max_size=200),
    how=st.sampled_from(naive.HOWS),
    size=st.sampled_from([1, 7, 1000]),
    memory=st.sampled_from([70_000, 200_000, 2_000_000]),
)
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_are_in_stream_order(
    algorithm: str, table: Any, keys: list[Any], how: str, size: int, memory: int
) -> None:
    check(algorithm, how, table, keys, size, memory)


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(ss.ALGORITHMS)))
def test_every_join(place: int, table: Any) -> None:
    algorithm, how = list(ss.ALGORITHMS)[place], naive.HOWS[place % 4]
    keys = [(i * 37) % 210 if i % 3 else i % 9 for i in range(500)]
    for memory in (70_000, 2_000_000):
        check(algorithm, how, table, keys, 200, memory)


def test_a_portion_whose_rows_do_not_fit_is_served_by_halves(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    again: list[int] = []
    real = OrderedRun._again

    def noted(self: Any, portion: Any, version: int) -> None:
        again.append(portion.num_rows)
        real(self, portion, version)
        check_books(self)

    monkeypatch.setattr(OrderedRun, "_again", noted)
    check("hybridjoin", "left", table, [19] * 900, 300, 70_000)
    assert again
    assert again[0] > again[-1]


def test_a_tuple_with_more_rows_than_the_buffer_needs_none(tmp_path: Path) -> None:
    data = pa.table({"k": [1] * 5000, "v": range(5000)})
    master = build(tmp_path / "t", data, ["k"])
    check("sweepjoin", "inner", (master, data), [1, 2, 1, 1], 4, 70_000)


def test_a_failed_read_loses_no_row(table: Any) -> None:
    master, data = table
    stream = pa.table({"n": range(300), "k": [(i * 7) % 200 for i in range(300)]})
    with ss.join("hybridjoin", memory=100_000).open(master, on="k", order="stream") as run:
        buffer = run._run._policy.buffer  # the reads of the inner run
        real, fails = buffer.fill, itertools.count()

        def fill(scan: Any) -> None:
            if next(fails) % 3 == 1:
                raise OSError("disk")
            real(scan)

        buffer.fill = fill
        found: naive.Rows = []
        for batch in cut(stream, 100):
            calls = [run.push(batch)]
            while calls:
                try:
                    for rows in calls.pop():
                        found += naive.rows_of([rows])
                except OSError:
                    check_books(run)
                    calls.append(run.flush())
        buffer.fill = real
        found += naive.rows_of(drain_by_steps(run))
    expected = naive.join(stream, data, "k")
    assert [row[0] for row in found] == [row[0] for row in expected]
    naive.same_rows(found, expected)


def test_a_portion_keeps_the_version_that_it_was_given(tmp_path: Path) -> None:
    """Also when its rows do not fit, and it is served again."""
    data = pa.table({"k": [k for k in range(50) for _ in range(40)], "v": range(2_000)})
    master = build(tmp_path / "t", data, ["k"])
    stream = pa.table({"n": range(200), "k": [i % 50 for i in range(200)]})
    with ss.join("meshjoin", memory=60_000).open(master, on="k", order="stream") as run:
        other = data.set_column(1, "v", data["v"].cast(pa.string()))
        ss.MasterTable.build(other, tmp_path / "t", key="k", overwrite=True)
        calls = run.push(stream.to_batches()[0])
        with pytest.raises(ss.SchemaError, match="incompatible"):
            list(itertools.chain(calls, run.flush()))
        run.use(1)
        rows = naive.rows_of(run.flush())
    naive.same_rows(rows, naive.join(stream, data, "k"))


def test_a_predicate_sees_the_columns_of_the_stream(table: Any) -> None:
    def passes(stream: pa.RecordBatch, master: pa.RecordBatch) -> Any:
        assert stream.schema.names == ["n", "k"]
        return [True] * stream.num_rows

    where = ss.Predicate(lambda stream, master: pa.array(passes(stream, master)))
    with ss.join("inlj", memory="1MB").open(table[0], on="k", where=where, order="stream") as run:
        out = [*run.push(pa.record_batch({"n": [1, 2], "k": [19, 3]})), *run.flush()]
    assert sum(rows.num_rows for rows in out) == 22


def test_what_is_refused(table: Any) -> None:
    master, _ = table
    with pytest.raises(ss.ConfigError, match="order='time' is unknown; choose stream"):
        ss.join("inlj").open(master, on="k", order="time")
    with pytest.raises(ss.BudgetError, match="the rest is the reorder buffer"):
        ss.join("inlj", memory=1000).open(master, on="k", order="stream")
    with ss.join("inlj", memory="1MB").open(master, on="k", order="stream") as run:
        with pytest.raises(ss.SchemaError, match=r"expects a pyarrow\.RecordBatch"):
            run.push([1])
        with pytest.raises(ss.SchemaError, match="the name is reserved"):
            run.push(pa.RecordBatch.from_pydict({"k": [1], "__arrival": [1]}))
        assert run.stats.tuples_in == 0
    with pytest.raises(ss.ConfigError, match="closed"):
        run.push(pa.RecordBatch.from_pydict({"k": [1]}))
