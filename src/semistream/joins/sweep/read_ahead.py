"""SweepJoin's page access: prefetches the pages of the next visits while this one is joined."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.engine.context import Context
from semistream.engine.disk_buffer import count_read
from semistream.engine.page_rows import Openers
from semistream.engine.rows.page_columns import PageColumns
from semistream.engine.rows.page_opener import LoadedPages
from semistream.joins.sweep.plan import SweepPlan
from semistream.joins.sweep.stretch_window import NEVER
from semistream.joins.sweep.visit import Visit
from semistream.joins.sweep.visit_copies import VisitCopies
from semistream.keys import Codes
from semistream.master.pages import PageSource


class ReadAhead:
    """The readers, each with a buffer for one visit, and what is opened of their pages."""

    def __init__(self, context: Context, source: PageSource, plan: SweepPlan) -> None:
        self._context = context
        self.pages = plan.resident_pages or plan.buffer_pages
        self.ahead = plan.reads_ahead
        reader: Any = source.reader(self.pages, context.direct)
        self._visit_bytes = plan.buffer_pages * source.max_page_bytes
        self._visit_size = plan.visit_pages, plan.dense_pages, plan.gap_pages
        self._reader = reader
        self._idle: list[Any] = []
        if self.ahead and context.direct:  # a buffer per direct read; others use the page cache
            self._idle.extend(reader.more_readers(self.ahead))
        self._readers = [self._reader, *self._idle]
        self._can_address = source.can_address
        binding = context.binding
        self._names = binding.master_columns
        self._keys = binding.compared_keys
        self._conditions, self._further = binding.condition_columns, binding.further_columns
        self._has_conditions = bool(binding.conditions)
        self._copies: VisitCopies | None = None
        if source.can_address:
            openers = Openers(source)
            self._columns, self._key_columns = openers(self._names), openers(self._keys)
            self._condition_columns = openers(self._conditions)
            self._further_columns = openers(self._further)
            if plan.copied_rows:
                self._copies = VisitCopies(context, openers, reader, source, plan)

    @property
    def nbytes(self) -> int:
        copies = 0 if self._copies is None else self._copies.nbytes
        return int(sum(reader.nbytes for reader in self._readers)) + copies

    @property
    def buffer_bytes(self) -> int:
        """Maximum bytes of one request, or of the pages of a stretch if none is copied."""
        return int(self._reader.nbytes) or self._visit_bytes

    def close(self) -> None:
        for reader in self._readers:
            reader.close()

    def plan(self, visits: Sequence[Visit]) -> None:
        """Plan the read of the visit that is requested next, while the disk is busy."""
        if self.ahead and not self._copies_rows:
            for visit in visits:
                if visit.reader is None and len(visit.pages):
                    visit.read = visit.read or self._reader.plan(visit.pages)
                    return

    def request(self, visits: Sequence[Visit], most: int) -> None:
        """Prefetch the next visits' pages, with at most ``most`` reads in flight."""
        direct = self._context.direct
        if not visits or not self.ahead or self._copies_rows or (direct and not self._idle):
            return  # nothing is read ahead, or no buffer to request into
        requested = [visit.reader for visit in visits if visit.reader is not None]
        in_flight = 0
        while (
            in_flight < len(requested) and requested[-1 - in_flight].in_flight
        ):  # from the newest back
            in_flight += 1
        others = (visit for visit in visits if visit.reader is None and len(visit.pages))
        for visit in itertools.islice(others, max(0, most - in_flight)):
            if direct and not self._idle:
                return
            reader = self._idle.pop() if direct else self._reader
            visit.read = visit.read or reader.plan(visit.pages)
            reader.prefetch(visit.read)
            visit.reader = reader

    @property
    def _copies_rows(self) -> bool:
        """Whether the next visits are likely to."""
        return self._copies is not None and self._copies.are_preferred

    @property
    def visit_size(self) -> tuple[int, int, int]:
        """Pages of a visit to several stretches, of a stretch that is visited alone, and unneeded
        ones to read between two needed ones."""
        if self._copies is not None and self._copies.are_preferred:
            return self._copies.visit_pages, NEVER, 0
        return self._visit_size

    def visited(self, visit: Visit, seconds: float) -> None:
        """A visit took so long."""
        if self._copies is not None:
            self._copies.visited(visit, seconds)

    def load(
        self,
        visit: Visit,
        following: Sequence[Visit] = (),
        most: int = 0,
        codes: Codes | None = None,
    ) -> LoadedPages:
        """Read the visit's next pages, or wait for their prefetch; then request those of the
        ``following`` visits, before these are opened: completions of queued reads arrive together,
        so the disk is idle now. Can be retried if it fails.

        With the ``codes`` of the window's slots, the rows that tuples need may be copied instead.
        """
        if self._copies is not None and codes is not None and (visit.copied or not visit.done):
            copied = self._copies.load(visit, codes)
            if copied is not None:
                return copied
        if visit.copied:
            visit.unread()  # a read that was planned before is one of all pages
        reader, visit.reader = visit.reader or self._reader, None
        read, visit.read = visit.read, None
        if self._can_address:
            read = read or reader.plan(visit.pages[visit.done :])
            pages = read.pages
        else:
            pages = visit.pages[visit.done : visit.done + 1]
        try:
            found = count_read(
                self._context, reader, int(pages[0]), len(pages), reader.bytes_read,
                lambda: reader.load(read) if self._can_address else reader.read(int(pages[0])),
            )  # fmt: skip
        except BaseException:
            self._release(reader, reader)
            raise
        self._release(reader, self._reader)
        self._reader = reader
        self.request(following, most)
        loaded = self._opened(pages, found, read)
        if visit.copied:
            loaded.first_tuple = visit.copied
        visit.done += len(pages)
        return loaded

    def _opened(self, pages: Any, found: Any, read: Any) -> LoadedPages:
        """Pages in memory: by their addresses, or one as a record batch."""
        if not self._can_address:
            return self._sorted_by_code(pages, *found)
        addresses = found
        loaded = self._columns.open(pages, addresses, read.sizes)
        if self._keys:
            loaded.keys = self._key_columns.open(pages, addresses, read.sizes).columns
        if self._has_conditions:
            opened = (
                opener.open(pages, addresses, read.sizes).columns
                for opener in (self._condition_columns, self._further_columns)
            )
            loaded.conditions, loaded.further = opened
        return loaded

    def _sorted_by_code(self, pages: Any, batch: pa.RecordBatch) -> LoadedPages:
        """A page of a source that has its own order and no codes."""
        codes, _ = self._context.binding.master_codes(batch)
        order = np.argsort(codes, kind="stable")
        batch, codes = batch.take(pa.array(order)), codes[order]
        columns, keys, conditions, further = (
            self._put([batch.column(name) for name in names])
            for names in (self._names, self._keys, self._conditions, self._further)
        )
        address = np.array([codes.ctypes.data], np.int64)
        sizes = np.array([len(codes)], np.int64)
        return LoadedPages(
            pages, address, sizes, columns, keys, conditions, further, (batch, codes)
        )

    @staticmethod
    def _put(columns: list[pa.Array]) -> PageColumns:
        found = PageColumns([column.type for column in columns], 1)
        found.put(0, columns)
        return found

    def _release(self, reader: Any, idle: Any) -> None:
        """Where reads ahead have buffers of their own: make ``idle`` available for the next one.

        After a load this is the reader before, as ``reader`` holds the pages that are being joined;
        after a failure it is ``reader`` itself.
        """
        if reader is not self._reader:
            self._idle.append(idle)
