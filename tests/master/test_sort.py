"""The external sort: spills, merges in several passes, loses no row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.master.codes import KeyCodes
from semistream.master.sort import ExternalSort

ROWS = 30_000


def columns(kind: str) -> tuple[list[str], pa.Table]:
    rng = np.random.default_rng(7)
    number = np.arange(ROWS)
    if kind == "unique int":
        keys: dict[str, Any] = {"a": rng.permutation(ROWS)}
    elif kind == "few ints":
        keys = {"a": rng.integers(0, 5, ROWS)}
    elif kind == "one int":
        keys = {"a": np.zeros(ROWS, dtype=np.int64)}
    elif kind == "sorted":
        keys = {"a": number}
    elif kind == "reversed":
        keys = {"a": number[::-1].copy()}
    elif kind == "text":
        keys = {"a": [f"{i % 977}\0{'z' * (i % 3)}" for i in rng.permutation(ROWS)]}
    else:
        keys = {"a": rng.integers(0, 20, ROWS), "b": [str(i) for i in rng.integers(0, 99, ROWS)]}
    names = list(keys)
    return names, pa.table({**keys, "n": number, "pad": ["x" * (i % 50) for i in number]})


@pytest.mark.parametrize(
    "kind", ["unique int", "few ints", "one int", "sorted", "reversed", "text", "composite"]
)
@pytest.mark.parametrize("memory", [1, 400_000, 100_000_000])
def test_sorts_within_any_memory(kind: str, memory: int, tmp_path: Path) -> None:
    names, table = columns(kind)
    codes = KeyCodes(table.schema, names)
    sort = ExternalSort(codes.schema, codes.column, memory, tmp_path)
    for batch in table.to_batches(max_chunksize=3_000):
        sort.add(codes.add(batch))
    runs = len(list(tmp_path.iterdir()))
    assert (runs > 0) == (memory < 1_000_000)
    if memory == 1:
        assert runs > sort.fan_in, "the merge should need several passes"
    result = pa.Table.from_batches(list(sort.sorted()), schema=codes.schema)
    order = [codes.column, *names]
    coded = pa.Table.from_batches([codes.add(batch) for batch in table.to_batches()])
    expected = coded.sort_by([(name, "ascending") for name in order])
    assert result.select(order).equals(expected.select(order))
    if codes.codec.exact:
        by_key = table.sort_by([(name, "ascending") for name in names])
        assert result.select(names).equals(by_key.select(names))
    assert sorted(result["n"].to_pylist()) == list(range(ROWS))
    lengths = [len(text) for text in result["pad"].to_pylist()]
    assert lengths == [n % 50 for n in result["n"].to_pylist()]
    assert list(tmp_path.iterdir()) == [], "run files are gone when the sort is done"


def test_blocks_have_a_bounded_size(tmp_path: Path) -> None:
    _, table = columns("unique int")
    sort = ExternalSort(table.schema, "a", 400_000, tmp_path)
    sort.add(table.combine_chunks().to_batches()[0])  # one batch, much larger than the memory
    largest = max(batch.nbytes for batch in sort.sorted())
    assert largest <= 400_000


def test_nothing_to_sort(tmp_path: Path) -> None:
    sort = ExternalSort(pa.schema([("a", pa.int64())]), "a", 1000, tmp_path)
    assert list(sort.sorted()) == []
