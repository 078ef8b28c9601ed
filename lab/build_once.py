"""Generated files of the benchmarks: built once, and again if a build was interrupted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import semistream as ss
from semistream.errors import SemistreamError

HOME = Path(__file__).resolve().parent.parent / ".data"
DATA = Path(os.environ.get("SEMISTREAM_LAB_DATA", HOME))
Log = Callable[[str], None]


def build_once(path: Path, build: Callable[[Path], None], log: Log, what: str) -> None:
    """Call ``build(path)`` unless an earlier call has completed; a marker beside it says so."""
    done = marker(path)
    if done.exists():
        return
    log(f"{what} in {path}")
    shutil.rmtree(path, ignore_errors=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    build(path)
    done.touch()


def forget_unreadable(master: Path, log: Log) -> None:
    """Have a master table built again that this version of the library cannot open."""
    if marker(master).exists():
        try:
            ss.MasterTable.open(master)
        except SemistreamError as error:
            log(f"the cached master table cannot be used: {error}")
            marker(master).unlink()


def marker(path: Path) -> Path:
    return path.with_name(path.name + ".done")
