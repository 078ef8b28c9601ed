"""Coalesce small batches: the overhead per batch does not depend on its number of rows.

Spark passes 10,000 rows at a time, and a run that drains its window returns only the few rows of
each read. Runs and Spark itself are faster with larger batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from semistream.master.merge import joined

ROWS = 1 << 16
_BYTES = 4 << 20
_LARGE = 4  # batches above limit // 4 bytes are passed on without a copy
_SHARE = 64  # each coalescer may hold budget // 64 bytes


def coalesce_bytes(memory: int) -> int:
    """The bytes that one coalescer may hold, for a worker with this budget."""
    return min(_BYTES, memory // _SHARE)


class Coalescer:
    """Buffers batches until they are large enough; drops empty ones."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Buffer a batch. Returns all buffered rows as one batch if they are enough, else None."""
        if batch.num_rows:
            nbytes = batch.nbytes
            if not self._held and _LARGE * nbytes > self._most:
                return batch
            self._held.append(batch)
            self._rows += batch.num_rows
            self._bytes += nbytes
        return self.rest() if self._rows >= ROWS or self._bytes > self._most else None

    def rest(self) -> pa.RecordBatch | None:
        """The buffered rows as one batch; None if there are none."""
        if not self._held:
            return None
        held, self._held, self._rows, self._bytes = self._held, [], 0, 0
        return joined(held)


def coalesce(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about ``most`` bytes, or ``ROWS`` rows."""
    coalescer = Coalescer(most)
    for batch in batches:
        enough = coalescer.add(batch)
        if enough is not None:
            yield enough
    rest = coalescer.rest()
    if rest is not None:
        yield rest
