"""What no join can beat on this machine: the processor's floor and the disk's floor.

- Processor: every tuple probes a table that is wholly in memory, and the stream's and the
  master's columns are gathered into output batches, with the same kernels. Nothing waits,
  nothing is read, nothing is admitted.
- Disk: the bytes that a run read, over the best rate of the disk: requests of 1 MB, four in
  flight, past the page cache.
"""

from __future__ import annotations

import mmap
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa

import semistream as ss
from lab.engine_data import EngineData
from semistream.joins.hot_rows import HotRows

REQUEST, IN_FLIGHT = 1 << 20, 4
ROUNDS = 6  # over the stream, a few seconds in all


def processor_seconds(data: EngineData, batches: list[pa.RecordBatch]) -> float:
    """Seconds per tuple to join these batches with a table in memory that has all their keys."""
    master = ss.MasterTable.open(data.master)
    wanted = np.unique(np.concatenate([batch["product_id"].to_numpy() for batch in batches]))
    names = [name for name in master.schema.names if name != "product_id"]
    hot = HotRows([master.schema.field(n).type for n in names], len(wanted) * 180, 120.0)
    reader = master.reader(8)
    for first in range(0, master.num_pages, 8):
        for page in reader.read(first, min(8, master.num_pages - first)):
            keys = page["product_id"].to_numpy()
            begin, end = np.searchsorted(wanted, [keys[0], keys[-1] + 1])
            rows = np.searchsorted(keys, wanted[begin:end])
            ones = np.ones(len(rows), np.int64)
            columns = [page.column(name) for name in names]
            hot.admit(keys[rows], ones, ones, columns, rows)
    reader.close()
    if hot.count != len(wanted):
        raise RuntimeError(f"the table in memory holds {hot.count} of {len(wanted)} rows")
    tuples = 0
    for i, batch in enumerate([*batches[:4], *batches * ROUNDS]):  # the first ones warm up
        if i == 4:
            started, tuples = time.perf_counter(), 0
        codes = batch["product_id"].to_numpy()
        found = hot.look_up(codes, None, 0, len(codes), len(codes), True)
        stream = batch.take(pa.array(found.hit_rows)).columns
        rows = pa.RecordBatch.from_arrays(
            [*stream, *hot.rows.take(found.hit_slots)],
            names=[*batch.schema.names, *names],
        )
        tuples += rows.num_rows
    return (time.perf_counter() - started) / tuples


def disk_rate(path: Path, seconds: float = 2.0) -> float:
    """Bytes per second from the largest file below ``path``."""
    file = max((p for p in path.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    descriptor = os.open(file, os.O_RDONLY | os.O_DIRECT)
    requests = file.stat().st_size // REQUEST
    buffers = [mmap.mmap(-1, REQUEST) for _ in range(IN_FLIGHT)]

    def read(buffer: mmap.mmap, start: int) -> int:
        done, at = 0, start
        while time.perf_counter() - began < seconds:
            done += os.preadv(descriptor, [buffer], (at % requests) * REQUEST)
            at += IN_FLIGHT
        return done

    began = time.perf_counter()
    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        done = sum(pool.map(read, buffers, range(IN_FLIGHT)))
    elapsed = time.perf_counter() - began
    os.close(descriptor)
    return done / elapsed
