"""The memory that a model names is the memory that the run holds, and its plan can be opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semistream as ss
from harness import build
from semistream import workload
from semistream.cost import Case, Machine, Prediction, Traffic, predict, zipf
from semistream.engine.binding import Binding
from semistream.engine.rows.layout import RowWidths
from semistream.engine.shape import StreamShape, TableShape
from semistream.engine.window.tuple_layout import TupleLayout

ROWS = 30_000


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> ss.MasterTable:
    folder: Path = tmp_path_factory.mktemp("cost")
    rows = workload.products(ROWS, 100, seed=1).read_all()
    return build(folder / "table", rows, ["product_id"], page_bytes="8KiB")


def predicted(join: ss.Join, master: ss.MasterTable, batch: pa.RecordBatch) -> Prediction:
    binding = Binding(master, "product_id", None, join.how)
    binding.bind(batch.schema)
    stream = StreamShape.of(batch, TupleLayout(binding, batch.schema))
    stream = stream.with_widest(RowWidths(batch.schema.types).longest(batch, join.memory // 64))
    traffic = Traffic(zipf(ROWS, 1.0), push=batch.num_rows)
    return predict(Case(join, TableShape.of(master, binding), stream, traffic, Machine()))


@settings(max_examples=20, deadline=None)
@given(
    name=st.sampled_from(sorted(ss.ALGORITHMS)),
    memory=st.integers(300_000, 3_000_000),
    how=st.sampled_from(["inner", "left"]),
    pages=st.sampled_from([None, 1, 7]),
)
def test_a_run_holds_what_was_predicted(
    name: str, memory: int, how: str, pages: int | None, master: ss.MasterTable
) -> None:
    # A part that is filled, or moves, only later is set here.
    early: dict[str, dict[str, Any]] = {
        "x-hybridjoin": {"observe": 2_000},
        "sweepjoin": {"front_stage": 0.2},
        **{
            name: {"adapt": False}
            for name in ("meshjoin", "r-meshjoin", "hybridjoin", "cmeshjoin", "chybridjoin")
        },
    }
    join = ss.join(name, memory=memory, how=how, disk_buffer_pages=pages, **early.get(name, {}))
    batch = next(iter(workload.sales(2_000, ROWS, 1.0, seed=2, batch_rows=2_000)))
    try:
        prediction = predicted(join, master, batch)
    except ss.BudgetError:
        with pytest.raises(ss.BudgetError), join.open(master, on="product_id") as run:
            list(run.push(batch))
        return
    with join.open(master, on="product_id") as run:
        most: dict[str, int] = {}
        for _ in range(3):
            for _ in run.push(batch):
                most = {part: max(n, most.get(part, 0)) for part, n in run.memory.items()}
        list(run.flush())
        most = {part: max(n, most.get(part, 0)) for part, n in run.memory.items()}
    if "pinned pages" in prediction.memory:  # whole pages, as many as fit
        page = master.max_page_bytes + 8 * master.max_page_bytes // 100
        assert most.pop("pinned pages") + page > prediction.memory["pinned pages"]
    for part, nbytes in most.items():
        if part == "pending output":  # the plan is the most that it may take
            assert nbytes <= prediction.memory[part] + 0.02 * memory
        elif part != "pinned pages":
            assert nbytes == pytest.approx(prediction.memory[part], abs=0.02 * memory), part
    assert prediction.total <= memory
    assert np.isfinite(prediction.rate)
    assert prediction.rate > 0
    assert 0 <= prediction.wait.expected <= prediction.wait.longest
