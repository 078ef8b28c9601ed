"""The side door: whoever wants to watch a run, without sitting in its path."""

from __future__ import annotations


class Observer:
    """Callbacks of a run, once per batch and never per tuple. Override what you need.

    Seconds come from the run's injected clock.

    >>> class Reads(Observer):
    ...     total = 0
    ...     def page_read(self, first, count, nbytes, seconds):
    ...         self.total += count
    """

    def pushed(self, tuples: int) -> None:
        """A batch arrived."""

    def iterated(self, matched: int, unmatched: int, waiting: int, seconds: float) -> None:
        """One iteration of the loop ended; ``matched`` and ``unmatched`` tuples left in it."""

    def page_read(self, first: int, count: int, nbytes: int, seconds: float) -> None:
        """Pages ``first`` to ``first + count - 1`` came from disk."""

    def front_stage_changed(self, admitted: int, evicted: int, rows: int, threshold: int) -> None:
        """Rows entered or left the front stage."""

    def version_changed(self, old: int, new: int, dropped: int) -> None:
        """The run moved to another version of the master table."""
