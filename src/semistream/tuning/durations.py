"""Durations such as ``"2s"``."""

from __future__ import annotations

import re

from semistream.errors import ConfigError

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s|min|h)?\s*")
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, None: 1.0}


def parse_seconds(duration: str | float, what: str) -> float:
    """Turn ``"2s"``, ``"500ms"``, ``"1min"`` or a number of seconds into seconds.

    >>> parse_seconds("500ms", "max_wait"), parse_seconds(2, "max_wait")
    (0.5, 2.0)
    """
    found = None
    if isinstance(duration, (int, float)) and not isinstance(duration, bool):
        found = float(duration)
    elif isinstance(duration, str) and (match := _DURATION.fullmatch(duration)):
        found = float(match[1]) * _UNITS[match[2]]
    if found is None or not 0 < found < 1e9:
        raise ConfigError(f'{what}={duration!r}: give seconds, or text such as "2s" or "500ms"')
    return found
