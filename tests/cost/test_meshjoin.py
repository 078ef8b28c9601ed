"""MESHJOIN's model against equations 3 and 4 of 004."""

from __future__ import annotations

import pytest

from cost.shapes import case
from semistream.cost import predict


@pytest.mark.parametrize("partition", [1, 16, 64])
def test_equations_3_and_4(partition: int) -> None:
    """rate = w / cost of an iteration; reads per tuple = b / w, with w = window / k."""
    found = case("meshjoin", "50MB", disk_buffer_pages=partition)
    prediction, pages = predict(found), found.table.num_pages
    cycle = -(-pages // partition)  # k: iterations in which a tuple meets all of R
    assert found.plan.window is not None
    admitted = -(-found.plan.window.capacity // cycle)  # w
    assert prediction.tuples_per_iteration == admitted
    assert prediction.rate == pytest.approx(admitted / prediction.seconds_per_iteration)
    assert prediction.pages_per_tuple == pytest.approx(pages / cycle / admitted)
