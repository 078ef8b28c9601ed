"""The age of the data that tuples are joined with, and a limit for it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from semistream.durations import format_duration, parse_duration
from semistream.errors import ConfigError, MasterTableError

TOO_OLD = ("warn", "raise")
_CHECK_SECONDS = 1.0  # between two looks at the table's folder


class AgeLimit:
    """Warns once, or raises at every check, while the data of a table is older than ``max_age``.

    ``source.age_at(version)`` is the age in seconds; None: it never followed a source.
    """

    def __init__(self, source: Any, max_age: Any, too_old: str, clock: Callable[[], float]) -> None:
        if too_old not in TOO_OLD:
            raise ConfigError(f"too_old={too_old!r} is unknown; choose one of {', '.join(TOO_OLD)}")
        if not hasattr(source, "age_at"):
            raise ConfigError(
                "max_age is for a master table, which knows when it was last in step with its "
                "source (master.sync)"
            )
        self._most = parse_duration(max_age, "max_age")
        self._raises = too_old == "raise"
        self._clock = clock
        self._checked: float | None = None
        self._is_old = False

    def check(self, source: Any, version: int) -> None:
        """Look at the age of this version, unless that was done a moment ago."""
        now = self._clock()
        is_recent = self._checked is not None and 0 <= now - self._checked < _CHECK_SECONDS
        if is_recent and not (self._is_old and self._raises):
            return
        self._checked = now
        age = source.age_at(version)
        was_old, self._is_old = self._is_old, age is None or age > self._most
        if not self._is_old or (was_old and not self._raises):
            return
        known = "is of unknown age: it was never synced"
        if age is not None:
            known = f"is {format_duration(age)} old"
        text = f"the data of {source.path} {known}, and max_age is {format_duration(self._most)}"
        if self._raises:
            raise MasterTableError(f"{text}; sync the table, and push the batch again")
        warnings.warn(text, stacklevel=4)
