"""Join drained batches with rows that are copied out of pages; print the process' memory as JSON.

Started by the memory tests. The peak counts, which is reached while pages are mapped: when a push
returns, none is. The process is warmed up with a run over a tiny table first.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent.parent))

import semistream as ss
from copied import WAYS, count_copies
from semistream.memory import parse_size
from semistream.workload.relations import price_of

PUSH = 2_000


def peak() -> int:
    """The largest resident memory since :func:`forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def measure(path: str, pushes: int, memory: str, tiny: str, way: str) -> dict[str, Any]:
    copied = count_copies(WAYS[way])
    join = ss.SweepJoin(memory=memory, how="left")
    run_over(join, tiny, 4)
    gc.collect()
    copied.clear()
    return {**run_over(join, path, pushes), "copied": sum(copied)}


def run_over(join: ss.SweepJoin, path: str, pushes: int) -> dict[str, Any]:
    master = ss.MasterTable.open(path)
    for _ in master.batches():  # pages are checked when they are first read
        pass
    gc.collect()
    rng = np.random.default_rng(7)
    forget_peak()
    before, held, expected, found = peak(), 0, 0.0, 0.0
    with join.open(master, on="product_id", select=["price", "supplier_id", "description"]) as run:
        for _ in range(pushes):
            keys = rng.integers(1, master.num_rows, PUSH)
            expected += float(price_of(keys).sum())
            batch = pa.record_batch({"product_id": keys, "n": np.arange(PUSH)})
            for out in (*run.push(batch), *run.flush()):
                found += float(out["price"].to_numpy().sum())
            held = max(held, run.memory.total)
        return {
            "growth": peak() - before,
            "held": held,
            "budget": parse_size(join.memory),
            "nbytes": master.nbytes,
            "right": abs(found - expected) < 1e-6 * expected,
            "stats": run.stats.as_dict(),
        }


if __name__ == "__main__":
    _, path, pushes, memory, tiny, way = sys.argv
    print(json.dumps(measure(path, int(pushes), memory, tiny, way)))
