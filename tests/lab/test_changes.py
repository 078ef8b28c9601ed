"""The benchmark of changing tables: which round counts."""

from __future__ import annotations

from lab.bench_changes import middle_round
from lab.changes.report import changes, is_missed


def found(worst: float) -> dict[str, float]:
    return {"worst_to_median": worst, "worst_push": worst / 100}


def test_the_middle_round_counts_and_all_are_kept() -> None:
    rounds = [found(151.0), found(1.9), found(2.4)]
    assert middle_round(rounds) == {**found(2.4), "rounds": [151.0, 1.9, 2.4]}
    assert middle_round([found(4.0)]) == {**found(4.0), "rounds": [4.0]}


def test_a_round_that_misses_its_target_is_shown() -> None:
    cell = {
        "cell": "rates", "mode": "stream", "rows_per_second": 1000, "rate": 7e6, "hit_rate": 0.7,
        "last_to_first": 1.0, "median_push": 0.01, "worst_push": 0.04, "worst_cpu": 0.04,
        "versions": 20, **middle_round([{"worst_to_median": one} for one in (4.0, 2.0, 5.0)]),
    }  # fmt: skip
    assert is_missed(cell)
    text = changes([cell]).markdown()
    assert "4.0 (missed)" in text
    assert "4.0, 2.0, 5.0" in text
    assert not is_missed({**cell, "worst_to_median": 2.0})
    assert not is_missed({**cell, "rows_per_second": 0})
    slower = {**cell, "worst_to_median": 2.0, "last_to_first": 0.7}
    assert is_missed({**slower, "cell": "upserts"})
    assert not is_missed(slower)
