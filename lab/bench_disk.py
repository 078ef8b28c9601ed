"""The cost of a direct read: by size, queue depth, and small or huge pages.

    python -m lab.bench_disk          # a minute, on the pages of a table of 20 million rows

These measurements explain how SweepJoin reads: large requests, a few in flight, where many tuples
wait; groups of small scattered ones, all in flight, where few do. How many bytes a request costs
(``gap_bytes``) follows from the second table. CPU time is that of one core, interrupts included.
"""

from __future__ import annotations

import argparse
import mmap
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from lab import machine
from lab.engine_data import EngineData
from semistream.master.disk_read import DiskRead, address_of
from semistream.master.extents import Extents
from semistream.master.local_file import ALIGNMENT
from semistream.master.page_buffer import PageBuffer

KILOBYTES, IN_FLIGHT = (512, 1024, 2048, 4096), (1, 2, 3)
ROUNDS, READS = 5, 150
SMALL_KILOBYTES, GROUPS = (4, 16, 20, 64, 128), (1, 4, 8, 16, 32, 64, 128, 256)
SMALL_SECONDS = 0.1  # for each size and group, in every round


def small_pages(nbytes: int, count: int) -> list[memoryview]:
    return [memoryview(mmap.mmap(-1, nbytes)) for _ in range(count)]


def huge_pages(nbytes: int, count: int) -> list[memoryview]:
    return [buffer.view for buffer in PageBuffer.side_by_side(nbytes, count)]


def measure(file: Path, buffers: list[memoryview], core: int) -> tuple[float, float, float]:
    """Bytes per second, seconds of latency per read, and CPU seconds per read."""
    nbytes, count = len(buffers[0]), len(buffers)
    places = file.stat().st_size // nbytes
    for buffer in buffers:
        buffer[:] = bytes(nbytes)  # touch the pages, so that the kernel allocates them
    reads = [read for read in (DiskRead.make() for _ in buffers) if read is not None]
    if len(reads) < count:
        raise SystemExit("this system has no asynchronous reads")
    descriptor = os.open(file, os.O_RDONLY | os.O_DIRECT)
    asked, waits = [0.0] * count, []
    began, idle = time.perf_counter(), _idle(core)
    for i in range(READS + count):
        read = reads[i % count]
        if read.pending:
            if read.finish() != nbytes:
                raise OSError(f"a read of {file} failed")
            waits.append(time.perf_counter() - asked[i % count])
        if i < READS:
            asked[i % count] = time.perf_counter()
            place = i * 5 // 4 % places * nbytes
            extents = Extents(np.array([place]), np.array([place + nbytes]), True)
            read.begin(descriptor, address_of(buffers[i % count]), extents)
    elapsed = time.perf_counter() - began
    busy = max(0.0, elapsed - (_idle(core) - idle))
    os.close(descriptor)
    for read in reads:
        read.close()
    return READS * nbytes / elapsed, statistics.median(waits), busy / READS


def scattered(file: Path, nbytes: int, group: int, core: int) -> tuple[float, float]:
    """Seconds, and CPU seconds, of a read in groups of random ones that are in flight together."""
    buffer = PageBuffer(nbytes * group)
    buffer.view[:] = bytes(len(buffer.view))
    blocks, reads = (file.stat().st_size - nbytes) // ALIGNMENT, DiskRead.make(group)
    if reads is None:
        raise SystemExit("this system has no asynchronous reads")
    descriptor, rng = os.open(file, os.O_RDONLY | os.O_DIRECT), np.random.default_rng()
    places, count = nbytes * np.arange(group), 0
    began, idle = time.perf_counter(), _idle(core)
    while time.perf_counter() - began < SMALL_SECONDS:
        offsets = ALIGNMENT * np.sort(rng.integers(0, blocks, group))
        extents = Extents.apart(offsets, offsets + nbytes, True, places)
        reads.begin(descriptor, address_of(buffer.view), extents)
        if reads.finish() != nbytes * group:
            raise OSError(f"a read of {file} failed")
        count += group
    elapsed = time.perf_counter() - began
    os.close(descriptor)
    reads.close()
    return elapsed / count, max(0.0, elapsed - (_idle(core) - idle)) / count


def _idle(core: int) -> float:
    """Seconds that this core was idle or waited for a disk."""
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith(f"cpu{core} "):
            idle, waiting = line.split()[4:6]
            return (int(idle) + int(waiting)) / os.sysconf("SC_CLK_TCK")
    return 0.0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    options, console = parser.parse_args(arguments), Console()
    data = EngineData(options.rows, 0)
    data.prepare(console.print, lmdb=False)
    core = machine.pin_to_one_core() or 0
    table = Table(title=f"direct reads, load {machine.load()[0]}", box=box.SIMPLE_HEAD)
    for name in ("KB", "in flight", "pages", "GB/s", "latency ms", "CPU ms"):
        table.add_column(name, justify="right")
    with console.status("reading"):
        found: dict[tuple[int, int, str], list[tuple[float, float, float]]] = {}
        for _ in range(ROUNDS):  # interleaved: the speed of the machine varies over time
            for size in KILOBYTES:
                for count in IN_FLIGHT:
                    for pages in (small_pages, huge_pages):
                        one = measure(data.pages_file, pages(size << 10, count), core)
                        key = size, count, pages.__name__.removesuffix("_pages")
                        found.setdefault(key, []).append(one)
    for (size, count, pages_kind), runs in found.items():
        rate, wait, busy = (statistics.median(values) for values in zip(*runs, strict=True))
        row = (f"{rate / 1e9:.2f}", f"{wait * 1e3:.2f}", f"{busy * 1e3:.3f}")
        table.add_row(str(size), str(count), pages_kind, *row)
    console.print(table)
    small: dict[tuple[int, int], list[tuple[float, float]]] = {}
    with console.status("reading scattered pages"):
        for _ in range(ROUNDS):
            for size in SMALL_KILOBYTES:
                for group in GROUPS:
                    one = scattered(data.pages_file, size << 10, group, core)
                    small.setdefault((size, group), []).append(one)
    table = Table(title=f"groups of random reads, load {machine.load()[0]}", box=box.SIMPLE_HEAD)
    for name in ("KB", "in flight", "us a read", "GB/s", "CPU us"):
        table.add_column(name, justify="right")
    for (size, group), times in small.items():
        seconds, busy = (statistics.median(values) for values in zip(*times, strict=True))
        figures = (
            f"{seconds * 1e6:.1f}",
            f"{(size << 10) / seconds / 1e9:.2f}",
            f"{busy * 1e6:.1f}",
        )
        table.add_row(str(size), str(group), *figures)
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
