"""R-MESHJOIN's model: MESHJOIN's with partitions of a group of pages."""

from __future__ import annotations

import pytest

from cost.shapes import case
from semistream.cost import predict


def test_a_group_of_one_buffer_is_meshjoin() -> None:
    options = {"memory": "50MB", "disk_buffer_pages": 16}
    reduced = predict(case("r-meshjoin", group_pages=16, **options))
    assert reduced.pages_per_tuple == pytest.approx(
        predict(case("meshjoin", **options)).pages_per_tuple, rel=0.02
    )


def test_a_larger_group_reads_no_more_and_takes_in_more_at_once() -> None:
    small, large = (
        predict(case("r-meshjoin", "50MB", disk_buffer_pages=16, group_pages=pages))
        for pages in (16, 160)
    )
    assert large.tuples_per_iteration == pytest.approx(10 * small.tuples_per_iteration, rel=0.02)
    assert large.pages_per_tuple == pytest.approx(small.pages_per_tuple, rel=0.02)
