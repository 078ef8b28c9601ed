"""The cost of being ready in the warehouse sink: batch_time and parking configured, not needed.

Micro-batches go through the sink's driver and task, without Spark between them, whose time varies
more than the difference. Nothing is synced, for the same reason.
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

BATCH_ROWS = 250_000


def sink_seconds(
    master: Path, stream: list[pa.RecordBatch], memory: int, folder: Path, waits: bool
) -> float:
    """Seconds to join and write the stream in micro-batches."""
    lookup = ss.Lookup(str(master), on="product_id", select=["price"])
    texts = options_of([lookup], memory=memory, path=folder / "out", durable=False)
    plan, writer = plan_of(texts), WarehouseWriter(texts, None, 1)
    options: Any = waiting_options(
        plan, batch_time="1h", unmatched="park", parking=ss.Parking(folder / "parked")
    )
    keeper = Keeper(options, plan.sink, "ready") if waits else None
    each = max(1, BATCH_ROWS // stream[0].num_rows)
    rows, began = 0, time.perf_counter()
    for number, first in enumerate(range(0, len(stream), each)):
        batch, own = Batch("ready", number), stream[first : first + each]
        if keeper is None:
            staged = plan.sink.stage(writer.join(iter(own)), None, batch, 0)
            plan.sink.commit([staged], batch)
        else:
            turn = keeper.begin(number, 1, lambda: writer.versions(None))
            staged = stage(writer, turn, batch, 0, own)
            keeper.commit([staged], batch, turn)
        rows += staged.rows
    seconds = time.perf_counter() - began
    REGISTRY.close()
    if rows != sum(batch.num_rows for batch in stream):
        raise SystemExit(f"wrong answer: {rows} rows with waits={waits}")
    return seconds
