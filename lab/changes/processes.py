"""Processes that change a table while a benchmark measures, and what they print at their end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def start(module: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def start_sync(path: Path, world: Any) -> subprocess.Popen[str]:
    return start("lab.changes.syncer", path, json.dumps(world.describe()))


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for its end; returns the last line that it has printed."""
    out, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{process.args} failed")
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found
