"""HYBRIDJOIN's model against equations 2 and 4 of 000; its theorems are in test_theorems.py."""

from __future__ import annotations

import pytest

from cost.shapes import case
from semistream.cost import predict


@pytest.mark.parametrize("memory", ["20MB", "100MB"])
def test_equations_2_and_4(memory: str) -> None:
    """w = k h_S d / R_t, where 000 measures k = 1.36. With equal loads k is between 1 and 2: the
    next tuple of a partition comes between h_S and 2 h_S tuples after its last read."""
    found = case("hybridjoin", memory, exponent=0.0, disk_buffer_pages=16)
    prediction = predict(found)
    assert found.plan.window is not None
    share = 16 / found.table.num_pages  # d / R_t
    k = prediction.tuples_per_iteration / (found.plan.window.capacity * share)
    assert 1.0 < k < 2.0
    assert prediction.rate == pytest.approx(
        prediction.tuples_per_iteration / prediction.seconds_per_iteration
    )
    assert prediction.pages_per_tuple == pytest.approx(16 / prediction.tuples_per_iteration)
