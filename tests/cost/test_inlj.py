"""INLJ's model: one random read per tuple (000, 004), unless its page is in the pool."""

from __future__ import annotations

import pytest

from cost.shapes import case
from semistream.cost import predict


@pytest.mark.parametrize("memory", ["2MB", "20MB", "100MB"])
def test_with_equal_loads_the_pool_saves_its_share_of_the_reads(memory: str) -> None:
    found = case("inlj", memory, exponent=0.0)
    kept = found.plan.buffer_pages / found.table.num_pages
    assert predict(found).pages_per_tuple == pytest.approx(1.0 - kept, rel=0.02)


def test_skew_saves_reads_only_where_popular_rows_share_pages() -> None:
    clustered, scattered, flat = (
        predict(case("inlj", "20MB", exponent=e, clustered=c)).pages_per_tuple
        for e, c in ((1.0, True), (1.0, False), (0.0, True))
    )
    assert clustered < scattered < flat
