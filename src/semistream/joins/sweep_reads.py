"""SweepJoin's reads: the pages of the next visits are asked for while this one is joined."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from semistream.joins.probing import Walk
from semistream.joins.rows import Slots
from semistream.joins.sweep_front import SweepFront
from semistream.master.pages import PageReader, PageSource
from semistream.master.reader import PlainReader

Fetched = tuple[list[pa.RecordBatch], Any]
"""Pages that were parsed (none, if the page map knows them) and where they lie in memory."""


@dataclass
class Visit:
    """Pages ``first`` to ``last``, and the tuples that wait for them."""

    first: int
    last: int
    slots: Slots
    chunks: Any  # of the window, that the last visit to a stretch gives back
    reader: PlainReader | None = None  # that was asked for its first pages
    found: int = 0  # pairs


class SweepReads(SweepFront):
    """The part of a run that has visits' pages read, ahead of them where the reader can do that."""

    def _attach(self, source: PageSource) -> None:
        super()._attach(source)
        self._visits: deque[Visit] = deque()  # found ahead, in the order of the sweep

    def _detach(self) -> None:
        self._walk = None
        for reader in self._readers:
            reader.close()

    def _ask(self, most: int) -> None:
        """Let the disk begin on the next visits' pages, with so many reads in flight at most."""
        if not self._ahead or (self._direct and not self._idle):
            return  # nothing to ask with
        asked = [visit.reader for visit in self._visits if visit.reader is not None]
        flying = 0
        while flying < len(asked) and asked[-1 - flying].in_flight:  # they come in their order
            flying += 1
        unasked = (visit for visit in self._visits if visit.reader is None)
        for visit in itertools.islice(unasked, max(0, most - flying)):
            if self._direct and not self._idle:
                return
            reader = self._idle.pop() if self._direct else self._reader
            assert isinstance(reader, PlainReader)
            reader.ask(visit.first, min(self._pages_at_once, visit.last - visit.first + 1))
            visit.reader = reader

    def _fetch(self, reader: PageReader, first: int, count: int) -> Fetched:
        """Read pages, and parse those that the map does not know yet."""
        if self._map is None or not isinstance(reader, PlainReader):
            return reader.read(first, count), None
        addresses = reader.load(first, count)
        return [] if self._map.knows(first, count) else reader.parse(), addresses

    def _load(self, visit: Visit, walk: Walk) -> Walk:
        """Read the visit's first pages, or wait for them. A failure can be repeated."""
        first, count = walk.next, min(self._pages_at_once, walk.last - walk.next + 1)
        reader, visit.reader = visit.reader or self._reader, None
        read = partial(self._fetch, reader, first, count)
        try:
            pages, addresses = self._note_read(first, count, read, reader, reader.bytes_read)
        except BaseException:
            self._swap(reader, reader)
            raise
        self._swap(reader, self._reader)
        self._reader = reader
        if self._map is not None and not pages:
            return self._map.walk(first, addresses)
        if self._map is not None:
            self._map.learn(first, pages, addresses)
        walk.fill(pages, self._binding)
        walk.next += count
        return walk

    def _swap(self, reader: PageReader, idle: PageReader) -> None:
        """A reader that was asked ahead has its pages; ``idle`` may be asked next."""
        if reader is not self._reader:
            self._idle.append(idle)
