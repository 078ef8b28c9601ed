"""A predicate is the user's: if it raises, no pair is lost, and the next call goes on."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import naive
import semistream as ss
from harness import build, check_books, soon


@pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))
@pytest.mark.parametrize("rows", [3, 80])
def test_no_pair_is_lost(algorithm: str, rows: int, tmp_path: Path) -> None:
    """``rows`` of a key: few, or so many that they span pages."""
    keys = range(20) if rows < 10 else range(2)
    data = pa.table({"k": [k for k in keys for _ in range(rows)], "v": range(len(keys) * rows)})
    stream = pa.table({"n": range(60), "k": [i % (len(keys) + 1) for i in range(60)]})
    master = build(tmp_path / "t", data, ["k"], page_bytes=512)
    calls = itertools.count()

    def odd(left: pa.RecordBatch, right: pa.RecordBatch) -> Any:
        if next(calls) % 3 == 0:  # an attempt may take two calls: a front stage, then pages
            raise OSError("a service that does not answer")
        assert left.schema.names == ["n", "k"]
        sums = np.asarray(left["n"]) + np.asarray(right["v"])
        return sums % 2 == 1

    found: naive.Rows = []
    join = ss.join(algorithm, **soon(algorithm, memory=60_000, how="left"))
    with join.open(master, on="k", where=ss.Predicate(odd)) as run:
        for batch in stream.to_batches(max_chunksize=25):
            iterator = run.push(batch)
            for _ in range(1_000):
                try:
                    for out in iterator:
                        found += naive.rows_of([out])
                    break
                except OSError:
                    check_books(run)
                iterator = run.flush()
        for _ in range(1_000):
            try:
                for out in run.flush():
                    found += naive.rows_of([out])
                break
            except OSError:
                check_books(run)
        assert run.stats.waiting == 0
    expected = naive.join(stream, data, "k", "left", None, lambda r, o: (r["n"] + o["v"]) % 2 == 1)
    assert len(found) == len(expected)
    naive.same_rows(found, expected)
