"""Optimised X-HYBRIDJOIN's model (001): pinned rows serve tuples before they wait."""

from __future__ import annotations

import math

import pytest

from cost.shapes import case
from semistream.cost import predict
from semistream.cost.window_stage import front_capacity

ROWS = 2_000_000


@pytest.mark.parametrize("memory", ["20MB", "100MB"])
def test_the_share_of_the_pinned_rows(memory: str) -> None:
    """Equation 4: p_N = ln h_R / ln R_t, for Zipf(1) with popular rows in the same pages."""
    found = case("optimised-x-hybridjoin", memory, ROWS)
    expected = math.log(front_capacity(found)) / math.log(ROWS)
    assert predict(found).front_share == pytest.approx(expected, rel=0.03)


def test_hits_are_added_to_the_tuples_of_an_iteration() -> None:
    """Equation 3: rate = (w_N + w_S) / cost, where w_N do not enter the window."""
    prediction = predict(case("optimised-x-hybridjoin", "100MB"))
    assert 0 < prediction.front_share < 1
    assert prediction.rate == pytest.approx(
        prediction.tuples_per_iteration / prediction.seconds_per_iteration
    )


def test_pinned_rows_are_looked_up_and_not_scanned() -> None:
    """The change from 002, which probes the window with all pinned rows."""
    optimised = predict(case("optimised-x-hybridjoin", "100MB"))
    assert optimised.work.get("pinned.row", 0) == 0
    assert optimised.rate > predict(case("x-hybridjoin", "100MB")).rate
