"""The environment of a result: versions, CPU, memory, load, core."""

from __future__ import annotations

import os
import platform
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("semistream", "numpy", "numba", "pyarrow", "lmdb")


def describe(packages: tuple[str, ...] = PACKAGES) -> dict[str, Any]:
    """Versions and machine, JSON-serializable."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": sys.version.split()[0],
        "packages": {name: _version(name) for name in packages},
        "system": platform.platform(),
        "processor": _proc_value("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": os.cpu_count(),
        "memory": _proc_value("/proc/meminfo", "MemTotal"),
        "load": load(),
    }


def load() -> list[float]:
    """Load averages over 1, 5 and 15 minutes: a busy machine explains a slow cell."""
    return [round(value, 2) for value in os.getloadavg()]


def pin_to_one_core() -> int | None:
    """Pin this process to the last core that it may use; None if that is not supported."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core


def resident_bytes() -> int:
    """Current resident memory of this process."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _proc_value(path: str, key: str) -> str | None:
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(key):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return None
