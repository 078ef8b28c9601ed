"""Rows of several visits are offered to the front stage together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from engine.kit import binding, context, pages_of, stream_shape
from semistream.engine.front.choice import CACHES, new_front_stage
from semistream.engine.front.contract import CacheSize
from semistream.engine.plan import plan_memory
from semistream.engine.rows.page_columns import PageColumns
from semistream.engine.shape import TableShape
from semistream.joins.sweep.offers import Offers
from semistream.joins.sweep.page_map import MappedScan
from semistream.joins.sweep.stretch_window import StretchWindow
from semistream.joins.sweep.stretches import Stretches

BATCH = pa.record_batch({"k": [5, 5, 6, 7, 7, 7], "a": range(6)})


class World:
    """A page with keys 5, 6 and 7, and six tuples that wait for them."""

    def __init__(self, cache: str, room: int) -> None:
        source = pages_of([[5, 6, 7]])
        self.context = context(binding(source))
        table = TableShape.of(source, self.context.binding)
        stream = stream_shape(BATCH)
        plan: Any = plan_memory(ss.join("sweepjoin", memory=100_000), table, stream)
        object.__setattr__(plan, "offers", room)
        self.front = new_front_stage(cache, [pa.string()], CacheSize(50, 5000, 0), 2)
        self.front.threshold = 2
        self.window = StretchWindow(stream.layout, plan.window, Stretches(source.index, 1))
        columns = stream.layout.columns(BATCH)
        codes = self.context.binding.stream_codes(BATCH)[0]
        self.window.add(codes, columns, np.arange(6), [])
        slots, _ = self.window.collect(0)
        self.slots = slots[np.argsort(self.window.codes[slots], kind="stable")]
        self.offers = Offers(self.context, table, plan)
        page = PageColumns([pa.string()], 1)
        page.put(0, [source.pages[0].column("v")])
        self.source = source
        self.scan = MappedScan(0, page, None, None)

    def visit(self) -> None:
        rows = np.array([0, 0, 1, 2, 2, 2], np.int32)
        self.offers.collect(
            self.front, self.window, self.scan, np.zeros(6, np.int32), rows, self.slots
        )

    def held(self) -> list[str]:
        found = self.front.probe(np.array([5, 6, 7]), None, 0, 3, 9, False)
        return self.front.rows.take(found.hit_slots)[0].to_pylist()


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize(("room", "visits"), [(1, 1), (2, 1), (4, 2)])
def test_rows_that_enough_tuples_waited_for_enter(cache: str, room: int, visits: int) -> None:
    world = World(cache, room)
    for _ in range(visits):
        assert world.held() == []
        world.visit()
    assert {"5/0", "7/2"} <= set(world.held())
    if cache != "counting with a sketch":  # which adds up what the visits count
        assert world.held() == ["5/0", "7/2"]


def test_collected_rows_can_be_withdrawn() -> None:
    world = World("recorder", 3)
    world.visit()
    world.offers.withdraw()
    world.visit()
    assert world.held() == []
    world.visit()
    assert world.held() == ["5/0", "7/2"]


@pytest.mark.parametrize("room", [1, 10])
def test_bytes_are_bounded_by_the_widest_rows(room: int) -> None:
    world = World("recorder", room)
    assert 0 < world.offers.nbytes <= room * world.source.max_row_bytes + 4 * (room + 1)
