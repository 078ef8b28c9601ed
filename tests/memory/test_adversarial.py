"""The budget holds and the rows are correct for adversarial keys and rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import naive
import semistream as ss
from harness import build, cut, drive, smallest_memory, soon

TUPLES = 600
MASTERS = {
    "usual rows": pa.table({"k": range(600), "v": range(600), "pad": ["x" * 40] * 600}),
    "very short rows": pa.table({"k": pa.array(range(3000), pa.int16())}),
    "one long row": pa.table(
        {"k": range(300), "pad": ["x" * (9000 if k == 7 else 4) for k in range(300)]}
    ),
}
STREAMS = {
    "all above": lambda rng: 20_000 + np.arange(TUPLES),
    "one key above": lambda rng: np.full(TUPLES, 30_000),
    "all below": lambda rng: -1 - rng.integers(0, 9000, TUPLES),
    "one page": lambda rng: rng.integers(0, 5, TUPLES),
    "one key": lambda rng: np.full(TUPLES, 7),
}
QUICK = {(1, 0), (0, 3), (2, 4)}


@pytest.fixture(scope="module")
def masters(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("adversarial")
    return {
        name: build(folder / name.replace(" ", "_"), table, ["k"], unique=True)
        for name, table in MASTERS.items()
    }


@pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))
@pytest.mark.parametrize(
    ("rows", "keys"),
    [
        pytest.param(rows, keys, marks=[] if (r, k) in QUICK else [pytest.mark.slow])
        for r, rows in enumerate(MASTERS)
        for k, keys in enumerate(STREAMS)
    ],
)
def test_the_budget_holds(algorithm: str, rows: str, keys: str, masters: Any) -> None:
    values = STREAMS[keys](np.random.default_rng(1))
    stream = pa.table({"n": range(TUPLES), "k": pa.array(values, pa.int64())})
    batches = cut(stream, 200)
    least = smallest_memory(algorithm, masters[rows], batches, "k", how="left")
    for memory in (least, 2 * least + 20_000):
        options = soon(algorithm, memory=memory, how="left")
        with ss.join(algorithm, **options).open(masters[rows], on="k") as run:
            out = drive(run, batches)
        naive.same_rows(naive.rows_of(out), naive.join(stream, MASTERS[rows], "k", "left"))
