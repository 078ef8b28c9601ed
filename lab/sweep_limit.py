"""Lower bounds on the time of any join on this machine: CPU and disk.

- Processor: every tuple probes a table that is wholly in memory, and the stream's and the
  master's columns are gathered into output batches, with the same kernels. Nothing waits,
  nothing is read, nothing is admitted.
- Disk: the bytes that a run read, over the best rate of the disk: requests of 1 MB, four in
  flight, direct I/O, into huge pages, on any core.
"""

from __future__ import annotations

import itertools
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import semistream as ss
from lab.engine_data import EngineData
from lab.settled import Turn
from semistream.engine.front.counting_cache import CountingCache
from semistream.master.page_buffer import PageBuffer

REQUEST, IN_FLIGHT = 1 << 20, 4
TUPLES = 3_000_000  # of the stream whose rows are held in memory


class TableInMemory:
    """All rows that match a stream, in memory."""

    def __init__(self, data: EngineData) -> None:
        self._batches = data.stream(TUPLES, 50_000)
        master = ss.MasterTable.open(data.master)
        keys = [batch["product_id"].to_numpy() for batch in self._batches]
        wanted = np.unique(np.concatenate(keys))
        self._names = [name for name in master.schema.names if name != "product_id"]
        types = [master.schema.field(name).type for name in self._names]
        size = CountingCache.size_for(types, len(wanted) * 180, 120.0)
        self._rows = CountingCache(types, size)
        reader = master.reader(8)
        for first in range(0, master.num_pages, 8):
            for page in reader.read(first, min(8, master.num_pages - first)):
                self._add(page, wanted)
        reader.close()
        if self._rows.count != len(wanted):
            raise RuntimeError(f"{self._rows.count} of {len(wanted)} rows are in memory")
        self.turn(0.5)  # compiles

    def _add(self, page: pa.RecordBatch, wanted: Any) -> None:
        keys = page["product_id"].to_numpy()
        begin, end = np.searchsorted(wanted, [keys[0], keys[-1] + 1])
        rows = np.searchsorted(keys, wanted[begin:end])
        ones = np.ones(len(rows), np.int64)
        self._rows.offer(keys[rows], ones, ones, [page.column(n) for n in self._names], rows)

    def turn(self, seconds: float) -> Turn:
        """Join the stream with the table for ``seconds``."""
        rows, began = 0, time.perf_counter()
        for batch in itertools.cycle(self._batches):
            codes = batch["product_id"].to_numpy()
            found = self._rows.probe(codes, None, 0, len(codes), len(codes), True)
            stream = batch.take(pa.array(found.hit_rows)).columns
            joined = pa.RecordBatch.from_arrays(
                [*stream, *self._rows.rows.take(found.hit_slots)],
                names=[*batch.schema.names, *self._names],
            )
            rows += joined.num_rows
            if time.perf_counter() - began > seconds:
                break
        return Turn(rows, time.perf_counter() - began)


def read_disk(file: Path, seconds: float) -> Turn:
    """Read this file for ``seconds``, on any core."""
    cores = range(os.cpu_count() or 1)
    descriptor = os.open(file, os.O_RDONLY | os.O_DIRECT)
    requests = file.stat().st_size // REQUEST
    buffers = PageBuffer.side_by_side(REQUEST, IN_FLIGHT)

    def read(buffer: PageBuffer, start: int) -> int:
        os.sched_setaffinity(0, cores)  # of this thread
        done, at = 0, start
        while time.perf_counter() - began < seconds:
            done += os.preadv(descriptor, [buffer.view], (at % requests) * REQUEST)
            at += IN_FLIGHT
        return done

    began = time.perf_counter()
    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        done = sum(pool.map(read, buffers, range(IN_FLIGHT)))
    elapsed = time.perf_counter() - began
    os.close(descriptor)
    return Turn(0, elapsed, done)
