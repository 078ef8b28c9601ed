"""INLJ's model: one random read per tuple (000, 004), unless its page is in the pool."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cost.shapes import case, table
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


def test_a_wave_looks_at_a_fixed_number_of_tuples() -> None:
    """So a batch that is hardly too large for one wave takes two, of half the size."""
    most = case("inlj", "300MB").output_rows
    for push, waves in ((most, 1), (most + 1, 2), (2 * most, 2), (2 * most + 1, 3)):
        found = predict(case("inlj", "300MB", push=push))
        assert found.tuples_per_iteration == pytest.approx(push / waves)
        assert found.work["admit"] == pytest.approx(waves / push)


def test_a_wave_ends_when_its_misses_fill_the_output_batch() -> None:
    found = replace(case("cinlj", "300MB", exponent=0.5, push=10**6), front_share=0.1)
    most = found.output_rows / 0.9
    assert predict(found).tuples_per_iteration == pytest.approx(most, rel=0.05)


def test_a_page_of_a_larger_table_costs_more_to_find() -> None:
    """In the page cache; a direct read does not go through it."""

    def access(rows: int, **changes: Any) -> float:
        found = case("inlj", "20MB", rows=rows, exponent=0.0)
        return predict(replace(found, table=table(rows, **changes))).work["access"]

    assert access(20_000_000) > access(2_000_000) + 0.5e-6
    assert access(20_000_000, direct=True) < access(2_000_000)
