"""The calibration of a machine, kept beside the table that it was measured with."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from semistream.cost import FACTORS, Machine
from semistream.tuning.predicted import CALIBRATION

FILE = CALIBRATION
FORMAT_VERSION = 2
OLD = 30 * 86_400  # seconds
_DAMAGE = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Found:
    """What the file says; ``problem`` if it cannot be used."""

    machine: Machine | None
    problem: str | None = None
    date: str | None = None


def fingerprint() -> dict[str, Any]:
    """What must be the same for a calibration to hold: processor, cores, memory."""
    return {
        "processor": _proc("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": os.cpu_count(),
        "memory": _proc("/proc/meminfo", "MemTotal"),
        "system": platform.system(),
    }


def shape_of(master: Any) -> dict[str, Any]:
    """What must be the same of the table."""
    return {
        "page_bytes": int(master.max_page_bytes),
        "row_bytes": round(float(master.row_bytes), 1),
        "schema": [[field.name, str(field.type)] for field in master.schema],
        "key": list(master.key),
    }


def save(master: Any, machine: Machine, now: float | None = None) -> Path:
    """Write the file; a reader sees the old one or the new one."""
    path = Path(master.path) / FILE
    moment = time.time() if now is None else now
    content = {
        "format_version": FORMAT_VERSION,
        "package": metadata.version("semistream"),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment)),
        "seconds": moment,
        "machine": fingerprint(),
        "table": shape_of(master),
        "factors": {name: float(price) for name, price in machine.factors.items()},
        "access": [list(point) for point in machine.access],
        "disk": [list(point) for point in machine.disk],
    }
    temporary = path.with_name(f".{FILE}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(content, indent=1) + "\n")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def load(master: Any, now: float | None = None) -> Found:
    """The calibration of this table on this machine; ``problem`` says why there is none."""
    if not getattr(master, "ordered", False) or not hasattr(master, "path"):
        return Found(None)  # only a master table is calibrated
    path = Path(master.path) / FILE
    try:
        text = path.read_text()
    except FileNotFoundError:
        return Found(None)
    except (OSError, UnicodeDecodeError) as error:
        return Found(None, f"it cannot be read ({type(error).__name__})")
    try:
        content = json.loads(text)
        version = content["format_version"]
        if version != FORMAT_VERSION:
            return Found(None, f"its format version is {version!r}, not {FORMAT_VERSION}")
        date = str(content["date"])
        if content["machine"] != fingerprint():
            return Found(None, "it was measured on another machine", date)
        if content["table"] != shape_of(master):
            return Found(None, "the table has other columns or pages now", date)
        if not 0 <= (time.time() if now is None else now) - float(content["seconds"]) <= OLD:
            return Found(None, f"it is of {date}, more than 30 days old", date)
        return Found(_machine(content, date), None, date)
    except _DAMAGE as error:
        return Found(None, f"it is damaged ({type(error).__name__}: {error})")


def _machine(content: Mapping[str, Any], date: str) -> Machine:
    """Raises ValueError unless every number makes sense."""
    factors = {name: _positive(content["factors"][name]) for name in FACTORS}
    access = tuple((_positive(n), _positive(a), _positive(b)) for n, a, b in content["access"])
    disk = tuple(
        (int(_positive(n)), int(_positive(d)), _positive(s)) for n, d, s in content["disk"]
    )
    if len(access) < 2 or not any(depth == 1 for _, depth, _ in disk):
        raise ValueError("measurements are missing")
    if sorted(access) != list(access):
        raise ValueError("sizes are not in order")
    return Machine(factors, access, disk, origin=f"the calibration of {date}")


def _positive(number: Any) -> float:
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise ValueError(f"{number!r} is not a number")
    if not 0 < number < 1e12:
        raise ValueError(f"{number!r} is out of range")
    return float(number)


def _proc(path: str, key: str) -> str | None:
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(key):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return None
