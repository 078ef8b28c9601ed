"""Parsing and formatting of sizes in bytes, and the division of a budget."""

from __future__ import annotations

import re

from semistream.errors import ConfigError

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
# The default size of a page of a master table: small, as a page is often read for a single row;
# smaller ones need too much index. docs/design.md has the figures.
PAGE_BYTES = "16KiB"
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def parse_size(size: int | float | str, what: str = "memory") -> int:
    """Turn ``"50MB"``, ``"1.5 GiB"`` or a number of bytes into bytes.

    >>> parse_size("50MB"), parse_size("1 KiB"), parse_size(4096)
    (50000000, 1024, 4096)
    """
    example = f'give {what} as a number of bytes or as text such as "50MB" or "1.5GiB"'
    if isinstance(size, bool) or not isinstance(size, (int, float, str)):
        raise ConfigError(f"{what}={size!r} is not a size; {example}")
    if isinstance(size, str):
        match = _SIZE.fullmatch(size)
        unit = _UNITS.get(match[2].lower()) if match else None
        if match is None or unit is None:
            raise ConfigError(f"{what}={size!r} is not a size; {example}")
        size = float(match[1]) * unit
    if not 0 < size < 2**62:
        raise ConfigError(f"{what}={size!r} is out of range; {example}")
    return int(size)


def format_size(nbytes: int | float) -> str:
    """Format a number of bytes with a unit.

    >>> format_size(50_000_000), format_size(999)
    ('50.0 MB', '999 B')
    """
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if abs(nbytes) >= factor:
            return f"{nbytes / factor:.1f} {unit}"
    return f"{int(nbytes)} B"


def check_part(value: float | int | str, what: str) -> None:
    """Raise unless the value is a fraction of the budget (a float below 1) or a size.

    >>> check_part(0.25, "front_stage"), check_part("2kB", "front_stage")
    (None, None)
    """
    if not isinstance(value, float):
        parse_size(value, what)
    elif not 0 <= value < 1:
        raise ConfigError(
            f"{what}={value!r}: give a fraction of the budget, from 0 to below 1, or a size "
            'such as "10MB"'
        )


def divide(memory: int, sizes: list[int]) -> list[int]:
    """Divide a budget equally among tables, but give none more than it can use.

    >>> divide(100, [10, 1000]), divide(100, [500, 1000])
    ([20, 80], [50, 50])
    """
    shares = [0] * len(sizes)
    left, waiting = memory, sorted(range(len(sizes)), key=lambda i: sizes[i])
    while waiting:
        i = waiting.pop(0)
        equal = left // (len(waiting) + 1)
        # A table in memory takes about twice its size on disk: rows and a hash table.
        floor = min(equal, 32 << 20) if memory > 1 << 20 else 0
        shares[i] = max(floor, min(equal, 2 * sizes[i])) if waiting else left
        left -= shares[i]
    return shares
