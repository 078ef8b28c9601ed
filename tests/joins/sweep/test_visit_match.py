"""Tuples of a visit and rows of its pages: all pairs, and only whole keys for the front stage."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from engine.kit import binding, context, emitted, intake_and_output, pages_of, stream_shape
from semistream.engine.plan import plan_memory
from semistream.engine.shape import TableShape
from semistream.joins.sweep.read_ahead import ReadAhead
from semistream.joins.sweep.route import Route
from semistream.joins.sweep.stretch_window import StretchWindow
from semistream.joins.sweep.stretches import Stretches
from semistream.joins.sweep.visit import Visit
from semistream.joins.sweep.visit_match import VisitMatch
from semistream.joins.sweep.visit_output import VisitOutput
from semistream.kernels import states
from semistream.keys import codec

FRONT: Any = object()  # offers are recorded, so nobody asks it
STRONG = codec.hash_columns


class Collected:
    """Records the pairs that are offered to a front stage."""

    def __init__(self) -> None:
        self.calls: list[list[tuple[int, int, int]]] = []  # page, row, slot

    def collect(
        self, front: Any, window: Any, loaded: Any, places: Any, rows: Any, slots: Any
    ) -> None:
        assert front is FRONT
        pages = loaded.pages[places].tolist()
        self.calls.append(list(zip(pages, rows.tolist(), slots.tolist(), strict=True)))


class World:
    """A table, and tuples that wait for its only stretch."""

    def __init__(
        self, keys: list[list[Any]], tuples: list[Any], how: str = "inner", room: int = 1000,
        pages: int = 99, can_address: bool = True,
    ) -> None:  # fmt: skip
        kind = pa.string() if isinstance(keys[0][0], str) else pa.int64()
        batch = pa.record_batch({"k": pa.array(tuples, kind), "a": range(len(tuples))})
        source = self.source = pages_of(keys, kind, can_address=can_address)
        shared = self.context = context(binding(source, batch.schema, how))
        table, stream = TableShape.of(source, shared.binding), stream_shape(batch, source)
        plan: Any = plan_memory(ss.join("sweepjoin", memory=300_000, how=how), table, stream)
        plan = replace(plan, output_rows=room, buffer_pages=pages, reads_ahead=0)
        _, self.output = intake_and_output(shared, room)
        stretches = Stretches(source.index, 99)
        self.window = StretchWindow(stream.layout, plan.window, stretches)
        adopt, key = shared.binding.codec.adopt, batch.column("k")
        taken = self.window.add(
            shared.binding.stream_codes(batch)[0], stream.layout.columns(batch),
            np.arange(len(tuples)), lambda rows: adopt([key.take(pa.array(rows))]),
        )  # fmt: skip
        assert taken == len(tuples)
        self.reads = ReadAhead(shared, source, plan)
        self.visit_output = VisitOutput(shared, self.output, self.window, table, plan)
        self.offers = Collected()
        offers: Any = self.offers
        self.match = VisitMatch(shared, self.window, self.visit_output, offers)
        route = Route(shared, stretches, 99, 0)
        (visit,) = route.next_visits(self.window)
        route.find_pages(self.window, visit)
        self.visit: Visit = visit
        self.keys = dict(
            zip(visit.slots.tolist(), self.window.keys(visit.slots)[0].to_pylist(), strict=True)
        )
        self.calls = 0

    def run(self, distinct: bool = False) -> list[dict[str, Any]]:
        """The output rows of the visit's pairs."""
        out = []
        while not self.visit.ended:
            loaded = self.reads.load(self.visit)
            self.match.start(self.visit, loaded, distinct)
            done = False
            while not done:
                done = self.match.match(self.visit, loaded, FRONT)
                self.calls += 1
                out += emitted(self.output)
        self.visit_output.hand_over()
        return out + emitted(self.output)

    def rows_of(self, key: Any) -> list[tuple[int, int]]:
        """(page, row) of each row of a key, in the order in which readers give them."""
        rows = []
        for number, page in enumerate(self.source.pages):
            codes, _ = self.context.binding.codec.codes([page.column("k")])
            ordered = page.column("k").take(pa.array(np.argsort(codes, kind="stable")))
            rows += [(number, row) for row, one in enumerate(ordered.to_pylist()) if one == key]
        return rows

    def matched(self) -> set[int]:
        """The slots that are marked."""
        slots = self.visit.slots
        return set(slots[self.window.state[slots] == states.MATCHED].tolist())

    def check_offers(self) -> set[Any]:
        """Every offered key has all its rows, for each offered tuple; returns the keys."""
        offered: set[Any] = set()
        for call in self.offers.calls:
            slots = {slot for *_, slot in call}
            for slot in slots:
                rows = [(page, row) for page, row, other in call if other == slot]
                assert rows == self.rows_of(self.keys[slot])
            offered |= {self.keys[slot] for slot in slots}
        return offered


def expected(world: World) -> list[tuple[Any, Any]]:
    """(key, value) for every pair of a tuple and a row."""
    values: dict[Any, list[Any]] = {}
    for page in world.source.pages:
        for row in page.to_pylist():
            values.setdefault(row["k"], []).append(row["v"])
    return sorted((key, value) for key in world.keys.values() for value in values.get(key, []))


def drawn(seed: int, text: bool) -> tuple[list[list[Any]], list[Any]]:
    """Sorted keys with repetitions, cut into pages anywhere; and tuples, some of them absent."""
    rng = random.Random(seed)
    keys = sorted(rng.choice(range(0, 40, 2)) for _ in range(rng.randint(1, 60)))
    made = [f"key {key:02}" if text else key for key in keys]
    cuts = sorted(rng.sample(range(1, len(made)), min(len(made) - 1, rng.randint(0, 8))))
    pages = [made[a:b] for a, b in zip([0, *cuts], [*cuts, len(made)], strict=True)]
    wanted = [rng.randrange(-1, 42) for _ in range(rng.randint(1, 30))]
    return pages, [f"key {key:02}" if text else key for key in wanted]


@pytest.fixture(params=["number", "text", "text with equal codes"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "text with equal codes":
        monkeypatch.setattr(codec, "hash_columns", lambda columns: STRONG(columns) & np.uint64(7))
    return str(request.param)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("can_address", [False, True], ids=["batches", "addresses"])
def test_all_pairs_and_only_whole_keys(kind: str, seed: int, can_address: bool) -> None:
    rng = random.Random(seed)
    room, pages = rng.choice([1, 2, 3, 7, 1000]), rng.choice([1, 2, 3, 99])
    world = World(*drawn(seed, kind != "number"), room=room, pages=pages, can_address=can_address)
    rows = world.run()
    assert sorted((row["k"], row["v"]) for row in rows) == expected(world)
    present = {slot for slot, key in world.keys.items() if world.rows_of(key)}
    assert world.matched() == present
    assert world.visit.found == len(rows)
    offered = world.check_offers()
    if room == 1000 and world.calls == 1:  # nothing was interrupted
        assert offered == {world.keys[slot] for slot in present}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("how", ["left_semi", "left_anti"])
def test_each_tuple_once(kind: str, seed: int, how: str) -> None:
    rng = random.Random(seed)
    room, pages = rng.choice([1, 2, 1000]), rng.choice([1, 3, 99])
    world = World(*drawn(seed, kind != "number"), how=how, room=room, pages=pages)
    rows = world.run()
    present = {slot for slot, key in world.keys.items() if world.rows_of(key)}
    assert world.matched() == present
    assert world.visit.found == len(present)
    found = sorted(row["k"] for row in rows)
    assert found == (sorted(world.keys[slot] for slot in present) if how == "left_semi" else [])


def test_a_batch_that_is_full_in_the_middle_of_a_key() -> None:
    """Neither the key that was cut nor its rest is offered; those before and after it are."""
    world = World([[1, 2, 2, 2, 3]], [1, 2, 3], room=3)
    assert len(world.run()) == 5
    assert world.calls == 2
    assert world.check_offers() == {1, 3}


def test_a_batch_that_is_full_between_the_tuples_of_a_key() -> None:
    """The tuples before the cut have met all rows of their key."""
    world = World([[1, 2, 3]], [1, 2, 2, 3], room=2)
    assert len(world.run()) == 4
    assert world.check_offers() == {1, 2, 3}


def test_a_key_with_more_tuples_than_a_batch_has_rows_is_offered() -> None:
    """It is the hottest of all."""
    world = World([[1, 2, 2, 2]], [1] + [2] * 10, room=7)
    assert len(world.run()) == 31
    assert world.calls == 5
    assert world.check_offers() == {1, 2}


def test_a_batch_that_is_full_with_the_last_pair() -> None:
    world = World([[1, 2, 2]], [1, 2], room=3)
    assert len(world.run()) == 3
    assert world.calls == 1
    assert world.check_offers() == {1, 2}


def test_keys_with_one_row_each_are_all_offered() -> None:
    """Where keys are distinct, no batch and no part of a visit cuts one."""
    world = World([[1, 2], [3, 4], [5]], [1, 3, 3, 5], room=2, pages=1)
    assert len(world.run(distinct=True)) == 4
    offered = [world.keys[slot] for call in world.offers.calls for *_, slot in call]
    assert offered == [1, 3, 3, 5]


def test_nothing_is_offered_while_a_key_may_go_on_in_another_part() -> None:
    world = World([[1, 2], [2, 3], [3, 4]], [1, 2, 3, 4], pages=2)
    assert len(world.run()) == 6
    assert world.visit.done == 3
    assert world.check_offers() == set()


def test_other_keys_with_the_same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "hash_columns", lambda columns: STRONG(columns) & np.uint64(0))
    world = World([["a", "b"], ["b", "c"]], ["b", "x", "c"])
    rows = world.run()
    assert sorted(row["k"] for row in rows) == ["b", "b", "c"]
    assert world.visit.collided
    assert {world.keys[slot] for slot in world.matched()} == {"b", "c"}


@pytest.mark.parametrize("key", ["a", 7])
def test_equal_keys_do_not_collide(key: Any) -> None:
    world = World([[key]], [key])
    assert len(world.run()) == 1
    assert not world.visit.collided
