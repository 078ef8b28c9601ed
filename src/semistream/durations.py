"""Parsing of durations."""

from __future__ import annotations

import math
import re

from semistream.errors import ConfigError

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def parse_duration(duration: float | str, what: str) -> float:
    """Turn ``"5s"``, ``"1.5 h"``, ``"1d"`` or a number of seconds into seconds.

    >>> parse_duration("1d", "max_age"), parse_duration("250ms", "batch_time")
    (86400.0, 0.25)
    """
    example = f'give {what} as a number of seconds or as text such as "5s", "30m", "2h" or "1d"'
    if isinstance(duration, bool) or not isinstance(duration, (int, float, str)):
        raise ConfigError(f"{what}={duration!r} is not a duration; {example}")
    seconds: float = 0.0
    if isinstance(duration, str):
        match = _DURATION.fullmatch(duration)
        unit = _UNITS.get(match[2].lower()) if match else None
        if match is None or unit is None:
            raise ConfigError(f"{what}={duration!r} is not a duration; {example}")
        seconds = float(match[1]) * unit
    else:
        seconds = float(duration)
    if not 0 < seconds < math.inf:
        raise ConfigError(f"{what}={duration!r} is out of range; {example}")
    return seconds
