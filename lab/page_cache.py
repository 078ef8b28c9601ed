"""Load a folder's files into the page cache, or drop them from it, before a measurement."""

from __future__ import annotations

import os
from pathlib import Path


def read(folder: Path) -> None:
    for file in _files(folder):
        with file.open("rb", buffering=0) as opened:
            while opened.read(1 << 24):
                pass


def drop(folder: Path) -> None:
    for file in _files(folder):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())
