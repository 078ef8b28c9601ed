"""Run one join over a table of one of the benchmark's shapes and print its memory as JSON.

Started by the memory tests. The process is warmed up with a run over a tiny table of the same shape
first, so that the measurement covers the join's memory and not the code it loads.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import Any

import semistream as ss
from lab.shapes.data import ShapeData
from memory.measure import resident

PUSH = 5_000


def measure(algorithm: str, data: ShapeData, tuples: int, memory: str) -> dict[str, Any]:
    master = ss.MasterTable.open(data.master)
    before = peak = resident()
    held, fullest, mistake, rows_out = 0, {}, None, 0
    with ss.join(algorithm, memory=memory).open(master, on=data.shape.key.names) as run:
        for position in range(0, tuples, PUSH):
            (batch,) = data.stream(PUSH, PUSH, position)
            for rows in run.push(batch):
                rows_out += rows.num_rows
                mistake = mistake or data.wrong_rows(rows)
            if run.memory.total > held:
                held, fullest = run.memory.total, dict(run.memory)
            peak = max(peak, resident())
        for rows in run.flush():
            rows_out += rows.num_rows
            mistake = mistake or data.wrong_rows(rows)
            peak = max(peak, resident())
        return {
            "held": held,
            "fullest": fullest,
            "budget": run.memory.budget,
            "growth": peak - before,
            "mistake": mistake,
            "rows_out": rows_out,
            "expected": tuples * data.shape.copies,
        }


def main(algorithm: str, shape: str, folder: str, rows: str, tuples: str, memory: str) -> None:
    tiny, data = (ShapeData.named(shape, n, 0, Path(folder)) for n in (1_000, int(rows)))
    if algorithm == "build":
        for one in (tiny, data):
            one.prepare(lambda line: None, lmdb=False)
        return
    measure(algorithm, tiny, 2 * PUSH, memory)
    gc.collect()
    print(json.dumps(measure(algorithm, data, int(tuples), memory)))


if __name__ == "__main__":
    main(*sys.argv[1:])
