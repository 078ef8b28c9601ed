"""Load a folder's files into the page cache, or drop them from it, before a measurement."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np


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


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())
