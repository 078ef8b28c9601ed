"""Room in the window that evens out the work of pushes, where the table changes.

A push in which a run moves to a new version has enough to do: it should not have to visit pages as
well, to make room for its own tuples. And few tuples wait for the pages of a young delta, so that
many visits to its pages make as much room as one to the base. So once the table has changed while
tuples waited, pushes make more room than they need, a little each, and leave it to such a push.
"""

from __future__ import annotations

from semistream.joins.sweep.stretch_window import StretchWindow

_PUSHES = 4  # whose tuples it should hold,
_SHARE = 32  # but of the window, one part at most
_REFILL = 2  # a push may have to make room for one tuple in so many of its own
_MOST_VISITS = 3  # that a push makes before it takes from the reserve


class PushReserve:
    """``has_moved``: this push has moved to a new version, and the one before it has not."""

    def __init__(self) -> None:
        self.has_moved = False
        self._moved_before = False
        self._changes = False  # the table does, while tuples wait
        self._added = 0  # tuples, by this push
        self._visits = 0

    def version_moved(self, window: StretchWindow) -> None:
        """A version was attached, while tuples wait."""
        self._changes = True
        self.has_moved = not self._moved_before
        window.reserve = 0

    def visited(self, window: StretchWindow) -> None:
        self._visits += 1
        if self._visits >= _MOST_VISITS:
            window.reserve = 0

    def added(self, tuples: int) -> None:
        self._added += tuples

    def push_over(self, window: StretchWindow) -> None:
        """The next pushes fill it again."""
        added = window.chunks_of(self._added)
        self._added, self._visits = 0, 0
        self._moved_before, self.has_moved = self.has_moved, False
        if not window.count:
            window.reserve = 0
        elif self._changes and added:
            most = min(_PUSHES * added, window.chunks // _SHARE)
            free = max(0, window.free_chunks - window.spare)
            window.reserve = min(most, free + added // _REFILL)
