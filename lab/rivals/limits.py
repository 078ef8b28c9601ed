"""A memory limit that the kernel enforces: a control group if permitted, else an rlimit.

A control group counts the resident memory of the rival and all its children, and the page cache
that they load; pages that were cached before are not charged. An rlimit counts the
private memory that one process has reserved, resident or not, and no page cache.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


@dataclass
class Limit:
    """Created by the harness; the limited process calls ``enter``."""

    limit: int
    group: Path | None = None
    kind: str = "rlimit"

    def enter(self) -> None:
        if self.group is not None:
            (self.group / "cgroup.procs").write_text(str(os.getpid()))
        elif self.kind == "rlimit":
            resource.setrlimit(resource.RLIMIT_DATA, (self.limit, self.limit))

    def kills(self) -> int:
        """Number of processes killed by the kernel; with an rlimit, allocations fail instead."""
        if self.group is None:
            return 0
        name = "memory.events" if self.kind == "cgroup v2" else "memory.oom_control"
        for line in (self.group / name).read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
        return 0

    def processes(self) -> list[int]:
        if self.group is None:
            return []
        return [int(pid) for pid in (self.group / "cgroup.procs").read_text().split()]

    def remove(self) -> None:
        """Kill the remaining processes of the group and remove it."""
        if self.group is None:
            return
        for _ in range(100):
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                self.group.rmdir()
                return
            time.sleep(0.05)


def make(limit: int, kind: str = "auto", root: Path = ROOT) -> Limit:
    """A limit of this kind; ``"auto"`` picks the best available, ``"none"`` sets none."""
    kinds = {"cgroup v2": _version_2, "cgroup v1": _version_1}
    for name, attempt in kinds.items():
        if kind in ("auto", name):
            with contextlib.suppress(OSError):
                return Limit(limit, attempt(limit, root), name)
    return Limit(limit, None, "none" if kind == "none" else "rlimit")


def _version_2(limit: int, root: Path) -> Path:
    if "memory" not in (root / "cgroup.subtree_control").read_text().split():
        raise OSError("no permission to use the memory controller")
    return _group(root, {"memory.max": limit, "memory.swap.max": 0})


def _version_1(limit: int, root: Path) -> Path:
    if not (root / "memory" / "memory.limit_in_bytes").exists():
        raise OSError("no memory controller")
    return _group(root / "memory", {"memory.limit_in_bytes": limit, "memory.swappiness": 0})


def _group(parent: Path, settings: dict[str, int]) -> Path:
    group = parent / f"semistream-{os.getpid()}-{time.monotonic_ns()}"
    group.mkdir()
    try:
        for name, value in settings.items():
            (group / name).write_text(str(value))
    except OSError:
        group.rmdir()
        raise
    return group
