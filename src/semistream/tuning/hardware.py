"""Measures memory and disk by themselves."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from semistream import kernels
from semistream.cost.machine import ACCESS, DISK

_ACCESSES = 100_000
_LINE = 64  # bytes of a cache line
_REQUEST_SECONDS = 0.12  # per request size and depth


def memory_access() -> tuple[tuple[float, float, float], ...]:
    """(bytes, seconds, seconds if it depends on the one before) of a random access.

    Every repetition goes to other places: the processor's caches would hold the same ones.
    """
    sizes = [int(nbytes) for nbytes, _, _ in ACCESS]
    found = np.array([(_independent(nbytes), _dependent(nbytes)) for nbytes in sizes])
    found = np.maximum.accumulate(found)  # larger is never faster
    return tuple(
        (float(n), float(alone), float(after))
        for n, (alone, after) in zip(sizes, found, strict=True)
    )


def _independent(nbytes: int) -> float:
    values = np.arange(nbytes // 8)  # not zeros: their pages would all be the same one
    random = np.random.default_rng(1)
    places = [random.integers(0, len(values), _ACCESSES) for _ in range(5)]
    values.take(places[0])
    return min(_seconds(partial(values.take, some)) for some in places) / _ACCESSES


def _dependent(nbytes: int) -> float:
    """Follows links through all cache lines of an array, in an order that looks random."""
    links = np.empty((nbytes // 8, 2), np.int32)  # as those of a window's queue
    following, per_line = links[:, 1], _LINE // 8
    lines = np.arange(nbytes // _LINE, dtype=np.int64)
    # A multiplier of the form 4 n + 1 and an odd number visit all lines, if they are a power of 2.
    following[::per_line] = (lines * 0x9E3779B1 + 0x7F4A7C15) % len(lines) * per_line
    following[-1] = 0
    seen = np.empty(min(_ACCESSES, 4 * len(lines)), np.int32)

    def follow() -> None:
        kernels.window.oldest(following, seen)
        following[-1] = seen[-1]  # go on from there

    follow()
    return min(_seconds(follow) for _ in range(4)) / len(seen)


def _seconds(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
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
