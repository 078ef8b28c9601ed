"""Memory for a rate, without a sample."""

from __future__ import annotations

from pathlib import Path

import pytest

import semistream as ss
from harness import build
from semistream import workload
from semistream.tuning.for_rate import memory_for_rate


def test_a_higher_rate_needs_more_memory(tmp_path: Path) -> None:
    rows = workload.products(20_000, 100, seed=1).read_all()
    master = build(tmp_path / "table", rows, ["product_id"], page_bytes="8KiB")
    little, plans = memory_for_rate([master], 1_000)
    assert [plan.join.name for plan in plans] == ["sweepjoin"]
    much, _ = memory_for_rate([master], plans[0].rate * 1.3)
    assert little <= much
    both, plans = memory_for_rate([master, master], 1_000, using="cmeshjoin", workers=2)
    assert [plan.join.name for plan in plans] == ["cmeshjoin", "cmeshjoin"]
    assert both >= 2 * sum(plan.join.memory for plan in plans)
    with pytest.raises(ss.BudgetError, match="no join serves"):
        memory_for_rate([master], 1e10)
    with pytest.raises(ss.ConfigError, match="rate=0"):
        memory_for_rate([master], 0)
