"""State shared by the parts of one run. A part that connects others is also given those."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from semistream.engine.binding import Binding
from semistream.engine.observer import Observer
from semistream.engine.settings import DEFAULTS, Settings
from semistream.stats import Stats

Clock = Callable[[], float]


@dataclass
class Context:
    """Keys and columns of the join, counters, the observer, the clock, the machine's constants."""

    binding: Binding
    observer: Observer
    clock: Clock
    direct: bool = False
    settings: Settings = DEFAULTS
    stats: Stats = field(default_factory=Stats)
    started: tuple[float, int, int] | None = None  # clock, matched, unmatched

    def iteration_begins(self) -> None:
        self.started = (self.clock(), self.stats.matched, self.stats.unmatched)

    def iteration_ends(self) -> float:
        """Count the iteration and report it; returns its seconds."""
        assert self.started is not None
        started, matched, unmatched = self.started
        stats, seconds = self.stats, self.clock() - started
        stats.iterations += 1
        self.observer.iterated(
            stats.matched - matched, stats.unmatched - unmatched, stats.waiting, seconds
        )
        return seconds
