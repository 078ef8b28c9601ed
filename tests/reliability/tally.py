"""Counts of tried cases, shown at the end of a test run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

_PREFIX = "tried: "


class Tally:
    """How many of each kind one test tried."""

    def __init__(self, record: Callable[[str, object], None]) -> None:
        self._record = record

    def __call__(self, what: str, count: int) -> None:
        self._record(_PREFIX + what, count)


def summary(reports: list[Any]) -> list[str]:
    """One line for each kind, over all tests that passed."""
    counts: Counter[str] = Counter()
    for report in reports:
        for name, value in getattr(report, "user_properties", []):
            if name.startswith(_PREFIX):
                counts[name.removeprefix(_PREFIX)] += int(value)
    return [f"{count:>12,} {what}" for what, count in sorted(counts.items())]
