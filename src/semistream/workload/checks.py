"""Checks of numeric options: the error names the option, its value, and the valid range."""

from __future__ import annotations

import numpy as np

from semistream.errors import ConfigError


def integer(name: str, value: int, least: int, most: int | None = None) -> int:
    """Check that an option is an integer in its range; raises ConfigError with the range."""
    in_range = (
        not isinstance(value, bool)
        and isinstance(value, (int, np.integer))
        and value >= least
        and (most is None or value <= most)
    )
    if not in_range:
        bound = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ConfigError(f"{name}={value!r} cannot be used; give an integer {bound}")
    return int(value)


def number(
    name: str, value: float, least: float, most: float = float("inf"), *, open_low: bool = False
) -> float:
    """Check that an option is a finite number in its range; raises ConfigError with the range."""
    try:
        checked = float(value)
    except (TypeError, ValueError):
        checked = float("nan")
    fits = (checked > least if open_low else checked >= least) and checked <= most
    if not fits or checked == float("inf"):
        low = f"above {least:g}" if open_low else f"of at least {least:g}"
        high = "" if most == float("inf") else f" and at most {most:g}"
        raise ConfigError(f"{name}={value!r} cannot be used; give a number {low}{high}")
    return checked
