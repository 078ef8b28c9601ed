"""Shed tuples on their way to the store: in memory until they make a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from semistream.overload.shed_store import ShedStore, StoreFullError


@dataclass
class OverloadStats:
    """Counters of load shedding since the run was opened."""

    shed: int = 0  # tuples written to the store
    upfront: int = 0  # of these, the ones that found the buffer full
    returned: int = 0
    dropped: int = 0
    recovered: int = 0  # tuples that the store had when the run was opened
    overloads: int = 0  # iterations that began overloaded
    peak_buffer: int = 0  # bytes


class Outbox:
    """Batches of tuples in the order in which they were shed.

    ``stored``: what the store keeps of a batch. ``drops``: what a full store does not accept is
    dropped and counted, instead of an error. Until they are written, tuples count as waiting.
    """

    def __init__(
        self,
        store: ShedStore | None,
        stored: Callable[[pa.RecordBatch], pa.RecordBatch],
        drops: bool,
        counters: OverloadStats,
    ) -> None:
        self._store, self._stored, self._drops, self._counters = store, stored, drops, counters
        self._batches: list[pa.RecordBatch] = []
        self.rows = self.nbytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self._batches)

    def add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self.rows += batch.num_rows
        self.nbytes += batch.nbytes

    def write(self) -> int:
        """Write everything to one file; returns the number of tuples. If it raises, all of them
        are still here."""
        rows = self.rows
        if rows:
            self.write_through(self._batches)
            self._batches, self.rows, self.nbytes = [], 0, 0
        return rows

    def write_through(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Write batches that need not wait for others."""
        assert self._store is not None
        rows = sum(batch.num_rows for batch in batches)
        try:
            self._store.append([self._stored(batch) for batch in batches])
        except StoreFullError:
            if not self._drops:
                raise
            self._counters.dropped += rows
        else:
            self._counters.shed += rows

    def return_to(self, requeue: Callable[[pa.RecordBatch], None]) -> None:
        """Tuples that were about to be shed are taken in again."""
        while self._batches:
            batch = self._batches[0]
            requeue(self._stored(batch))
            del self._batches[0]
            self.rows -= batch.num_rows
            self.nbytes -= batch.nbytes


def compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A copy, if the batch is a small part of a larger allocation that it would keep alive."""
    if batch.get_total_buffer_size() <= 2 * batch.nbytes + 4096:
        return batch
    return pa.concat_batches([batch.slice(0, 0), batch])
