"""Measures memory and disk by themselves."""

from __future__ import annotations

import mmap
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from semistream.cost.machine import ACCESS, DISK

_ACCESSES = 200_000
_REQUEST_SECONDS = 0.12  # per request size and depth


def memory_access() -> tuple[tuple[float, float], ...]:
    """Seconds of a random access, by the size of the structure."""
    found = []
    random = np.random.default_rng(1)
    for nbytes, _ in ACCESS:
        values = np.arange(int(nbytes) // 8)  # not zeros: their pages would all be the same one
        places = random.integers(0, len(values), _ACCESSES)
        values.take(places)
        best = min(_take_seconds(values, places) for _ in range(3))
        found.append((float(nbytes), best / _ACCESSES))
    seconds = np.maximum.accumulate([s for _, s in found])  # larger is never faster
    return tuple((size, float(s)) for (size, _), s in zip(found, seconds, strict=True))


def _take_seconds(values: Any, places: Any) -> float:
    began = time.process_time()
    values.take(places)
    return time.process_time() - began


def disk_requests(path: str) -> tuple[tuple[int, int, float], ...] | None:
    """(request bytes, requests in flight, seconds per request) of direct reads.

    None where the file system has no direct I/O, or the file is smaller than a request.
    """
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECT", 0))
    except OSError:
        return None
    try:
        size = os.fstat(file).st_size
        if not hasattr(os, "O_DIRECT") or size < (1 << 20):
            return None
        return tuple(
            (request, depth, _request_seconds(file, size, request, depth))
            for request, depth, _ in DISK
            if request <= size
        )
    except OSError:
        return None
    finally:
        os.close(file)


def _request_seconds(file: int, size: int, request: int, depth: int) -> float:
    buffers = [mmap.mmap(-1, request) for _ in range(depth)]
    random = np.random.default_rng(request + depth)
    count, began = 0, time.perf_counter()

    def read(buffer: mmap.mmap, offset: int) -> None:
        os.preadv(file, [buffer], offset)

    with ThreadPoolExecutor(depth) as pool:
        while time.perf_counter() - began < _REQUEST_SECONDS:
            places = random.integers(0, max(1, (size - request) // 4096 + 1), depth) * 4096
            for done in [
                pool.submit(read, b, int(p)) for b, p in zip(buffers, places, strict=True)
            ]:
                done.result()
            count += depth
        seconds = (time.perf_counter() - began) / count
    for buffer in buffers:
        buffer.close()
    return seconds
