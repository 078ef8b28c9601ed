"""Where tests put their files: in memory if there is room, on the disk if a test is about it."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
ROOM = 2 << 30
_DISK = "SEMISTREAM_TESTS_ON_DISK"


def use_memory() -> None:
    """Temporary files of this process and its children go to memory: most tests wait longer for
    syncs than for anything else. A folder chosen with ``TMPDIR`` is respected."""
    if "TMPDIR" in os.environ or not _has_room():
        return
    os.environ[_DISK] = tempfile.gettempdir()
    folder = MEMORY / f"semistream-tests-{os.getuid()}"  # short: a socket's path has a limit
    folder.mkdir(mode=0o700, exist_ok=True)
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None  # look again


def _has_room() -> bool:
    return os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ROOM


def disk() -> str:
    """The folder of temporary files before :func:`use_memory`."""
    return os.environ.get(_DISK) or tempfile.gettempdir()
