"""How SweepJoin divides its budget."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Any

from semistream.engine.front.absent_keys import AbsentKeys
from semistream.engine.plan import (
    Division,
    MemoryPlan,
    Part,
    Planned,
    TooSmallError,
    buffer_pages,
    fixed_bytes,
    within_budget,
)
from semistream.engine.rows.column_nodes import ColumnNodes
from semistream.engine.rows.copied_rows import bytes_of
from semistream.engine.settings import Settings
from semistream.engine.shape import StreamShape, TableShape
from semistream.joins.sweep.stretch_window import NEVER, StretchWindow, StretchWindowSize
from semistream.joins.sweep.stretches import first_pages, stretches_bytes
from semistream.master.local_file import ALIGNMENT
from semistream.master.page_buffer import HUGE
from semistream.master.scattered_pages import LEAST_MAPPED
from semistream.memory import parse_size

_UNSEEN_WINDOW = 1024
_KEPT_SIZE = 1.125  # a front stage may be this much larger than its part before it is made smaller
_INDEX_BYTES = 22  # of a page in the index; the rest is for changes
_PAGE_SCRATCH = 128  # per page of a visit: its number and extent
_LEAST_ROOM = 4096  # bytes for copied rows: with less, a budget is better used otherwise
_LEAST_COPIED = 8  # rows at a time: fewer are not worth a call
_COPIED_SCRATCH = 16  # per page of a visit whose rows are copied: its number
_LEAST_GROWTH = 4096  # bytes, for some 200 changed keys: fewer are not worth a part of the budget


@dataclass(frozen=True)
class SweepPlan(MemoryPlan):
    """Adds the reads; ``extra_bytes`` is for gathered rows, offered rows and the cache of absent
    keys."""

    window: StretchWindowSize | None = None
    reads_ahead: int = 0
    visit_pages: int = 1  # of a visit to several stretches
    resident_pages: int = 0  # of a visit, if none is copied
    copied_rows: int = 0  # at a time, out of scattered pages; 0: all pages are kept
    copied_pages: int = 0  # of a visit whose rows are copied
    mapped_bytes: int = 0  # meanwhile; 0: pages are not mapped
    dense_pages: int = NEVER  # of a stretch that is visited alone
    gap_pages: int = 0  # unneeded pages read to coalesce two requests into one
    widest_row: int = 0  # of the master, for which gathering has room
    offers: int = 0
    absent_bytes: int = 0
    growth: int = 0  # of ``table``: for an index that grows with every change of the table

    def components(self, index_bytes: int) -> dict[str, int]:
        offered = self.offers * self.widest_row + self.absent_bytes
        gathered = max(0, self.extra_bytes - offered)
        found = super().components(index_bytes)
        found["window"] -= self.extra_bytes
        found["disk buffer"] -= self.growth
        found["page index"] += self.growth
        found["front stage"] += self.extra_bytes - gathered
        found["pending output"] += gathered
        return found


def plan_sweep(
    join: Planned,
    table: TableShape,
    stream: StreamShape,
    settings: Settings,
    front: Part,
    cache: str,
) -> SweepPlan:
    """With room for an index that grows, if the budget allows it, so that the window need not give
    way at every change; with little if the table has not changed before."""
    if not table.by_code:
        return _divided(join, table, stream, settings, front, cache)
    budget = parse_size(join.memory)
    growth = budget // settings.first_growth_share
    if growth < _LEAST_GROWTH:
        growth = 0
    if table.boundaries:
        # As much again as changes have taken so far: then memory is divided ever more rarely.
        changed = table.index_bytes - _INDEX_BYTES * table.num_pages
        growth = max(budget // settings.index_growth_share, min(changed, budget // 10))
    grown = replace(table, index_bytes=table.index_bytes + growth)
    try:
        return replace(_divided(join, grown, stream, settings, front, cache), growth=growth)
    except TooSmallError:
        return _divided(join, table, stream, settings, front, cache)


def _divided(
    join: Planned,
    table: TableShape,
    stream: StreamShape,
    settings: Settings,
    front: Part,
    cache: str,
) -> SweepPlan:
    budget = parse_size(join.memory)
    share, most = settings.stretch_share, settings.stretch_bytes
    if table.mapped:  # mapped pages need no buffer
        share, most = settings.mapped_stretch_share, settings.mapped_stretch_bytes
    largest = max(1, table.max_page_bytes)
    pages = buffer_pages(join, table, share, most)
    ahead = _reads_ahead(table, budget, table.buffer_bytes(pages), settings)
    readers = 1 + (ahead if table.direct else 0)
    if table.direct and join.disk_buffer_pages is None:
        pages = _in_huge_pages(table, pages, readers, budget // settings.read_ahead_share)
    reader = table.buffer_bytes(pages)
    stretches = len(first_pages(table.continues, pages, table.boundaries)) - 1
    visit_pages = max(1, reader // (largest + (2 * ALIGNMENT if table.direct else 0)))
    resident = 0
    if table.resident:
        fit = budget // settings.resident_visit_share // visit_scratch(table, 1)
        resident = visit_pages = min(max(pages, fit), max(1, table.num_pages))
    copied, copied_bytes, mapped = _copies(table, budget, settings)
    copied_pages = min(settings.copied_pages, copied)
    disk = readers * reader + visit_scratch(table, resident or pages) + stretches_bytes(stretches)
    if copied:  # what is mapped and what is read are never resident together
        disk += max(0, mapped - reader) + copied_bytes + _COPIED_SCRATCH * copied_pages
    least = 2 * table.max_row_bytes + (
        _UNSEEN_WINDOW
        if stream.layout is None
        else StretchWindow.least_bytes(stream.layout) + stream.longest_heap_bytes
    )
    reserved = fixed_bytes(front, "front_stage")
    division = Division(join, table, stream, settings, disk=disk, least=least, reserved=reserved)
    plan = SweepPlan(
        budget=division.budget,
        smallest=division.smallest,
        table=division.fixed,
        buffer_pages=pages,
        output=division.output,
        output_rows=division.output_rows,
        cache=cache,
        reads_ahead=ahead,
        visit_pages=visit_pages,
        resident_pages=resident,
        copied_rows=copied,
        copied_pages=copied_pages,
        mapped_bytes=mapped,
        # Only making a map is cheaper for all pages of a stretch than for some of them.
        dense_pages=settings.mapped_visit_pages if table.mapped and not table.resident else NEVER,
        gap_pages=(settings.gap_bytes if table.direct else settings.cached_gap_bytes) // largest,
        widest_row=table.max_row_bytes,
    )
    if stream.layout is None:
        return plan
    gathered = division.output_rows * table.max_row_bytes
    size, front_bytes = division.front_stage(front, cache, others=gathered)
    rest = division.rest - front_bytes - gathered
    spare = max(0, rest - least)
    offers = 1 + spare // 16 // max(1, table.max_row_bytes)
    cached = size.capacity if size is not None else 0
    offers = min(division.output_rows, settings.offers, offers, 1 + cached // settings.offers_share)
    absent = AbsentKeys.bytes_of(spare // settings.absent_share) if table.by_code else 0
    offered = offers * table.max_row_bytes
    window = StretchWindow.size_for(
        stream.layout,
        rest - offered - absent,
        stream.heap_bytes,
        stream.longest_heap_bytes,
        stretches,
    )
    return replace(
        plan,
        front=size,
        front_bytes=front_bytes,
        window=window,
        extra_bytes=gathered + offered + absent,
        offers=offers,
        absent_bytes=absent,
    )


def plan_run(
    join: Planned,
    table: TableShape,
    stream: StreamShape,
    settings: Settings,
    front: Part,
    cache: str,
    held: int,
    pages: int | None = None,
) -> MemoryPlan:
    """A plan for a run whose front stage has ``held`` bytes, and whose tuples wait for stretches of
    ``pages`` pages (None: no tuple waits).

    The index grows with every change of the table. The front stage keeps its size, and with it its
    rows, until its part has become clearly smaller; the window gives way. Stretches keep their
    size, whatever the size of the pages that a change adds.
    """

    def divided(part: Part) -> MemoryPlan:
        if pages is not None:
            with contextlib.suppress(TooSmallError):
                one: Any = replace(join, disk_buffer_pages=pages)  # type: ignore[type-var]
                return plan_sweep(one, table, stream, settings, part, cache)
        return within_budget(
            join, lambda one: plan_sweep(one, table, stream, settings, part, cache)
        )

    plan = divided(front)
    if plan.front_bytes < held <= plan.front_bytes * _KEPT_SIZE:
        return divided(held)
    return plan


def _copies(table: TableShape, budget: int, settings: Settings) -> tuple[int, int, int]:
    """Rows to copy at a time out of scattered pages, their bytes, and the bytes that are mapped."""
    types = *table.cached_types, *table.condition_types
    can_copy = table.can_copy_rows and table.by_code and ColumnNodes(types).is_flat
    mapped = min(budget // settings.mapped_share, settings.mapped_most) // HUGE * HUGE
    fixed, row = bytes_of(types, 0, 0), bytes_of(types, 1, table.max_row_bytes)
    few = min(budget // settings.few_copied_share, settings.few_copied_bytes)
    room = min(max(budget // settings.copied_share, few), settings.copied_bytes)
    rows = (room - fixed) // (row - fixed)
    if room < _LEAST_ROOM or rows < _LEAST_COPIED:
        return 0, 0, 0
    if table.direct or table.resident or not can_copy:
        return 0, 0, 0
    mapped = mapped if mapped >= LEAST_MAPPED else 0
    return rows, bytes_of(types, rows, table.max_row_bytes), mapped


def _reads_ahead(table: TableShape, budget: int, reader: int, settings: Settings) -> int:
    """Reads to queue ahead of the current visit; direct reads need a buffer each."""
    if not table.can_prefetch or not table.num_pages:
        return 0
    if not table.direct:
        return settings.reads_ahead  # the page cache is the buffer
    fit = budget // settings.read_ahead_share // reader - 1
    one = 1 if settings.least_buffer_share * reader <= budget else 0
    return min(max(one, fit), settings.reads_ahead)


def _in_huge_pages(table: TableShape, pages: int, readers: int, most: int) -> int:
    """About as many pages of a buffer, so that buffers side by side fill whole huge pages, of at
    most ``most`` bytes. A direct read into small pages takes up to twice as long."""
    huge = min(-(-readers * table.buffer_bytes(pages) // HUGE), most // HUGE) * HUGE
    each = huge // readers
    fit = pages
    for _ in range(2):  # the second time with pages of the size that they really have
        fit = min(fit * each // table.buffer_bytes(fit), table.num_pages)
        if not fit:
            return pages
    return fit if table.buffer_bytes(fit) <= each else max(1, fit - 1)


def visit_scratch(table: TableShape, pages: int) -> int:
    """Bytes of the page numbers of a visit, and of the addresses of the pages' columns."""
    return (_PAGE_SCRATCH + table.address_bytes) * pages
