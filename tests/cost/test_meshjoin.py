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


def test_memory_that_moves_to_the_disk_buffer_saves_no_accesses_to_main_memory() -> None:
    """Both share the processor's caches: a smaller window beside a larger buffer is not faster."""
    access = [
        predict(case("meshjoin", "20MB", disk_buffer_pages=pages, adapt=False)).work["access"]
        for pages in (8, 32, 128)
    ]
    assert access == sorted(access)
    with_front = predict(case("cmeshjoin", "20MB", front_stage=0.4, adapt=False))
    missed = 1.0 - with_front.front_share
    assert with_front.work["access"] > missed * access[0]
