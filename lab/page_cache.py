"""Load a folder's files into the page cache, or drop them from it, before a measurement."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from pathlib import Path

import numpy as np

_POPULATE_READ = 22  # madvise, Linux 5.14


def read(folder: Path) -> None:
    for file in _files(folder):
        with file.open("rb", buffering=0) as opened:
            while opened.read(1 << 24):
                pass


def drop(folder: Path) -> None:
    """Pages that a process has mapped stay: unmap them first."""
    for file in _files(folder):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def cached(file: Path) -> int:
    """Bytes of a file that the page cache has."""
    size = file.stat().st_size
    pages = np.zeros(-(-size // mmap.PAGESIZE), np.uint8)
    if not size:
        return 0
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), size, mmap.MAP_PRIVATE) as mapped:
        start = ctypes.c_char.from_buffer(mapped)
        address = ctypes.c_void_p(ctypes.addressof(start))
        libc = ctypes.CDLL(None, use_errno=True)
        failed = libc.mincore(address, ctypes.c_size_t(size), pages.ctypes.data_as(ctypes.c_void_p))
        del start  # else the map cannot be closed
    if failed:
        raise OSError(ctypes.get_errno(), f"mincore failed for {file}")
    return int(np.count_nonzero(pages & 1)) * mmap.PAGESIZE


def huge_share(file: Path) -> float:
    """Share of a cached file that the page cache has in huge pages (Linux)."""
    size = file.stat().st_size
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), size, prot=mmap.PROT_READ) as mapped:
        mapped.madvise(_POPULATE_READ)
        maps = Path("/proc/self/smaps").read_text().split(str(file.resolve()))[1:]
    sizes = (re.search(r"FilePmdMapped:\s+(\d+) kB", one) for one in maps)
    return sum(1024 * int(found[1]) for found in sizes if found) / size


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())
