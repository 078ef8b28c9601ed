"""SweepJoin's page access: prefetches the pages of the next visits while this one is joined."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from semistream.engine.context import Context
from semistream.engine.disk_buffer import Scan, count_read
from semistream.engine.rows.layout import Slots
from semistream.engine.shape import TableShape
from semistream.joins.sweep.page_map import MappedScan, PageMap
from semistream.joins.sweep.plan import SweepPlan
from semistream.master.pages import PageSource

Fetched = tuple[list[pa.RecordBatch], Any]
"""Parsed pages (none if the page map knows them) and their addresses."""


@dataclass
class Visit:
    """Pages ``first`` to ``last``, and the tuples that wait for them."""

    first: int
    last: int
    slots: Slots
    chunks: Any  # of the window: the last visit to a stretch gives them back, the others have none
    reader: Any = None  # that its first pages were requested from; None: not requested yet
    found: int = 0  # pairs

    @property
    def ends_stretch(self) -> bool:
        return len(self.chunks) > 0


class ReadAhead:
    """The readers, each for one stretch, and the map of pages that were parsed before."""

    def __init__(
        self, context: Context, source: PageSource, table: TableShape, plan: SweepPlan
    ) -> None:
        self._context = context
        self.pages = plan.buffer_pages
        self.ahead = plan.reads_ahead
        reader: Any = source.reader(plan.buffer_pages, context.direct)
        self._reader = reader
        self._idle: list[Any] = []
        if self.ahead and context.direct:  # a buffer per direct read; others use the page cache
            self._idle.extend(reader.more_readers(self.ahead))
        self._readers = [self._reader, *self._idle]
        self._map: PageMap | None = None
        if plan.page_map:
            binding = context.binding
            self._map = PageMap(source, binding.master_key[0], binding.master_columns)
        self._map_bytes = (
            PageMap.bytes_for(table.num_pages, len(table.output_types)) if self._map else 0
        )

    @property
    def nbytes(self) -> int:
        return int(sum(reader.nbytes for reader in self._readers)) + self._map_bytes

    @property
    def buffer_bytes(self) -> int:
        """Maximum bytes of one request."""
        return int(self._reader.nbytes)

    def close(self) -> None:
        for reader in self._readers:
            reader.close()

    def request(self, visits: Sequence[Visit], most: int) -> None:
        """Prefetch the next visits' pages, with at most ``most`` reads in flight."""
        direct = self._context.direct
        if not self.ahead or (direct and not self._idle):
            return  # no buffer to request into
        requested = [visit.reader for visit in visits if visit.reader is not None]
        in_flight = 0
        while (
            in_flight < len(requested) and requested[-1 - in_flight].in_flight
        ):  # from the newest back
            in_flight += 1
        others = (visit for visit in visits if visit.reader is None)
        for visit in itertools.islice(others, max(0, most - in_flight)):
            if direct and not self._idle:
                return
            reader = self._idle.pop() if direct else self._reader
            reader.prefetch(visit.first, min(self.pages, visit.last - visit.first + 1))
            visit.reader = reader

    def load(self, visit: Visit) -> Scan | MappedScan:
        """Read the visit's first pages, or wait for their prefetch. Can be retried if it fails."""
        first, count = visit.first, min(self.pages, visit.last - visit.first + 1)
        reader, visit.reader = visit.reader or self._reader, None
        read = partial(self._fetch, reader, first, count)
        try:
            pages, addresses = count_read(
                self._context, reader, first, count, reader.bytes_read, read
            )
        except BaseException:
            self._release(reader, reader)
            raise
        self._release(reader, self._reader)
        self._reader = reader
        if self._map is not None:
            if not pages:
                return self._map.scan(first, addresses)
            self._map.learn(first, pages, addresses)
        scan = Scan(visit.first, visit.last)
        scan.fill(pages, self._context.binding)
        scan.next += count
        return scan

    def fill(self, scan: Scan) -> None:
        """Read the next pages: a single key may span more pages than the buffer holds."""
        reader, first = self._reader, scan.next
        count = min(self.pages, scan.last - first + 1)
        pages = count_read(
            self._context,
            reader,
            first,
            count,
            reader.bytes_read,
            partial(reader.read, first, count),
        )
        scan.fill(pages, self._context.binding)
        scan.first = first
        scan.next += count

    def _fetch(self, reader: Any, first: int, count: int) -> Fetched:
        """Read pages, and parse them unless the map knows them."""
        if self._map is None:
            return reader.read(first, count), None
        addresses = reader.load(first, count)
        return [] if self._map.knows(first, count) else reader.parse(), addresses

    def _release(self, reader: Any, idle: Any) -> None:
        """Where reads ahead have buffers of their own: make ``idle`` available for the next one.

        After a load this is the reader before, as ``reader`` holds the pages that are being joined;
        after a failure it is ``reader`` itself.
        """
        if reader is not self._reader:
            self._idle.append(idle)
