"""A stream tuple that exceeds the budget: its batch is refused, and the run continues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import naive
import semistream as ss
from harness import build, check_books, drive, watched

MASTER = pa.table({"k": range(1000), "v": range(1000)})
KINDS = {
    "text": (pa.string(), lambda size: "x" * size),
    "binary": (pa.binary(), lambda size: b"x" * size),
    "nested": (pa.list_(pa.int64()), lambda size: list(range(size // 8))),
}

every_algorithm = pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path: Path = tmp_path_factory.mktemp("long") / "table"
    return build(path, MASTER, ["k"], unique=True)


def batch(kind: str, first: int, count: int, long: int | None = None, size: int = 0) -> Any:
    """Tuples of a few bytes; the one at position ``long`` has about ``size``."""
    of_type, value = KINDS[kind]
    values = [value(size if place == long else 16) for place in range(count)]
    numbers = range(first, first + count)
    keys = pa.array([7 * n % 1100 for n in numbers])
    return pa.record_batch({"n": pa.array(numbers), "k": keys, "note": pa.array(values, of_type)})


@every_algorithm
@pytest.mark.parametrize(
    ("kind", "size"),
    [
        pytest.param(kind, size, marks=[] if size == 100_000 else [pytest.mark.slow])
        for kind in KINDS
        for size in (2_000, 20_000, 100_000, 1_000_000)
    ],
)
def test_a_tuple_that_is_too_long_is_refused_at_push(
    algorithm: str, kind: str, size: int, master: Any
) -> None:
    """Served or refused: never admitted and then refused by every later call."""
    good = [batch(kind, 10_000 * turn, 100) for turn in range(3)]
    long = batch(kind, 50_000, 1_100, long=1_050, size=size)
    pushed, out = [], []
    with ss.join(algorithm, memory="400KB", how="left").open(master, on="k") as run:
        for one in (long, good[0], good[1], long, good[2]):
            before = run.stats.as_dict()
            try:
                rows = run.push(one)
            except ss.BudgetError:
                assert one is long
                assert run.stats.as_dict() == before
                assert size >= 20_000
            else:
                pushed.append(pa.Table.from_batches([one]))
                out += watched(run, rows)
            check_books(run)
        assert size < 400_000 or len(pushed) == 3
        out += drive(run, [])
    expected = naive.join(pa.concat_tables(pushed), MASTER, "k", "left")
    naive.same_rows(naive.rows_of(out), expected)


@every_algorithm
def test_a_refused_first_batch_has_no_effect(algorithm: str, master: Any) -> None:
    """Neither the stream's schema nor the room for its tuples."""
    long = batch("text", 0, 10, long=3, size=2_000_000)
    other = pa.record_batch({"k": pa.array(range(100))})
    with ss.join(algorithm, memory="100KB").open(master, on="k") as run:
        with pytest.raises(ss.BudgetError, match="the smallest budget"):
            run.push(long)
        assert run.schema is None
        assert run.stats.tuples_in == 0
        assert sum(rows.num_rows for rows in drive(run, [other])) == 100
