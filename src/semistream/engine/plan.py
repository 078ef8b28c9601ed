"""Memory planning: pure functions of the join, the table's shape and the stream's shape.

The required parts come first (index, disk buffer, two output rows, one tuple): their sum is the
smallest budget that works, which errors include. Spare memory goes to larger output batches, to
the configured optional parts, and to the window.
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
_CONDITION_BYTES = 40  # the same, to evaluate conditions: places and rows in 64 bits, and a mask
_ROW_SCRATCH = 17  # per row of a page that is being probed: code, count, validity
_BAND_SCRATCH = 64  # the same, without a key: bounds of the row, and where its candidates are
_UNSEEN_TUPLE = 512  # assumed bytes of a stream tuple before the first batch
_UNSEEN_WINDOW = 1024


class Planned(Protocol):
    """The part of a join that planning uses."""

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
    """Bytes by component, and the sizes to allocate the parts with."""

    budget: int
    smallest: int  # smallest budget that works
    table: int  # index and disk buffers: what depends on the table alone
    buffer_pages: int
    output: int
    output_rows: int  # built at once
    front: CacheSize | None = None
    front_bytes: int = 0
    cache: str = "recorder"
    window: WindowSize | None = None
    pinned_bytes: int = 0
    extra_bytes: int = 0  # parts that only one algorithm has, and that depend on the stream

    @property
    def total(self) -> int:
        window = self.window.nbytes if self.window else 0
        parts = (
            self.table,
            self.output,
            self.front_bytes,
            window,
            self.pinned_bytes,
            self.extra_bytes,
        )
        return sum(parts)

    def components(self, index_bytes: int) -> dict[str, int]:
        """Bytes under the names of ``run.memory``; of pending output, the most that it may take."""
        return {
            "window": (self.window.nbytes if self.window else 0) + self.extra_bytes,
            "front stage": self.front_bytes,
            "disk buffer": self.table - index_bytes,
            "pending output": self.output,
            "page index": index_bytes,
            **({"pinned pages": self.pinned_bytes} if self.pinned_bytes else {}),
        }


def plan_memory(
    join: Planned, table: TableShape, stream: StreamShape, settings: Settings = DEFAULTS
) -> MemoryPlan:
    """Divide the join's budget; raises BudgetError with the smallest budget that works."""
    return within_budget(join, lambda join: join.plan(table, stream, settings))


class TooSmallError(BudgetError):
    """The plan does not fit; ``smallest`` is the budget that it needs."""

    smallest = 0
    has_deltas = False


def within_budget(join: Any, plan: Callable[[Any], MemoryPlan]) -> MemoryPlan:
    """``plan(join)``; raises BudgetError with the smallest budget that works."""
    try:
        return plan(join)
    except TooSmallError as error:
        wanted, has_deltas = error.smallest, error.has_deltas
    smallest = _smallest(join, plan, parse_size(join.memory), wanted)
    raise budget_error(join, smallest, has_deltas)


def _smallest(join: Any, plan: Callable[[Any], MemoryPlan], too_small: int, wanted: int) -> int:
    """The smallest budget that works, by binary search: what a plan needs depends on the budget
    itself, since the disk buffer is a share of it."""

    def needed(memory: int) -> int:
        try:
            plan(replace(join, memory=memory))
        except TooSmallError as error:
            return error.smallest
        return 0

    while more := needed(wanted):
        too_small, wanted = wanted, more
    middle = wanted - 1  # usually too small, which ends the search
    while wanted - too_small > 1:
        if needed(middle):
            too_small = middle
        else:
            wanted = middle
        middle = (too_small + wanted) // 2
    return wanted


def budget_error(join: Planned, smallest: int, has_deltas: bool = False) -> BudgetError:
    budget = parse_size(join.memory)
    hint = ". The table has deltas, whose changed codes are kept in memory: compact() frees it"
    return BudgetError(
        f"memory={format_size(budget)} ({budget} bytes) cannot hold one page and "
        f"one tuple for {join.name}; the smallest budget that can is {smallest} bytes"
        f"{hint if has_deltas else ''}"
    )


def output_row_bytes(join: Planned, table: TableShape, stream: StreamShape) -> int:
    """Maximum bytes of one output row, including scratch."""
    master = table.max_row_bytes if join.how in ("inner", "left") or table.has_conditions else 0
    scratch = _PAIR_BYTES + (_CONDITION_BYTES if table.has_conditions else 0)
    return stream.widest + master + scratch


def output_rows(nbytes: int, row_bytes: int, most: int) -> int:
    """Output rows to build at once; their buffers briefly exist twice."""
    return int(max(1, min(most, nbytes // (2 * row_bytes))))


def page_scratch(table: TableShape, pages: int) -> int:
    """Bytes of the codes, counts and validity of the rows of ``pages`` probed pages, and of the
    addresses of their columns."""
    row = _ROW_SCRATCH + (0 if table.has_key else _BAND_SCRATCH)
    return (row * table.rows_per_page + table.address_bytes) * pages


def buffer_pages(join: Planned, table: TableShape, share: int, most_bytes: int) -> int:
    """Pages of the disk buffer: as configured, or a share of the budget."""
    if join.disk_buffer_pages is not None:
        return int(max(1, min(join.disk_buffer_pages, table.num_pages)))
    nbytes = min(parse_size(join.memory) // share, most_bytes)
    return int(max(1, min(nbytes // max(1, table.max_page_bytes), table.num_pages)))


def least_window(kind: type[HashWindow], stream: StreamShape) -> int:
    """Bytes of a window for one tuple: the widest seen, or a guess before the first batch."""
    if stream.layout is None:
        return _UNSEEN_WINDOW
    return kind.least_bytes(stream.layout) + stream.longest_heap_bytes


def fixed_bytes(part: Part | None, what: str) -> int:
    """Bytes of a part configured as a size; 0 for a fraction, which shrinks if necessary."""
    return 0 if part is None or isinstance(part, float) else parse_size(part, what)


class Division:
    """The common first steps of a plan: required memory, output, and the rest."""

    def __init__(
        self,
        join: Planned,
        table: TableShape,
        stream: StreamShape,
        settings: Settings,
        *,
        disk: int,
        least: int,
        reserved: int = 0,
    ) -> None:
        self.budget = budget = parse_size(join.memory)
        self._join, self._table, self._least = join, table, least + reserved
        row = output_row_bytes(join, table, stream)
        seen = row + (0 if stream.layout else _UNSEEN_TUPLE)
        self.fixed = table.index_bytes + disk
        self.smallest = int(self.fixed + 2 * seen + least + reserved + 64)
        self.spare = budget - self.smallest
        if self.spare < 0:
            error = TooSmallError(*budget_error(join, self.smallest).args)
            error.smallest = self.smallest
            error.has_deltas = len(table.boundaries) > 0
            raise error
        share = max(budget // settings.output_share, min(budget // 4, settings.output_least))
        share = min(share, settings.output_most)
        self.output = max(2 * row, min(share, 2 * row + self.spare // 4))
        self.output_rows = output_rows(self.output, row, settings.slice_rows)
        self.rest = budget - self.fixed - self.output

    def part(self, part: Part, what: str, others: int = 0) -> int:
        """Bytes of an optional part; a fraction shrinks if memory is tight: to half of what is
        spare, or to the same fraction of what output and ``others`` leave."""
        if isinstance(part, float):
            fit = max(self.spare / 2, part * (self.rest - self._least - others))
            return int(min(part * self.budget, fit))
        return parse_size(part, what)

    def front_stage(
        self, part: Part, cache: str, what: str = "front_stage", others: int = 0
    ) -> tuple[CacheSize | None, int]:
        """The front stage's size and its bytes; (None, 0) if no row fits."""
        nbytes = self.part(part, what, others)
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
    extra_bytes: int = 0,
    front: Part | None = None,
    cache: str = "recorder",
    pinned: Part | None = None,
    front_name: str = "front_stage",
) -> MemoryPlan:
    """The plan of the published window joins.

    ``pages`` is the disk buffer. ``extra_bytes`` are further bytes that depend on the table, such
    as a number per page; they count with the buffer, in ``MemoryPlan.table``. ``front`` and
    ``pinned`` are parts of the budget, or None. The window gets the rest.
    """
    disk = table.buffer_bytes(pages) + page_scratch(table, pages) + extra_bytes
    reserved = fixed_bytes(front, front_name) + fixed_bytes(pinned, "pinned")
    least = least_window(window, stream)
    division = Division(join, table, stream, settings, disk=disk, least=least, reserved=reserved)
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
