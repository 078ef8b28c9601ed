"""As-of and band joins of ten million tuples equal DuckDB's: rows, and sums over all pairs."""

from __future__ import annotations

import sys

import pytest

from lab import bench_conditions


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("cell", ["as-of", "order", "band"])
def test_ten_million_pairs(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("duckdb")
    monkeypatch.setattr(sys, "argv", ["bench_conditions", "--size", "pairs", "--cells", cell])
    assert bench_conditions.main() == 0
