"""Durations as text: ``30s``, ``5 minutes``, ``1d``."""

from __future__ import annotations

import re
from typing import Any

from semistream.errors import ConfigError

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(
    r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|milliseconds?|seconds?|min|minutes?|hours?|days?)\s*"
)


def parse_duration(value: Any, name: str) -> float:
    """Seconds. Accepts a number of seconds or a text with a unit.

    >>> parse_duration("1.5m", "every"), parse_duration(2, "every")
    (90.0, 2.0)
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return float(value)
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ConfigError(f"{name}={value!r} is not a duration; write 30s, 5m, 2h or 1d")
    unit = "ms" if match[2].startswith(("ms", "milli")) else match[2][0]
    return float(match[1]) * _UNITS[unit]


def format_duration(seconds: float) -> str:
    """
    >>> format_duration(0.25), format_duration(90), format_duration(7200)
    ('0.2s', '1.5m', '2h')
    """
    for unit in ("d", "h", "m"):
        if seconds >= _UNITS[unit]:
            return f"{seconds / _UNITS[unit]:.1f}".removesuffix(".0") + unit
    return f"{seconds:.1f}".removesuffix(".0") + "s"
