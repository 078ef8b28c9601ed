"""Small batches are coalesced: the same rows in the same order, never too many bytes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from semistream.spark.coalesce import ROWS, coalesce, coalesce_bytes


def batches(sizes: list[int]) -> list[pa.RecordBatch]:
    table = pa.table({"n": range(sum(sizes)), "text": [f"text {i}" for i in range(sum(sizes))]})
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    whole = table.combine_chunks().to_batches()[0] if sum(sizes) else None
    empty = pa.record_batch({"n": pa.array([], pa.int64()), "text": pa.array([], pa.string())})
    return [
        whole.slice(start, size) if whole and size else empty
        for start, size in zip(starts, sizes, strict=True)
    ]


@pytest.mark.parametrize("most", [0, 100, 2_000, 1 << 20])
@pytest.mark.parametrize("sizes", [[], [0, 0], [1] * 300, [0, 500, 0, 3, 0], [10_000, 1, 1]])
def test_no_row_is_lost_and_the_order_is_kept(sizes: list[int], most: int) -> None:
    given = batches(sizes)
    out = list(coalesce(iter(given), most))
    assert [n for batch in out for n in batch["n"].to_pylist()] == list(range(sum(sizes)))
    assert all(batch.num_rows for batch in out)
    largest = max((batch.nbytes for batch in given), default=0)
    assert all(batch.nbytes <= most + largest + 64 for batch in out)


def test_many_small_batches_become_few() -> None:
    assert len(list(coalesce(batches([10] * 5_000), 1 << 20))) == 2
    assert max(b.num_rows for b in coalesce(batches([30_000] * 4), 1 << 30)) < ROWS + 30_000


def test_coalescing_uses_a_small_part_of_the_budget() -> None:
    assert coalesce_bytes(64_000) == 1_000
    assert coalesce_bytes(10**12) == 4 << 20
