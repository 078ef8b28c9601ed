"""Shared by the references: the relation, the events of a trace, and the calls of the loop.

A paper's loop never ends; a run of ours works while it is called. So each reference has the calls
of a run (``push``, ``step``, ``flush``), and each call returns what happened during it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Tuple(NamedTuple):
    """A stream tuple: a unique number, and its key."""

    number: int
    key: int | None


class Row(NamedTuple):
    """A row of the master relation R."""

    key: int
    value: int


class Relation:
    """R: pages of rows in key order."""

    def __init__(self, pages: Sequence[Sequence[Row]]) -> None:
        self.pages = [list(page) for page in pages]

    def __len__(self) -> int:
        return len(self.pages)

    def holds(self, key: int | None) -> bool:
        """What an index with an entry for every key answers."""
        return any(row.key == key for page in self.pages for row in page)

    def pages_of(self, key: int | None) -> tuple[int, int]:
        """The first and last page with rows of this key, or else the page where it would be."""
        having = [n for n, page in enumerate(self.pages) if any(row.key == key for row in page)]
        if having:
            return having[0], having[-1]
        place = max(0, bisect_right([page[0].key for page in self.pages], key) - 1)
        return place, place

    def cut_after(self, page: int) -> bool:
        """Whether the last key of this page has more rows in the next one."""
        if not 0 <= page < len(self.pages) - 1:
            return False
        return self.pages[page][-1].key == self.pages[page + 1][0].key


@dataclass(frozen=True)
class PageRead:
    page: int


@dataclass(frozen=True)
class Entered:
    """Tuples that took a slot of the window. A run has no event for it."""

    tuples: tuple[Tuple, ...]


@dataclass(frozen=True)
class IterationEnded:
    """The tuples that left during an iteration."""

    matched: tuple[Tuple, ...]
    unmatched: tuple[Tuple, ...]


@dataclass(frozen=True)
class FrontStageChanged:
    """Rows that entered and left the front stage, and how many it holds now."""

    admitted: tuple[Row, ...]
    evicted: tuple[Row, ...]
    held: int
    threshold: int


def visible(events: Iterable[Any]) -> list[tuple[Any, ...]]:
    """The part of a trace that an observer of a run sees as well."""
    seen: list[tuple[Any, ...]] = []
    for event in events:
        if isinstance(event, PageRead):
            seen.append(("read", event.page))
        elif isinstance(event, IterationEnded):
            seen.append(("iterated", len(event.matched), len(event.unmatched)))
        elif isinstance(event, FrontStageChanged):
            rows = len(event.admitted), len(event.evicted), event.held
            seen.append(("front stage", *rows, event.threshold))
    return seen


@dataclass
class Call:
    """The effects of one call of push, step or flush."""

    events: list[Any] = field(default_factory=list)
    rows: list[tuple[int, int | None]] = field(default_factory=list)  # tuple number, row's value
    hits: int = 0  # tuples that the front stage served
    waiting: int = 0  # tuples that wait when the call is over

    def pages(self) -> list[int]:
        return [event.page for event in self.events if isinstance(event, PageRead)]


class Stuck(Exception):  # noqa: N818 (a state of the paper's loop, not a mistake of the caller)
    """The loop, read literally, would repeat the same iteration forever."""


class Loop(ABC):
    """The endless loop of a paper, one iteration at a time."""

    def __init__(self, relation: Relation) -> None:
        self.relation = relation
        self.stream_buffer: deque[Tuple] = deque()
        self.left: list[list[Tuple]] = [[], []]  # in this iteration: matched, unmatched
        self.call = Call()

    # -- the calls -------------------------------------------------------------------------

    def push(self, tuples: Sequence[Tuple]) -> Call:
        """Tuples arrive: iterate while some of them find no room."""
        return self._record(lambda: self._arrive(tuples))

    def step(self) -> Call:
        """One iteration without new input."""
        return self._record(lambda: self._iterate_if(self.waiting()))

    def flush(self) -> Call:
        """Iterate until nothing waits."""
        return self._record(self._drain)

    def _record(self, work: Callable[[], None]) -> Call:
        self.call = Call()
        work()
        self.call.waiting = self.waiting() + len(self.stream_buffer)
        return self.call

    def _arrive(self, tuples: Sequence[Tuple]) -> None:
        self.stream_buffer.extend(tuples)
        self.arrived(tuples)
        self.take_in()
        while self.stream_buffer and self.may_iterate():
            self.iterate()
            self.take_in()

    def _iterate_if(self, anything: int) -> None:
        if anything:
            self.iterate()

    def _drain(self) -> None:
        while self.waiting():
            self.iterate()

    # -- what an algorithm fills in ----------------------------------------------------------

    def arrived(self, tuples: Sequence[Tuple]) -> None:  # noqa: B027 (most need not know)
        """A batch has come into the stream buffer and nothing of it has been taken in."""

    def may_iterate(self) -> bool:
        """Whether the loop goes on although the stream buffer was not taken in whole."""
        return True

    @abstractmethod
    def take_in(self) -> None:
        """Move tuples from the stream buffer to where they wait, as many as there is room for."""

    @abstractmethod
    def iterate(self) -> None:
        """One iteration of the loop."""

    @abstractmethod
    def waiting(self) -> int:
        """Tuples in the window."""

    # -- what happens during an iteration ----------------------------------------------------

    def read(self, page: int) -> list[Row]:
        self.call.events.append(PageRead(page))
        return self.relation.pages[page]

    def output(self, tuple_: Tuple, row: Row) -> None:
        self.call.rows.append((tuple_.number, row.value))

    def leave_matched(self, tuples: Iterable[Tuple]) -> None:
        self.left[0] += tuples

    def leave_unmatched(self, tuples: Iterable[Tuple]) -> None:
        """These tuples match nothing: they leave, and a left join returns them as they are."""
        for tuple_ in tuples:
            self.call.rows.append((tuple_.number, None))
            self.left[1].append(tuple_)

    def leave_without_key(self, tuple_: Tuple) -> None:
        """A null key matches nothing. The tuple leaves before it would enter the window."""
        self.call.rows.append((tuple_.number, None))

    def end_iteration(self) -> None:
        matched, unmatched = map(tuple, self.left)
        self.call.events.append(IterationEnded(matched, unmatched))
        self.left = [[], []]
