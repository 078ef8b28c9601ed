"""Run one join over a long stream and print its memory as JSON. Started by the memory tests.

The process is warmed up with a run over a tiny table first, so that the measurement
covers the join's memory and not the code it loads.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

import semistream as ss
from semistream.memory import parse_size
from semistream.workload.relations import price_of, products
from semistream.workload.stream import sales

PAGE = os.sysconf("SC_PAGE_SIZE")
BATCH = 50_000


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def build(path: str, rows: int, page_bytes: str) -> None:
    ss.MasterTable.build(products(rows), path, key="product_id", unique=True, page_bytes=page_bytes)


def measure(algorithm: str, path: str, tuples: int, memory: str, tiny: str) -> dict[str, Any]:
    join = ss.join(algorithm, memory=memory, how="left")
    run_over(join, tiny, 2_000)
    gc.collect()
    return run_over(join, path, tuples)


def run_over(join: Any, path: str, tuples: int) -> dict[str, Any]:
    master = ss.MasterTable.open(path)
    rows = master.num_rows
    before = peak = resident()
    held = 0
    fullest: dict[str, int] = {}
    balanced = True
    expected = found = 0

    def look() -> None:
        nonlocal peak, held, fullest, balanced
        peak = max(peak, resident())
        memory, stats = run.memory, run.stats
        balanced &= stats.tuples_in == (
            stats.matched + stats.unmatched + stats.shed + stats.waiting
        )
        if memory.total > held:
            held, fullest = memory.total, dict(memory)

    def cents(batch: Any) -> int:
        prices = batch["price"].drop_null().to_numpy(zero_copy_only=False)
        return int(np.rint(prices * 100).astype(np.int64).sum())

    with join.open(master, on="product_id", select=["price", "supplier_id", "description"]) as run:
        stream = sales(tuples, rows, scattered=True, batch_rows=BATCH, unmatched=0.01)
        for batch in stream:
            keys = batch["product_id"].to_numpy()
            prices = price_of(keys[(keys >= 1) & (keys <= rows)])
            expected += int(np.rint(prices * 100).astype(np.int64).sum())
            for out in run.push(batch):
                found += cents(out)
                look()
            look()
        for out in run.flush():
            found += cents(out)
            look()
        look()
        return {
            "growth": peak - before,
            "held": held,
            "fullest": fullest,
            "budget": parse_size(join.memory),
            "balanced": balanced,
            "right": expected == found,
            "stats": run.stats.as_dict(),
        }


if __name__ == "__main__":
    if sys.argv[1] == "build":
        build(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        _, algorithm, path, tuples, memory, tiny = sys.argv
        print(json.dumps(measure(algorithm, path, int(tuples), memory, tiny)))
