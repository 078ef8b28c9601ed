"""Rows of several visits are offered to the front stage together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from engine.kit import binding, context, pages_of, stream_shape
from semistream.engine.front.choice import CACHES, new_front_stage
from semistream.engine.front.contract import CacheSize
from semistream.engine.page_rows import Openers
from semistream.engine.plan import plan_memory
from semistream.engine.shape import TableShape
from semistream.joins.sweep.offers import Offers
from semistream.joins.sweep.stretch_window import StretchWindow
from semistream.joins.sweep.stretches import Stretches

KEYS = [[5, 6, 7]]
TUPLES = [5, 5, 6, 7, 7, 7]
REPEATED = [[1, 2, 2], [2, 3, 5], [7, 7]]
every_cache = pytest.mark.parametrize("cache", CACHES)


class World:
    """Pages of keys, and tuples that wait for them."""

    def __init__(
        self, cache: str, room: int, pages: Any = KEYS, tuples: Any = TUPLES, capacity: int = 50
    ) -> None:
        text = isinstance(pages[0][0], str)
        kind = pa.string() if text else pa.int64()
        batch = pa.record_batch({"k": pa.array(tuples, kind), "a": range(len(tuples))})
        source = self.source = pages_of(pages, kind, can_address=True)
        self.context = context(binding(source, batch.schema))
        table = TableShape.of(source, self.context.binding)
        stream = stream_shape(batch, source)
        plan: Any = plan_memory(ss.join("sweepjoin", memory=100_000), table, stream)
        plan = replace(plan, offers=room)
        self.front = new_front_stage(cache, table.cached_types, CacheSize(capacity, 5000, 0), 2)
        self.front.threshold = 2
        self.window = StretchWindow(stream.layout, plan.window, Stretches(source.index, 9))
        codes = self.context.binding.stream_codes(batch)[0]
        every = np.arange(len(tuples))
        self.window.add(codes, stream.layout.columns(batch), every, lambda _: [])
        slots, _, _ = self.window.collect(0, 1, 1)
        slots = slots[np.argsort(self.window.codes[slots], kind="stable")]
        self.offers = Offers(self.context, table, plan)
        reader, openers = source.reader(9), Openers(source)
        self._read = reader.plan(np.arange(source.num_pages))
        found = self._read.pages, reader.load(self._read), self._read.sizes
        self.loaded = openers(self.context.binding.master_columns).open(*found)
        if text:
            self.loaded.keys = openers(["k"]).open(*found).columns
        self._pair(slots)

    def _pair(self, slots: Any) -> None:
        """All pairs of tuples and rows, in the order of tuples."""
        keys = dict(zip(slots.tolist(), self.window.keys(slots)[0].to_pylist(), strict=True))
        rows = [
            (place, row, key)
            for place, page in enumerate(self.source.pages)
            for row, key in enumerate(page.column("k").to_pylist())
        ]
        pairs = [(p, r, slot) for slot in slots.tolist() for p, r, key in rows if key == keys[slot]]
        self.pairs = [np.array(part, np.int32) for part in zip(*pairs, strict=True)]

    def visit(self) -> None:
        self.offers.collect(self.front, self.window, self.loaded, *self.pairs)

    def held(self) -> list[str]:
        """The cached values of all keys of the table."""
        codes = self.context.binding.codec.codes(
            [pa.concat_arrays([page.column("k") for page in self.source.pages]).unique()]
        )[0]
        found = self.front.probe(codes, None, 0, 99, 99, False)
        return self.front.rows.take(found.hit_slots)[0].to_pylist()


@every_cache
@pytest.mark.parametrize(("room", "visits"), [(1, 1), (2, 1), (4, 2)])
def test_rows_that_enough_tuples_waited_for_enter(cache: str, room: int, visits: int) -> None:
    world = World(cache, room)
    for _ in range(visits):
        assert world.held() == []
        world.visit()
    assert {"5/0", "7/2"} <= set(world.held())
    if cache != "counting with a sketch":  # which adds up what the visits count
        assert world.held() == ["5/0", "7/2"]


@every_cache
@pytest.mark.parametrize("room", [3, 4, 5, 20])
def test_a_key_is_offered_with_all_its_rows(cache: str, room: int) -> None:
    """Key 2 has rows in two pages, and key 7 two in one page."""
    world = World(cache, room, REPEATED, [2, 7, 2, 3, 7])
    world.visit()
    world.offers.offer(world.front)
    assert sorted(world.held()) == ["2/0", "2/1", "2/2", "7/0", "7/1"]


@every_cache
def test_a_key_with_more_rows_than_can_be_offered_is_left_out(cache: str) -> None:
    world = World(cache, 2, REPEATED, [2, 7, 2, 3, 7])
    world.visit()
    world.offers.offer(world.front)
    assert world.held() == ["7/0", "7/1"]


@every_cache
def test_what_does_not_fit_is_offered_with_the_next_rows(cache: str) -> None:
    world = World(cache, 4, REPEATED, [2, 7, 2, 3, 7])
    world.visit()
    assert sorted(world.held()) == ["2/0", "2/1", "2/2"]  # two more did not fit: it was offered
    world.offers.offer(world.front)
    assert len(world.held()) == 5


@every_cache
def test_keys_are_offered_with_their_rows_where_codes_are_hashes(cache: str) -> None:
    pages = [[str(key) for key in page] for page in REPEATED]
    world = World(cache, 20, pages, ["2", "7", "2", "3", "7"])
    world.visit()
    world.offers.offer(world.front)
    codes = world.context.binding.codec.codes([pa.array(["2", "7", "3"])])[0]
    found = world.front.probe(codes, None, 0, 9, 99, False)
    values, keys = (column.to_pylist() for column in world.front.rows.take(found.hit_slots))
    assert sorted(keys) == ["2", "2", "2", "7", "7"]
    assert sorted(value.split("/")[0] for value in values) == sorted(keys)
    assert len(set(zip(values, found.hit_rows.tolist(), strict=True))) == 5


@pytest.mark.parametrize(("capacity", "room", "offered"), [
    (50, 100, True),  # the front stage is still filling
    (1, 4, True),  # half of the room is used
    (1, 5, False),
])  # fmt: skip
def test_the_end_of_a_visit(capacity: int, room: int, offered: bool) -> None:
    world = World("counting", room, capacity=capacity)
    if capacity == 1:  # it is full
        one = np.ones(1, np.int64)
        world.front.offer(np.array([91]), one, one, [pa.array(["a"])], 0 * one)
        assert world.front.count == world.front.capacity
        world.front.threshold = 2
    offer, calls = world.front.offer, []
    world.front.offer = lambda *given: calls.append(given) or offer(*given)
    world.visit()
    assert not calls
    world.offers.visit_over(world.front)
    assert [given[0].tolist() for given in calls] == ([[5, 7]] if offered else [])


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
