"""Run a cell in a separate process, monitor its memory and time, and report how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lab import rivals
from lab.page_cache import drop, read
from lab.rivals import limits
from lab.rivals.cell import Cell
from lab.rivals.contract import Grant, Rival
from lab.rivals.data import RivalData

ROOT = Path(__file__).resolve().parent.parent.parent
GRACE = 10.0  # seconds beyond the cell's own time limit, to finish the current batch
KILLED = "killed by the memory limit"
ALLOCATION_FAILURES = ("MemoryError", "memory allocation", "bad_alloc", "Cannot allocate memory")


def prepare(kind: type[Rival], variant: str, data: RivalData, log: Callable[[str], None]) -> Path:
    """Build the rival's store if it is missing. Returns its path."""
    path = kind.store(variant, data)
    data.make(path, lambda target: kind.build(variant, data, target), log, f"building {path.name}")
    return path


def run(cell: Cell, limit_kind: str = "auto", page_cache: Path | None = None) -> dict[str, Any]:
    """Measure one cell. The result always has an ``outcome``, and a ``rate`` if there is one."""
    kind = rivals.rival(cell.rival)
    grant = Grant(cell.budget, cell.batch)
    limit = limits.make(grant.limit, "none" if kind.limit_refused else limit_kind)
    if page_cache is not None:
        (drop if cell.cold else read)(page_cache)
    result: dict[str, Any] = {
        **asdict(cell),
        "key": cell.key,
        "budget": cell.budget,
        "limit": grant.limit if limit.kind != "none" else None,
        "limit_kind": limit.kind,
        "page_cache": _page_cache(cell, kind, limit.kind),
    }
    with tempfile.TemporaryDirectory(prefix="semistream-cell-") as folder:
        try:
            result |= _run(cell, limit, Path(folder))
        finally:
            limit.remove()
    return result


def _run(cell: Cell, limit: limits.Limit, folder: Path) -> dict[str, Any]:
    specification, said, errors = folder / "cell.json", folder / "result.json", folder / "errors"
    group = str(limit.group) if limit.group else None
    asked = {"cell": asdict(cell), "group": group, "limit": limit.limit, "kind": limit.kind}
    specification.write_text(json.dumps(asked))
    command = [sys.executable, "-m", "lab.rivals.cell", str(specification), str(said)]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    # Files that a killed rival leaves are removed with the cell's folder.
    own = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
    environment = {**os.environ, **own}
    began = time.perf_counter()
    with errors.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    watch, late = Watch(process.pid), False
    try:
        while process.poll() is None and not late:
            watch.look(limit.processes() or _read_json(said).get("pids", []))
            late = time.perf_counter() - began > cell.time_limit + GRACE
            time.sleep(0.05)
    finally:  # also when the harness itself is stopped
        _end(process, limit, _read_json(said).get("pids", []))
    found = _read_json(said)
    complaint = errors.read_text(errors="replace")[-2000:]
    ended = outcome(found, process.returncode, limit, late, complaint)
    if ended not in ("right", "cut") and "rate" not in found and found.get("reached_seconds"):
        found["rate"] = found["reached_rows"] / found["reached_seconds"]
    return {
        **found,
        "outcome": ended,
        "said": complaint.strip()[-300:] if ended.startswith("failed") else None,
        "wall_seconds": round(time.perf_counter() - began, 2),
        **watch.peaks(),
    }


def outcome(
    found: dict[str, Any], code: int | None, limit: limits.Limit, late: bool, complaint: str
) -> str:
    """How a cell ended, as shown in the table."""
    if limit.kills():
        return KILLED
    if "wrong" in found:
        return f"wrong answer: {found['wrong']}"
    if "out_of_memory" in found:
        return KILLED if limit.kind == "rlimit" else "out of memory within its own limit"
    if "refused" in found:
        return f"refused: {found['refused']}"
    if found.get("stage") == "done":
        return "cut by the time limit" if found["cut"] else "right"
    if late:
        return f"cut by the time limit while {found.get('stage', 'starting')}"
    if limit.kind == "rlimit" and any(word in complaint for word in ALLOCATION_FAILURES):
        return KILLED
    return f"failed: {found.get('error') or f'the process ended with code {code}'}"


class Watch:
    """The largest memory seen of a process and its children, twenty times a second."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._resident = self._anonymous = 0

    def look(self, others: list[int]) -> None:
        found = [_memory(pid) for pid in {self._pid, *others, *_descendants([self._pid, *others])}]
        anonymous = sum(memory["RssAnon"] for memory in found)
        # Count shared memory once, although several processes of a server map it.
        shared = max((memory["RssShmem"] for memory in found), default=0)
        files = sum(memory["RssFile"] for memory in found)
        self._anonymous = max(self._anonymous, anonymous + shared)
        self._resident = max(self._resident, anonymous + shared + files)

    def peaks(self) -> dict[str, int]:
        """``anonymous`` leaves out mapped files, which the kernel may drop at any time."""
        return {"peak_resident": self._resident, "peak_anonymous": self._anonymous}


def _memory(pid: int) -> dict[str, int]:
    values = dict.fromkeys(("RssAnon", "RssShmem", "RssFile"), 0)
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name = line.split(":")[0]
            if name in values:
                values[name] = int(line.split()[1]) * 1024
    return values


def _descendants(pids: list[int]) -> list[int]:
    found: list[int] = []
    for pid in pids:
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            below = [int(child) for child in children]
            found += below + _descendants(below)
    return found


def _end(process: subprocess.Popen[bytes], limit: limits.Limit, named: list[int]) -> None:
    """Terminate the remaining processes of a cell: itself, its children, and its server."""
    left = limit.processes()
    if process.poll() is None:
        left += [process.pid, *_descendants([process.pid]), *named]
    elif process.returncode != 0:  # killed, so it did not stop its server
        left += named
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found


def _page_cache(cell: Cell, kind: type[Rival], limit_kind: str) -> str:
    if not cell.cold:
        return "free: R's files were cached before"
    if kind.cold == "direct":
        return "not used: direct I/O"
    if limit_kind.startswith("cgroup"):
        return "dropped before, then part of the limit"
    return "dropped before, then free"
