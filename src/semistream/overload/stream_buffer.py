"""What a run knows about its stream buffer: how many bytes, how long, how fast it is served."""

from __future__ import annotations

from collections import deque

_WEIGHT = 0.5  # of the last iteration in the mean


class StreamBuffer:
    """Bytes of the batches that were queued and not consumed, first in, first out.

    The tuples themselves are in the run's intake. A batch holds its memory until its last tuple
    is consumed.
    """

    def __init__(self) -> None:
        self._batches: deque[tuple[int, int]] = deque()  # rows, bytes
        self.rows = 0
        self.nbytes = 0
        self.newest = 0  # rows of the batch that was offered last
        self.entered = 0  # rows that ever came, without those that were withdrawn

    def add(self, rows: int, nbytes: int, offered: bool) -> None:
        if not rows:
            return
        self._batches.append((rows, nbytes))
        self.rows += rows
        self.entered += rows
        self.nbytes += nbytes
        if offered:
            self.newest = rows

    def consumed_to(self, rows: int) -> None:
        """Only the last ``rows`` are still there."""
        while self._batches and self.rows - self._batches[0][0] >= rows:
            first, nbytes = self._batches.popleft()
            self.rows -= first
            self.nbytes -= nbytes

    def withdraw(self, rows: int) -> None:
        """The newest ``rows`` have left."""
        self.entered -= rows
        while rows > 0 and self._batches:
            last, nbytes = self._batches.pop()
            gone = min(rows, last)
            kept = nbytes * (last - gone) // last
            self.rows -= gone
            self.nbytes -= nbytes - kept
            rows -= gone
            if gone < last:
                self._batches.append((last - gone, kept))


class Pace:
    """The tuples that an iteration takes in (w in 003), apart from room that shedding has made.

    The mean of the last iterations: 003 takes the last one, but one that serves a single absent
    tuple would then look like overload. An iteration that emptied the buffer could have taken in
    more, so it never lowers the mean.
    """

    def __init__(self) -> None:
        self._taken = self._iterations = 0
        self.per_iteration: float | None = None

    def note(self, taken: int, iterations: int, emptied: bool) -> None:
        """Tuples taken in and iterations so far, and whether the buffer is empty now."""
        done, count = taken - self._taken, iterations - self._iterations
        self._taken, self._iterations = taken, iterations
        mean = self.per_iteration
        if count <= 0 or (emptied and mean is None):
            return
        last = max(0, done) / count
        if mean is None:
            self.per_iteration = last
        elif emptied:
            self.per_iteration = max(mean, last)
        else:
            self.per_iteration = mean + _WEIGHT * (last - mean)


def overload(buffered: int, newest: int, per_iteration: float | None) -> int:
    """Tuples by which the buffer exceeds twice what an iteration serves (003, algorithm 2).

    The batch that was offered last does not count: tuples come in batches, and a batch that has
    just arrived is not a backlog.

    >>> overload(1000, 100, 200.0), overload(1000, 1000, 200.0), overload(1000, 0, None)
    (500, 0, 0)
    """
    if per_iteration is None:
        return 0
    return max(0, buffered - min(newest, buffered) - int(2 * per_iteration))
