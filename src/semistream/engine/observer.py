"""Callbacks for monitoring a run."""

from __future__ import annotations


class Observer:
    """Callbacks of a run, called per batch, never per tuple. Override the ones you need.

    Seconds come from the run's injected clock.

    >>> class Reads(Observer):
    ...     total = 0
    ...     def page_read(self, first, count, nbytes, seconds):
    ...         self.total += count
    """

    def pushed(self, tuples: int) -> None:
        """A batch arrived."""

    def iterated(self, matched: int, unmatched: int, waiting: int, seconds: float) -> None:
        """An iteration of the loop ended, having served ``matched`` and ``unmatched`` tuples."""

    def page_read(self, first: int, count: int, nbytes: int, seconds: float) -> None:
        """Pages ``first`` to ``first + count - 1`` were read from disk."""

    def front_stage_changed(self, admitted: int, evicted: int, rows: int, threshold: int) -> None:
        """Rows entered or left the front stage."""

    def version_changed(self, old: int, new: int, dropped: int) -> None:
        """The run switched master versions; ``dropped`` cached rows were invalidated."""
