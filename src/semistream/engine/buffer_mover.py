"""Moves memory between window and disk buffer while a run works (004's dynamic tuning).

A read of b pages has a fixed cost and a cost per page, and serves w waiting tuples (004 equation 2,
000 equation 3). Beside what the tuple itself costs, a waiting tuple costs, in units of a page::

    (fixed + b) / w(b)

w is observed, so that it has the skew in it. With another b, a partition has another part of the
table, and the window has room for fewer or more tuples (000 equation 2; 004: w = window * b / R)::

    w(b) = least + (w - least) * b / b_now * waiting(b) / waiting(b_now)

HYBRIDJOIN reads for one tuple that is there in any case (``least`` is 1), MESHJOIN whatever waits
(0). The size changes if the run would save a clear part of its seconds per waiting tuple. As in
``memory_mover.py``, tuples that wait are served first, then all parts are allocated again.
"""

from __future__ import annotations

from collections.abc import Callable

_STEPS = (0.25, 0.5, 2.0, 4.0)  # sizes to compare with, relative to the one in use
_WORTH = 0.05  # of the seconds per waiting tuple: a smaller gain is not worth the round of a move
_FIRST_INTERVAL = 3  # rounds before the first decision
_LAST_INTERVAL = 96

Slots = Callable[[int], float]
"""Slots of the window beside a disk buffer of so many pages; 0 if it cannot have as many."""


class BufferMover:
    """Decides the pages of the disk buffer.

    A policy reports what it does (``note_window``, ``note_read``, ``note_seconds``,
    ``round_done``), admits no tuple while ``drains``, plans with ``pages`` when no tuple waits, and
    reports ``moved``.
    """

    def __init__(self, fixed_bytes: int, serve_seconds: float, least: float) -> None:
        """``fixed_bytes``: the fixed cost of a read, as bytes of pages that take as long."""
        self._fixed_bytes, self._serve_seconds, self._least = fixed_bytes, serve_seconds, least
        self.pages: int | None = None  # None: as the plan has it
        self.moves = False  # re-plan memory as soon as no tuple waits,
        self.drains = False  # and admit no tuple until then
        self._before: int | None = None  # pages before the last move
        self._filled = False
        self._most_waiting = 0
        self.start_again()

    def start_again(self) -> None:
        """The table or the stream has changed: decide soon."""
        self._interval = _FIRST_INTERVAL
        self._before = None
        self._restart(None)

    def _restart(self, waited: int | None) -> None:
        self._waited = waited  # tuples that had to wait, when this term began; None: not yet
        self._rounds = self._reads = 0
        self._seconds = 0.0

    # -- measurements ----------------------------------------------------------------------

    def note_window(self, waiting: int, is_full: bool) -> None:
        """Called after tuples were admitted."""
        self._filled |= is_full
        self._most_waiting = max(self._most_waiting, waiting)

    def note_read(self) -> None:
        """Called after the pages of the disk buffer have been probed."""
        self._reads += 1

    def note_seconds(self, seconds: float) -> None:
        """Called after an iteration."""
        self._seconds += seconds

    def moved(self) -> None:
        """Called after memory was re-planned, for whatever reason."""
        self.moves = self.drains = False
        self._restart(None)

    def too_large(self) -> None:
        """Called if there is no plan with so many pages."""
        self.pages = None

    # -- decisions -------------------------------------------------------------------------

    def round_done(self, waited: int, pages: int, page_bytes: int, slots: Slots) -> None:
        """Called when as many pages were visited as the table has.

        ``waited``: tuples served so far that had to wait; ``pages``: of the disk buffer.
        """
        filled, self._filled = self._filled, False
        waiting, self._most_waiting = self._most_waiting, 0
        if self.moves:
            return
        if self._waited is None:  # the window was being filled
            self._restart(waited)
            return
        self._rounds += 1
        tuples = waited - self._waited
        if self._rounds < self._interval or not self._reads or not tuples:
            return
        seconds = self._seconds / tuples
        served = tuples / self._reads
        self._restart(waited)
        best, saved = self._best(pages, page_bytes, served, waiting, slots)
        saved *= max(0.0, seconds - self._serve_seconds)
        if best in (pages, self._before) or saved <= _WORTH * seconds:
            self._interval = min(2 * self._interval, _LAST_INTERVAL)
            return
        self._before, self.pages = pages, best
        self.moves, self.drains = True, filled

    def _best(
        self, pages: int, page_bytes: int, served: float, waiting: int, slots: Slots
    ) -> tuple[int, float]:
        """The best size, and the part of the cost of reading that it saves."""
        fixed = self._fixed_bytes / max(1, page_bytes)
        now = max(1.0, min(slots(pages), waiting))
        least = min(self._least, served)

        def cost(other: int) -> float:
            room = min(slots(other), waiting) / now
            return (fixed + other) / max(least + (served - least) * other / pages * room, 1e-9)

        sizes = {pages, *(max(1, int(pages * step)) for step in _STEPS)}
        possible = [size for size in sorted(sizes) if size == pages or slots(size) > 0]
        best = min(possible, key=cost)
        return best, 1.0 - cost(best) / cost(pages)
