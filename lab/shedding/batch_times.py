"""How long micro-batches take with a time budget, while a backlog is served.

One task, without Spark around it: two micro-batches bring far more rows than there is time for,
those that follow bring none.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import semistream as ss
from semistream.overload.keeper import Keeper
from semistream.sinks import Batch
from semistream.spark.registry import REGISTRY
from semistream.spark.sink import WarehouseWriter
from semistream.spark.sink_options import options_of, plan_of
from semistream.spark.waiting import stage, waiting_options

BURSTS = 2
MOST_BATCHES = 100


def batch_times(
    master: Path, stream: list[pa.RecordBatch], memory: int, folder: Path, seconds: float
) -> dict[str, Any]:
    """The micro-batches until nothing is deferred."""
    lookup = ss.Lookup(str(master), on="product_id", select=["price"])
    texts = options_of([lookup], memory=memory, path=folder / "out")
    plan, writer = plan_of(texts), WarehouseWriter(texts, None, 1)
    options: Any = waiting_options(plan, batch_time=seconds)
    keeper = Keeper(options, plan.sink, "times")
    batches: list[dict[str, float]] = []
    while len(batches) < BURSTS or keeper.state.rows:
        own = stream if len(batches) < BURSTS else []
        batch, began = Batch("times", len(batches)), time.perf_counter()
        turn = keeper.begin(batch.number, 1, lambda: writer.versions(None))
        staged = stage(writer, turn, batch, 0, own)
        keeper.commit([staged], batch, turn)
        figures = keeper.state.figures(time.time())
        batches.append(
            {
                "seconds": time.perf_counter() - began,
                "rows": sum(part.num_rows for part in own),
                "served": staged.rows,
                **figures,
            }
        )
        if len(batches) == MOST_BATCHES:
            raise SystemExit(f"{keeper.state.rows} rows still wait after {MOST_BATCHES} batches")
    REGISTRY.close()
    if sum(one["served"] for one in batches) != sum(one["rows"] for one in batches):
        raise SystemExit("wrong answer: rows were lost or served twice")
    return {"batch_time": seconds, "batches": batches}
