"""CMESHJOIN's model: MESHJOIN's, with the hits of a front stage added to w."""

from __future__ import annotations

import pytest

from cost.shapes import case
from semistream.cost import predict


def test_hits_take_no_slot() -> None:
    found = case("cmeshjoin", "50MB", disk_buffer_pages=16, front_stage=0.3, adapt=False)
    prediction = predict(found)
    assert found.plan.window is not None
    admitted = -(-found.plan.window.capacity // -(-found.table.num_pages // 16))  # w
    assert prediction.front_share > 0.3
    assert prediction.tuples_per_iteration == pytest.approx(
        admitted / (1.0 - prediction.front_share)
    )


def test_it_reads_less_than_meshjoin_where_keys_repeat() -> None:
    pages = {
        (name, e): predict(case(name, "50MB", exponent=e, disk_buffer_pages=16)).pages_per_tuple
        for name in ("cmeshjoin", "meshjoin")
        for e in (0.0, 1.0)
    }
    assert pages["cmeshjoin", 1.0] < pages["meshjoin", 1.0] / 2
    assert pages["cmeshjoin", 0.0] == pytest.approx(pages["meshjoin", 0.0], rel=0.3)
