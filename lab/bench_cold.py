"""A cold start: ``python -m lab.bench_cold``.

Starts fresh processes whose kernels are cached on disk. Each opens a master table and a join, and
joins one batch; it reports the seconds from ``MasterTable.open`` to the first joined row, by the
clock and by the processor, and what they consist of. Imports of pyarrow and semistream come before:
whoever has a batch has imported them. Exits with 1 if the median exceeds the target.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

import semistream as ss

ROWS = 100_000
TARGET = 0.3  # seconds
KEYS = {"int64": pa.int64(), "text": pa.string()}
STEPS = ("open the table", "open the join", "first rows")

# The batch comes as bytes: building one from Python lists would import pandas, if it is there.
CHILD = """
import json, sys, time
import pyarrow as pa
import semistream as ss
batch = pa.ipc.open_stream(sys.stdin.buffer).read_next_batch()
clock, times = lambda: (time.perf_counter(), time.process_time()), []
times.append(clock())
master = ss.MasterTable.open(sys.argv[1])
times.append(clock())
with ss.join("sweepjoin", memory="20MB").open(master, on="key") as run:
    times.append(clock())
    rows = sum(out.num_rows for out in [*run.push(batch), *run.flush()])
    times.append(clock())
assert rows == 3, rows
from semistream.kernels.compile import compilations
print(json.dumps({"times": times, "compiled": compilations()}))
"""


def build(folder: Path, kind: pa.DataType) -> Path:
    keys = pa.array(np.arange(ROWS)).cast(kind)
    table = pa.table({"key": keys, "price": np.arange(ROWS) * 1.5, "name": keys.cast(pa.string())})
    ss.MasterTable.build(table, folder / str(kind), key="key", unique=True)
    return folder / str(kind)


def one_process(table: Path, kind: pa.DataType) -> tuple[list[float], list[float], int]:
    """Seconds of the steps by the clock and by the processor; kernels that were compiled."""
    batch = pa.record_batch({"key": pa.array([5, 7, 99_999]).cast(kind), "n": [1, 2, 3]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(table)],
        input=sink.getvalue().to_pybytes(),
        stdout=subprocess.PIPE,
        check=True,
    )
    report = json.loads(done.stdout)
    wall, processor = zip(*report["times"], strict=True)
    return list(np.diff(wall)), list(np.diff(processor)), report["compiled"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, default=7)
    options = parser.parse_args(arguments)
    missed = False
    print("| key | seconds by | " + " | ".join(STEPS) + " | all |")
    print("|---|---|" + "---|" * (len(STEPS) + 1))
    with tempfile.TemporaryDirectory(prefix="semistream-cold-") as folder:
        for name, kind in KEYS.items():
            table = build(Path(folder), kind)
            one_process(table, kind)  # compiles what is not cached
            runs = [one_process(table, kind) for _ in range(options.processes)]
            assert not any(compiled for _, _, compiled in runs), "the kernels are not cached"
            by_clock, by_processor = ([run[i] for run in runs] for i in (0, 1))
            for clock, times in (("clock", by_clock), ("processor", by_processor)):
                steps = [median(step) for step in zip(*times, strict=True)]
                whole = median(sum(steps) for steps in times)
                cells = " | ".join(f"{seconds:.3f}" for seconds in [*steps, whole])
                print(f"| {name} | {clock} | {cells} |", flush=True)
                missed |= clock == "clock" and whole > TARGET
    print(f"\ntarget: {TARGET} s by the clock: {'missed' if missed else 'met'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
