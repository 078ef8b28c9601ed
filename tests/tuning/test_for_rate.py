"""Memory for a rate, without a sample."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from harness import build
from semistream import workload
from semistream.master import ParquetPages
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


def test_a_slow_stream_of_wide_tuples_has_room(tmp_path: Path) -> None:
    """The least memory for one tuple per second would hold no tuple of some kilobytes."""
    master = build(tmp_path / "table", pa.table({"k": range(100)}), ["k"])
    memory, _ = memory_for_rate([master], 1)
    with ss.join("sweepjoin", memory=memory).open(master, on="k") as run:
        batch = pa.record_batch({"k": [1], "text": ["x" * 50_000]})
        assert sum(rows.num_rows for rows in [*run.push(batch), *run.flush()]) == 1


def test_plain_parquet_files_have_the_key_of_the_look_up(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": range(1_000), "v": range(1_000)}), tmp_path / "r.parquet")
    source = ParquetPages(tmp_path / "r.parquet")
    _, plans = memory_for_rate([source], 1_000, on=[{"id": "k"}])
    assert [plan.join.name for plan in plans] == ["meshjoin"]
