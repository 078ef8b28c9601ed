"""How SweepJoin's budget is divided: what depends on how pages are read, and on changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import semistream as ss
from engine.kit import stream_shape, table_shape
from semistream.engine.plan import plan_memory
from semistream.engine.settings import DEFAULTS
from semistream.engine.shape import TableShape
from semistream.joins.sweep.plan import SweepPlan, plan_run
from semistream.joins.sweep.stretch_window import NEVER
from semistream.master.page_buffer import HUGE

PAGES = 2_000
PAGE = 16 << 10
INDEX = 22 * PAGES
STREAM = stream_shape(pa.record_batch({"k": [1, 2], "a": [3, 4]}))
MEMORY = 4_000_000


def table(**options: Any) -> TableShape:
    return table_shape(pages=PAGES, page_bytes=PAGE, **{"index_bytes": INDEX, **options})


def plan(shape: TableShape, memory: int = MEMORY, **options: Any) -> SweepPlan:
    found = plan_memory(ss.join("sweepjoin", memory=memory, **options), shape, STREAM)
    assert isinstance(found, SweepPlan)
    return found


def changed(index_bytes: int) -> TableShape:
    """A table with a delta, whose changed codes take the rest of the index."""
    return replace(table(), boundaries=(PAGES - 1,), index_bytes=index_bytes)


def test_room_for_a_growing_index_is_set_apart_and_more_once_the_table_has_changed() -> None:
    assert plan(table()).growth == plan(table()).budget // 120
    assert plan(changed(INDEX + 16)).growth == MEMORY // DEFAULTS.index_growth_share
    many = 300_000  # bytes of changed codes
    assert plan(changed(INDEX + many)).growth == many, "as much again"
    assert plan(changed(INDEX + 1_000_000)).growth == MEMORY // 10, "but no more than a tenth"


def test_that_room_is_of_the_window() -> None:
    before, after = plan(table()), plan(changed(INDEX + 16))
    assert before.window is not None
    assert after.window is not None
    given = before.window.nbytes - after.window.nbytes
    assert 0.5 * after.growth < given < 1.1 * after.growth
    disk = before.components(INDEX)["disk buffer"]
    assert abs(after.components(INDEX + 16)["disk buffer"] - disk) <= 24, "a stretch more"


def test_no_room_is_set_apart_where_the_budget_is_too_small_for_it() -> None:
    shape = changed(INDEX + 16)
    with pytest.raises(ss.BudgetError):
        plan(shape, memory=INDEX)
    smallest = plan(shape).smallest - plan(shape).growth
    tight = next(
        found
        for memory in range(smallest // 4, smallest + 1, 64)
        if (found := _plan_or_none(shape, memory)) is not None
    )
    assert tight.growth == 0
    assert tight.total <= tight.budget


def _plan_or_none(shape: TableShape, memory: int) -> SweepPlan | None:
    try:
        return plan(shape, memory=memory)
    except ss.BudgetError:
        return None


def test_direct_reads_ahead_have_a_buffer_each() -> None:
    cached, direct = plan(table(can_prefetch=True)), plan(table(can_prefetch=True, direct=True))
    assert cached.reads_ahead == DEFAULTS.reads_ahead, "the page cache is the buffer"
    assert 1 <= direct.reads_ahead <= DEFAULTS.reads_ahead
    assert plan(table(can_prefetch=False)).reads_ahead == 0
    disk = cached.components(INDEX)["disk buffer"], direct.components(INDEX)["disk buffer"]
    one = table().buffer_bytes(cached.buffer_pages)
    assert disk[1] - disk[0] >= direct.reads_ahead * one
    assert (1 + direct.reads_ahead) * one <= max(
        MEMORY // DEFAULTS.read_ahead_share, 2 * MEMORY // DEFAULTS.least_buffer_share
    )


@pytest.mark.parametrize("megabytes", [11, 16, 23, 30, 45, 68, 100, 200])
def test_buffers_of_direct_reads_fill_whole_huge_pages(megabytes: int) -> None:
    shape, memory = table(can_prefetch=True, direct=True), megabytes * 1_000_000
    found = plan(shape, memory)
    total = (1 + found.reads_ahead) * shape.buffer_bytes(found.buffer_pages)
    assert total <= memory // DEFAULTS.read_ahead_share
    assert -total % HUGE <= (1 + found.reads_ahead) * PAGE
    kept = plan(shape, memory, disk_buffer_pages=7)
    assert kept.buffer_pages == 7, "as configured"


def test_memory_to_copy_rows_is_a_small_part_of_any_budget() -> None:
    shape = replace(table(), can_copy_rows=True)
    found = {
        megabytes: plan(shape, megabytes * 1_000_000) for megabytes in (1, 2, 10, 100, 101, 400)
    }
    assert all(one.copied_rows for one in found.values())
    assert [one.mapped_bytes for one in found.values()] == [0, 0, 0, 0, 3 * HUGE, 8 * HUGE]
    for megabytes, one in found.items():
        without = plan(table(), megabytes * 1_000_000)
        given = one.components(INDEX)["disk buffer"] - without.components(INDEX)["disk buffer"]
        assert given <= one.mapped_bytes + one.budget // 24
        assert one.copied_pages <= min(one.copied_rows, DEFAULTS.copied_pages)
    assert found[400].copied_rows > 10 * found[1].copied_rows
    for other in ({"can_copy_rows": False}, {"direct": True}, {"mapped": True, "resident": True}):
        assert plan(replace(shape, **other), 400_000_000).copied_rows == 0


def test_a_resident_table_needs_addresses_and_no_buffer() -> None:
    shape = table(mapped=True)
    mapped, resident = plan(shape), plan(replace(shape, resident=True))
    assert (mapped.resident_pages, mapped.dense_pages) == (0, DEFAULTS.mapped_visit_pages)
    assert resident.dense_pages == NEVER
    assert resident.visit_pages == resident.resident_pages > mapped.buffer_pages


def test_gaps_are_coalesced_by_what_a_request_costs() -> None:
    assert plan(table()).gap_pages == DEFAULTS.cached_gap_bytes // PAGE == 0
    assert plan(table(direct=True)).gap_pages == DEFAULTS.gap_bytes // PAGE == 1


@pytest.mark.parametrize("front", [0.3, 0.1, 400_000])
def test_components_add_up(front: float | int) -> None:
    found = plan(table(), front_stage=front)
    parts = found.components(INDEX)
    assert sum(parts.values()) == found.total <= MEMORY
    assert min(parts.values()) >= 0
    assert found.front_bytes == (front if isinstance(front, int) else int(front * MEMORY))


def test_a_front_stage_keeps_its_size_until_its_part_is_clearly_smaller() -> None:
    join = ss.join("sweepjoin", memory=MEMORY)
    planned = plan(table()).front_bytes

    def front_bytes(held: int) -> int:
        args = table(), STREAM, DEFAULTS, 0.3, "counting"
        return plan_run(join, *args, held).front_bytes

    assert front_bytes(0) == planned
    assert front_bytes(planned - 1) == planned
    assert front_bytes(int(planned * 1.1)) == int(planned * 1.1)
    assert front_bytes(int(planned * 1.2)) == planned


def test_stretches_keep_their_size_while_tuples_wait() -> None:
    join = ss.join("sweepjoin", memory=MEMORY)
    larger = replace(table(), max_page_bytes=PAGE + 512)
    args = larger, STREAM, DEFAULTS, 0.3, "counting", 0
    pages = plan(table()).buffer_pages
    assert plan_run(join, *args).buffer_pages < pages
    assert plan_run(join, *args, pages).buffer_pages == pages
