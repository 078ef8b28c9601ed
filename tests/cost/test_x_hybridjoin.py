"""X-HYBRIDJOIN's model against equations 5 to 8 of 002."""

from __future__ import annotations

import numpy as np
import pytest

from cost.shapes import case
from semistream.cost import predict

ROWS = 2_000_000


def harmonic(rows: int) -> float:
    return float((1 / np.arange(1, rows + 1)).sum())


@pytest.mark.parametrize("memory", ["20MB", "100MB"])
def test_the_share_of_the_pinned_pages(memory: str) -> None:
    """p_N (equations 7 and 8): for Zipf(1), clustered, the first rows' part of all."""
    found = case("x-hybridjoin", memory, ROWS, pinned=0.2)
    pages = int(found.plan.pinned_bytes / (found.table.row_bytes * found.rows_per_page))
    expected = harmonic(int(pages * found.rows_per_page)) / harmonic(ROWS)
    assert predict(found).front_share == pytest.approx(expected, rel=0.02)


def test_pinned_rows_cost_a_probe_in_every_iteration() -> None:
    """d_N c_H in equation 5."""
    prediction = predict(case("x-hybridjoin", "100MB", pinned=0.2))
    assert prediction.work["pinned.row"] > 0
    assert predict(case("hybridjoin", "100MB")).work.get("pinned.row", 0) == 0
