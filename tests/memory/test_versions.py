"""A run that moves to another version divides its memory again: nothing of the old one is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import naive
import semistream as ss
from harness import build, check_books, cut, smallest_memory, watched

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
