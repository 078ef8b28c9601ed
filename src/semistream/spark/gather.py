"""Fewer, larger batches: what a batch costs on its way does not depend on the rows in it.

Spark hands over 10,000 rows at a time, and a run that drains its window gives out the few rows of
each read. A run does better with more, and so does the next run, and Spark itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from semistream.master.sort import joined

ROWS = 1 << 16
_BYTES = 4 << 20
_LARGE = 4  # a batch of one in so many bytes of what may gather is not worth copying
_SHARE = 64  # a place where batches gather may hold one in so many bytes of the budget


def gather_bytes(memory: int) -> int:
    """How much may gather in one place, for a worker with this budget."""
    return min(_BYTES, memory // _SHARE)


class Gatherer:
    """Holds batches back until there are enough of them; empty ones are left out."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Take a batch; all that was held, as one, if that is enough now."""
        if batch.num_rows:
            nbytes = batch.nbytes
            if not self._held and _LARGE * nbytes > self._most:
                return batch
            self._held.append(batch)
            self._rows += batch.num_rows
            self._bytes += nbytes
        return self.rest() if self._rows >= ROWS or self._bytes > self._most else None

    def rest(self) -> pa.RecordBatch | None:
        """What is held, if anything."""
        if not self._held:
            return None
        held, self._held, self._rows, self._bytes = self._held, [], 0, 0
        return joined(held)


def gathered(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about ``most`` bytes, or ``ROWS`` rows."""
    gatherer = Gatherer(most)
    for batch in batches:
        enough = gatherer.add(batch)
        if enough is not None:
            yield enough
    rest = gatherer.rest()
    if rest is not None:
        yield rest
