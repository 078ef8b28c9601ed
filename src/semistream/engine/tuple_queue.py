"""Tuples that wait to become a portion of an ordered run, each with its table version."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from semistream.master.merge import joined


@dataclass
class _Queued:
    batch: pa.RecordBatch
    version: int
    is_copy: bool = False


class TupleQueue:
    """A queue of batches; ``tuples`` and ``nbytes`` are those of all of them."""

    def __init__(self) -> None:
        self._batches: deque[_Queued] = deque()
        self.tuples = 0
        self.nbytes = 0

    def __bool__(self) -> bool:
        return bool(self._batches)

    def push(self, batch: pa.RecordBatch, version: int) -> None:
        if batch.num_rows:
            self._batches.append(_Queued(batch, version))
            self._count(batch, 1)

    def put_back(self, batch: pa.RecordBatch, version: int) -> None:
        """Tuples that were taken and come again, before all others."""
        self._batches.appendleft(_Queued(batch, version))
        self._count(batch, 1)

    def take(self, most: int) -> tuple[pa.RecordBatch, int]:
        """Up to ``most`` of the oldest tuples, all of one version, and this version."""
        parts: list[pa.RecordBatch] = []
        version = self._batches[0].version
        while self._batches and most and self._batches[0].version == version:
            first = self._batches.popleft()
            self._count(first.batch, -1)
            batch = first.batch
            if batch.num_rows > most:
                self._batches.appendleft(_Queued(batch.slice(most), version))
                self._count(batch.slice(most), 1)
                batch = batch.slice(0, most)
            most -= batch.num_rows
            parts.append(batch)
        return joined(parts), version

    def redirect(self, old: int, new: int) -> None:
        """Join tuples that were queued for version ``old`` with version ``new`` instead."""
        for queued in self._batches:
            if queued.version == old:
                queued.version = new

    def keep_copies(self) -> None:
        """Tuples that stay from one call to the next: a slice would keep all of its batch in
        memory, and a batch is the caller's."""
        for queued in self._batches:
            if not queued.is_copy:
                self._count(queued.batch, -1)
                queued.batch = queued.batch.take(pa.array(np.arange(queued.batch.num_rows)))
                queued.is_copy = True
                self._count(queued.batch, 1)

    def clear(self) -> None:
        self._batches.clear()
        self.tuples = self.nbytes = 0

    def _count(self, batch: pa.RecordBatch, sign: int) -> None:
        self.tuples += sign * batch.num_rows
        self.nbytes += sign * batch.nbytes
