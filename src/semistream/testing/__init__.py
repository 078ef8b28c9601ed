"""For tests of programs that use semistream: a fake clock and a recording observer."""

from __future__ import annotations

from typing import Any

from semistream.engine.observer import Observer


class FakeClock:
    """A clock that advances only by ``advance``, or by ``tick`` on every reading.

    >>> clock = FakeClock()
    >>> clock.advance(1.5)
    >>> clock()
    1.5
    """

    def __init__(self, start: float = 0.0, tick: float = 0.0) -> None:
        self.now = start
        self.tick = tick

    def __call__(self) -> float:
        now = self.now
        self.now += self.tick
        return now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class RecordingObserver(Observer):
    """Records every call as (method, positional arguments)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, tuple[Any, ...]]] = []

    def named(self, name: str) -> list[tuple[Any, ...]]:
        """The arguments of every call of one method, in order."""
        return [arguments for event, arguments in self.events if event == name]

    def pushed(self, *arguments: Any) -> None:
        self.events.append(("pushed", arguments))

    def iterated(self, *arguments: Any) -> None:
        self.events.append(("iterated", arguments))

    def page_read(self, *arguments: Any) -> None:
        self.events.append(("page_read", arguments))

    def front_stage_changed(self, *arguments: Any) -> None:
        self.events.append(("front_stage_changed", arguments))

    def version_changed(self, *arguments: Any) -> None:
        self.events.append(("version_changed", arguments))
