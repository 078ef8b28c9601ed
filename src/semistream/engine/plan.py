"""How a budget is divided: pure functions of the join, the table's shape and the stream's.

What cannot be done without comes first (index, disk buffer, room for two output rows, one tuple):
its sum is the smallest budget that works, and an error names it. What is spare goes to larger
output batches, to the parts that were asked for, and to the window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from semistream.engine.front.choice import front_stage_size
from semistream.engine.front.contract import CacheSize
from semistream.engine.settings import DEFAULTS, Settings
from semistream.engine.shape import StreamShape, TableShape
from semistream.engine.window.hash_window import HashWindow
from semistream.engine.window.tuple_layout import WindowSize
from semistream.errors import BudgetError
from semistream.memory import format_size, parse_size

Part = float | int | str
"""A part of the budget: a fraction (float), or a size."""

_PAIR_BYTES = 32  # scratch per output row: page row, slot, and their gathers
_ROW_SCRATCH = 17  # per row of a page that is being probed: code, count, validity
_UNSEEN_TUPLE = 512  # room for a stream tuple before one has been seen
_UNSEEN_WINDOW = 1024


class Planned(Protocol):
    """What planning asks of a join."""

    @property
    def name(self) -> str: ...
    @property
    def memory(self) -> int | str: ...
    @property
    def how(self) -> str: ...
    @property
    def disk_buffer_pages(self) -> int | None: ...
    def plan(self, table: TableShape, stream: StreamShape, settings: Settings) -> MemoryPlan: ...


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes by component, and what the parts are to be allocated with."""

    budget: int
    smallest: int  # the least budget that would do
    table: int  # index and disk buffers: what depends on the table alone
    buffer_pages: int
    output: int
    output_rows: int  # that are built at once
    front: CacheSize | None = None
    front_bytes: int = 0
    cache: str = "recorder"
    window: WindowSize | None = None
    pinned_bytes: int = 0
    beside: int = 0  # parts that only one algorithm has, and that depend on the stream

    @property
    def total(self) -> int:
        window = self.window.nbytes if self.window else 0
        parts = self.table, self.output, self.front_bytes, window, self.pinned_bytes, self.beside
        return sum(parts)


def plan_memory(
    join: Planned, table: TableShape, stream: StreamShape, settings: Settings = DEFAULTS
) -> MemoryPlan:
    """Divide the join's budget; BudgetError if it is too small, naming the smallest that does."""
    return within_budget(join, lambda join: join.plan(table, stream, settings))


class TooSmallError(BudgetError):
    """A plan does not fit; with the budget that it would have needed."""

    smallest = 0


def within_budget(join: Any, plan: Callable[[Any], MemoryPlan]) -> MemoryPlan:
    """``plan(join)``; if the budget is too small, the error names the smallest that is not."""
    try:
        return plan(join)
    except TooSmallError as error:
        wanted = error.smallest
    raise refusal(join, _smallest(join, plan, parse_size(join.memory), wanted))


def _smallest(join: Any, plan: Callable[[Any], MemoryPlan], refused: int, wanted: int) -> int:
    """The smallest budget that does. What a plan needs depends on the budget: the disk buffer is a
    share of it. So what one plan would have needed must be tried with another."""

    def needed(memory: int) -> int:
        try:
            plan(replace(join, memory=memory))
        except TooSmallError as error:
            return error.smallest
        return 0

    while more := needed(wanted):
        refused, wanted = wanted, more
    middle = wanted - 1  # as a rule, it is too small
    while wanted - refused > 1:
        if needed(middle):
            refused = middle
        else:
            wanted = middle
        middle = (refused + wanted) // 2
    return wanted


def refusal(join: Planned, smallest: int) -> BudgetError:
    budget = parse_size(join.memory)
    return BudgetError(
        f"memory={format_size(budget)} ({budget} bytes) cannot hold one page and "
        f"one tuple for {join.name}; the smallest budget that can is {smallest} bytes"
    )


def output_row_bytes(join: Planned, table: TableShape, stream: StreamShape) -> int:
    """Bytes that one output row can take at most, scratch included."""
    master = table.max_row_bytes if join.how in ("inner", "left") else 0
    return stream.widest + master + _PAIR_BYTES


def output_rows(nbytes: int, row_bytes: int, most: int) -> int:
    """Output rows that are built at once: their buffers exist twice for a moment."""
    return int(max(1, min(most, nbytes // (2 * row_bytes))))


def page_scratch(table: TableShape, pages: int) -> int:
    """Codes, counts and validity of the rows of so many pages that are being probed."""
    return _ROW_SCRATCH * table.rows_per_page * pages


def buffer_pages(join: Planned, table: TableShape, share: int, most: int) -> int:
    """Pages of the disk buffer: as configured, or a share of the budget."""
    if join.disk_buffer_pages is not None:
        return int(max(1, min(join.disk_buffer_pages, table.num_pages)))
    pages = parse_size(join.memory) // share // max(1, table.max_page_bytes)
    return int(max(1, min(pages, most, table.num_pages)))


def least_window(kind: type[HashWindow], stream: StreamShape) -> int:
    """Bytes of a window for one tuple: the longest of the sample, or a guess before any came."""
    if stream.layout is None:
        return _UNSEEN_WINDOW
    return kind.least_bytes(stream.layout) + stream.longest_heap_bytes


def sized(part: Part | None, what: str) -> int:
    """Bytes of a part whose size was given: it is kept to, where a fraction gives way."""
    return 0 if part is None or isinstance(part, float) else parse_size(part, what)


class Division:
    """The first steps of every plan: the least, output, and the rest."""

    def __init__(
        self,
        join: Planned,
        table: TableShape,
        stream: StreamShape,
        settings: Settings,
        *,
        disk: int,
        least: int,
        asked: int = 0,
    ) -> None:
        self.budget = budget = parse_size(join.memory)
        self._join, self._table = join, table
        row = output_row_bytes(join, table, stream)
        seen = row + (0 if stream.layout else _UNSEEN_TUPLE)
        self.fixed = table.index_bytes + disk
        self.smallest = int(self.fixed + 2 * seen + least + asked + 64)
        self.spare = budget - self.smallest
        if self.spare < 0:
            error = TooSmallError(*refusal(join, self.smallest).args)
            error.smallest = self.smallest
            raise error
        share = max(budget // settings.output_share, min(budget // 4, settings.output_least))
        share = min(share, settings.output_most)
        self.output = max(2 * row, min(share, 2 * row + self.spare // 4))
        self.output_rows = output_rows(self.output, row, settings.slice_rows)
        self.rest = budget - self.fixed - self.output

    def part(self, part: Part, what: str) -> int:
        """Bytes of an optional part: a fraction gives way if memory is tight."""
        if isinstance(part, float):
            return int(min(part * self.budget, self.spare / 2))
        return parse_size(part, what)

    def front_stage(
        self, part: Part, cache: str, what: str = "front_stage"
    ) -> tuple[CacheSize | None, int]:
        """The front stage's size and the bytes set apart; none if no row would fit."""
        nbytes = self.part(part, what)
        table = self._table
        size = front_stage_size(cache, table.cached_types, nbytes, table.cached_heap_bytes)
        return (size, nbytes) if size.capacity and size.nbytes <= nbytes else (None, 0)


def plan_window_join(
    join: Planned,
    table: TableShape,
    stream: StreamShape,
    settings: Settings,
    *,
    window: type[HashWindow],
    pages: int,
    beside: int = 0,
    front: Part | None = None,
    cache: str = "recorder",
    pinned: Part | None = None,
    front_name: str = "front_stage",
) -> MemoryPlan:
    """The plan of the published window joins.

    ``pages`` is the disk buffer. ``beside`` are further bytes that depend on the table, such as a
    number per page; they count with the buffer, in ``MemoryPlan.table``. ``front`` and ``pinned``
    are parts of the budget, or None. The window gets all the rest.
    """
    disk = table.buffer_bytes(pages) + page_scratch(table, pages) + beside
    asked = sized(front, front_name) + sized(pinned, "pinned")
    least = least_window(window, stream)
    division = Division(join, table, stream, settings, disk=disk, least=least, asked=asked)
    rest, size, front_bytes, pinned_bytes = division.rest, None, 0, 0
    if stream.layout is not None:
        if front is not None:
            size, front_bytes = division.front_stage(front, cache, what=front_name)
        if pinned is not None:
            pinned_bytes = min(division.part(pinned, "pinned"), rest)
    rest -= front_bytes + pinned_bytes
    return MemoryPlan(
        budget=division.budget,
        smallest=division.smallest,
        table=division.fixed,
        buffer_pages=pages,
        output=division.output,
        output_rows=division.output_rows,
        front=size,
        front_bytes=front_bytes,
        cache=cache,
        window=window.size_for(stream.layout, rest, stream.heap_bytes, stream.longest_heap_bytes)
        if stream.layout
        else None,
        pinned_bytes=pinned_bytes,
    )
