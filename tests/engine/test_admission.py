"""Admission: hits and known absent keys are returned, misses wait, nothing is lost at a limit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from engine.kit import Side, binding, context, emitted, intake_and_output
from semistream.engine.admission import Admission
from semistream.engine.front.absent_keys import AbsentKeys
from semistream.engine.front.choice import CACHES, new_front_stage
from semistream.engine.front.contract import CacheSize


class World:
    """An admission whose window is a list with room for ``room`` tuples."""

    def __init__(self, how: str = "left", rows: int = 100, room: int = 100, key: Any = None):
        self.kind = key or pa.int64()
        side = Side(pa.schema([("k", self.kind), ("v", pa.string())]))
        stream = pa.schema([("k", self.kind), ("a", pa.int64())])
        self.context = context(binding(side, stream, how))
        self.intake, self.output = intake_and_output(self.context, rows)
        self.admission = Admission(self.context, self.intake, self.output)
        self.window: list[int] = []
        self.room = room

    def add(self, part: Any, rows: Any) -> int:
        taken = part.batch.column("a").take(pa.array(rows)).to_pylist()
        taken = taken[: max(0, self.room - len(self.window))]
        self.window += taken
        return len(taken)

    def push(self, keys: list[Any]) -> None:
        numbers = range(self.context.stats.tuples_in, self.context.stats.tuples_in + len(keys))
        self.context.stats.tuples_in += len(keys)
        self.intake.push(pa.record_batch({"k": pa.array(keys, self.kind), "a": numbers}), 1)

    def admit_all(self, vacant: int = 100) -> None:
        for _ in range(100):
            if not self.intake:
                return
            self.admission.admit(vacant, self.add)
            if self.admission.full:
                return
        raise AssertionError("endless loop")

    def cache(self, cache: str, rows: dict[Any, list[str]]) -> None:
        """A front stage that holds these keys."""
        shared = self.context.binding
        types = [pa.string()] + ([] if shared.codec.exact else [self.kind])
        front = new_front_stage(cache, types, CacheSize(100, 10_000, 0), 1)
        codes, _ = shared.codec.codes([pa.array([*rows], self.kind)])
        values = [text for texts in rows.values() for text in texts]
        keys = [key for key, texts in rows.items() for _ in texts]
        columns = [pa.array(values), pa.array(keys, self.kind)][: len(types)]
        counts = np.array([len(texts) for texts in rows.values()])
        front.offer(codes, counts, np.ones(len(codes), int), columns, np.arange(len(values)))
        self.admission.front = front

    def out(self) -> list[tuple[int, Any]]:
        return [(row["a"], row.get("v")) for row in emitted(self.output)]


def test_without_a_front_stage_all_tuples_with_a_key_go_to_the_window() -> None:
    world = World()
    world.push([5, None, 6])
    world.admit_all()
    assert world.window == [0, 2]
    assert world.out() == [(1, None)]
    assert world.context.stats.unmatched == 1


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("key", [pa.int64(), pa.string()], ids=str)
def test_hits_are_returned_with_all_their_rows(cache: str, key: Any) -> None:
    world = World(key=key)
    names = [1, 2, 3] if key == pa.int64() else ["1", "2", "3"]
    world.cache(cache, {names[0]: ["x"], names[1]: ["y", "z"]})
    world.push([names[1], names[2], names[0], None])
    world.admit_all()
    assert sorted(world.out()) == [(0, "y"), (0, "z"), (2, "x"), (3, None)]
    assert world.window == [1]
    stats = world.context.stats
    assert (stats.front_stage_hits, stats.matched, stats.unmatched) == (2, 2, 1)


@pytest.mark.parametrize(
    ("how", "rows"),
    [("inner", [0, 0]), ("left", [0, 0]), ("left_semi", [0]), ("left_anti", [])],
)
def test_rows_of_a_hit_for_each_how(how: str, rows: list[int]) -> None:
    world = World(how)
    world.cache("recorder", {1: ["x", "y"]})
    world.push([1])
    world.admit_all()
    assert [number for number, _ in world.out()] == rows
    assert world.context.stats.matched == 1


def test_known_absent_keys_do_not_wait() -> None:
    world = World()
    world.admission.absent = AbsentKeys(1000)
    world.admission.absent.add(np.array([7]))
    world.push([7, 8, None, 7])
    world.admit_all()
    assert world.window == [1]
    assert world.out() == [(0, None), (2, None), (3, None)]
    assert world.context.stats.unmatched == 3


@pytest.mark.parametrize("cache", [None, *CACHES])
@pytest.mark.parametrize("rows", [1, 2, 3, 100])
@pytest.mark.parametrize("room", [0, 1, 4, 100])
def test_at_every_limit_each_tuple_is_counted_once(cache: Any, rows: int, room: int) -> None:
    """With small output batches and a full window, the rest waits, in order."""
    world = World(rows=rows, room=room)
    world.admission.absent = AbsentKeys(1000)
    world.admission.absent.add(np.array([9]))
    if cache:
        world.cache(cache, {1: ["x"], 2: ["y", "z"]})
    keys = [1, 5, None, 2, 9, 6, 9, None, 1, 7, 2, 8, 9]
    world.push(keys)
    world.admit_all(vacant=max(1, room))
    stop = len(keys) - world.intake.left
    hits = {1: ["x"], 2: ["y", "z"]} if cache else {}
    expected = []
    for number, key in enumerate(keys[:stop]):
        expected += [(number, v) for v in hits.get(key, [])]
        expected += [(number, None)] if key in (None, 9) else []
    out = world.out()
    assert sorted(out, key=str) == sorted(expected, key=str)
    waiting = [n for n, key in enumerate(keys[:stop]) if key not in (None, 9, *hits)]
    assert world.window == waiting
    assert world.context.stats.waiting == len(waiting) + world.intake.left
    if stop < len(keys):
        assert len(world.window) == room
        assert keys[stop] not in (None, 9, *hits)


def test_output_batches_do_not_exceed_their_room() -> None:
    world = World(rows=2)
    world.push([None] * 7)
    sizes = []
    while world.intake:
        world.admission.admit(100, world.add)
        sizes.append(len(world.out()))
    assert sizes == [2, 2, 2, 1]


def test_a_false_hit_is_evicted_and_its_tuple_waits() -> None:
    """Another key with the same code is cached; the keys themselves decide."""
    world = World(key=pa.string())
    front = new_front_stage("recorder", [pa.string(), pa.string()], CacheSize(9, 999, 0), 1)
    codes, _ = world.context.binding.codec.codes([pa.array(["mine"])])
    one = np.ones(1, int)
    columns = [pa.array(["other's row"]), pa.array(["other"])]  # under the code of "mine"
    front.offer(codes, one, one, columns, np.arange(1))
    world.admission.front = front
    world.push(["mine", "yours"])
    world.admit_all()
    assert world.window == [0, 1]
    assert world.out() == []
    assert front.count == 0


def test_an_empty_batch_is_skipped() -> None:
    world = World()
    world.push([])
    world.push([4])
    assert world.admission.admit(10, world.add) == 0
    assert world.admission.admit(10, world.add) == 1
    assert not world.intake
