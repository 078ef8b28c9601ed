"""A run that moves to another version divides its memory again: nothing of the old one is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import naive
import semistream as ss
from harness import build, check_books, cut, size_named_in, smallest_memory, watched

SMALL = pa.table({"k": range(0, 40, 2), "pad": ["x" * 30] * 20})
GROWN = pa.table({"k": range(0, 12_000, 2), "pad": ["y" * 30] * 6000})
STREAM = pa.table({"n": range(60), "k": [i % 41 for i in range(60)]})  # every other key is absent


class Books(ss.Observer):
    """Looks at the books at the moment of the move."""

    run: Any = None
    moves = 0

    def version_changed(self, old: int, new: int, dropped: int) -> None:
        self.moves += 1
        check_books(self.run)
        assert self.run.stats.rows_out == STREAM.num_rows, "rows of the old version still take room"


@pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))
def test_all_rows_of_the_old_version_are_returned_before_memory_is_divided_again(
    algorithm: str, tmp_path: Path
) -> None:
    master = build(tmp_path / "table", SMALL, ["k"])
    grown = build(tmp_path / "grown", GROWN, ["k"])
    (batch,) = cut(STREAM, STREAM.num_rows)
    least = smallest_memory(algorithm, grown, [batch], "k", how="left")
    books, out = Books(), []
    with ss.join(algorithm, memory=least, how="left").open(master, on="k", observer=books) as run:
        books.run = run
        out += watched(run, run.push(batch))
        build(tmp_path / "table", GROWN, ["k"], overwrite=True)
        out += watched(run, run.push(batch))
        out += watched(run, run.flush())
    assert books.moves == 1
    expected = naive.join(STREAM, SMALL, "k", "left") + naive.join(STREAM, GROWN, "k", "left")
    naive.same_rows(naive.rows_of(out), expected)


@pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))
def test_a_batch_that_the_old_window_holds_is_served_by_the_new_one(
    algorithm: str, tmp_path: Path
) -> None:
    """Taken into the queue at a version without rows, joined at one that needs more memory: it
    fits, or an error names the memory. A dictionary is held whole, even for one row."""
    words = pa.array([f"{i:>40}" for i in range(60)]).dictionary_encode()
    batch = pa.record_batch({"k": [2 * i for i in range(60)], "word": words})
    short = pa.record_batch({"k": [1], "word": pa.array(["x"]).dictionary_encode()})
    stream = [pa.Table.from_batches([rows]) for rows in (short, batch)]
    expected = [row for rows in stream for row in naive.join(rows, GROWN, "k", "left")]
    memory = 1_000
    for attempt in range(60):
        master = build(tmp_path / str(attempt), GROWN.slice(0, 0), ["k"])
        try:
            with ss.join(algorithm, memory=memory, how="left").open(master, on="k") as run:
                master.upsert(GROWN)
                run.push(short)
                run.push(batch)
                rows = naive.rows_of(watched(run, run.flush()))
            break
        except ss.BudgetError as error:
            memory = max(size_named_in(str(error)), memory + 1)
    naive.same_rows(rows, expected)
