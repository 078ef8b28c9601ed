"""Tuples whose key is absent leave: once that is proven, one output batch at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from engine.kit import Side, binding, context, emitted, intake_and_output, pages_of
from semistream.engine.window.absent_tuples import PAGE_BYTES, AbsentTuples
from semistream.engine.window.hash_window import QueueWindow
from semistream.engine.window.tuple_layout import WindowSize

TEXT_KEY = Side(pa.schema([("k", pa.string())]))


class World:
    """A window of eight tuples with keys in three pages: 0 to 9, 10 to 19, 20 and above."""

    def __init__(self, how: str = "left", rows: int = 100, master: Any = None) -> None:
        kind = pa.int64() if master is None else pa.string()
        schema = pa.schema([("k", kind), ("a", pa.int64())])
        self.context = context(binding(master, schema, how))
        intake, self.output = intake_and_output(self.context, rows)
        self.window = QueueWindow(intake.layout, WindowSize(8, 2000, 0))
        self.absent = AbsentTuples(self.context, self.output, 3)
        self.index = pages_of([[0], [10], [20]]).index
        self.schema = schema

    def add(self, keys: list[Any]) -> None:
        batch = pa.record_batch(
            [pa.array(keys, self.schema.types[0]), pa.array(range(len(keys)))], schema=self.schema
        )
        self.context.stats.tuples_in += len(keys)
        codes, _ = self.context.binding.stream_codes(batch)
        columns = self.window.layout.columns(batch)
        assert self.window.add(codes, columns, np.arange(len(keys))) == len(keys)

    def out(self) -> list[int]:
        return [row["a"] for row in emitted(self.output)]


def test_a_tuple_is_proven_absent_by_a_probe_while_it_waited() -> None:
    world = World()
    absent, window = world.absent, world.window
    world.add([5, 15])
    head = window.oldest
    assert not absent.is_proven(window, head, 0, 0)
    absent.tick(window)
    absent.probed(0, 0)
    assert absent.is_proven(window, head, 0, 0)
    assert not absent.is_proven(window, head, 0, 1)  # its key may be in two pages
    assert not absent.is_proven(window, head, 1, 1)
    world.add([6])
    assert not absent.is_proven(window, 2, 0, 0)  # it came after the probe


def test_all_tuples_proven_absent_leave_together() -> None:
    world = World()
    world.add([5, 15, 6, 25])
    world.absent.tick(world.window)
    world.absent.probed(0, 0)
    world.absent.leave_proven(world.window, world.index, world.window.oldest)
    assert world.absent.leaving
    assert world.absent.leave(world.window)
    assert not world.absent.leaving
    assert world.out() == [0, 2]
    assert world.context.stats.unmatched == 2
    assert world.window.count == 2


@pytest.mark.parametrize("master", [None, TEXT_KEY], ids=["exact", "hashed"])
def test_the_tuples_of_the_oldest_key_leave_in_batches(master: Any) -> None:
    world = World(rows=2, master=master)
    keys = [5, 7, 5, 5, 5, 5]
    world.add(keys if master is None else [str(key) for key in keys])
    world.absent.leave_head(world.window.oldest)
    assert not world.absent.leave(world.window)
    assert world.out() == [0, 2]
    assert not world.absent.leave(world.window)
    assert world.absent.leave(world.window)
    assert world.out() == [3, 4, 5]
    assert (world.context.stats.unmatched, world.window.count) == (5, 1)
    assert not world.absent.leaving


@pytest.mark.parametrize(("how", "rows"), [("left", 1), ("left_anti", 1), ("inner", 0)])
def test_only_some_hows_keep_them(how: str, rows: int) -> None:
    world = World(how)
    world.add([5])
    world.absent.leave_head(world.window.oldest)
    assert world.absent.leave(world.window)
    assert len(world.out()) == rows
    assert world.window.count == 0


def test_turns_start_over_before_they_overflow() -> None:
    world = World()
    world.add([5])
    world.absent._turn = 2**31 - 2
    world.absent.probed(0, 2)
    world.absent.tick(world.window)
    assert world.window.turn == 1
    assert not world.absent.is_proven(world.window, world.window.oldest, 0, 0)
    world.absent.tick(world.window)
    world.absent.probed(0, 0)
    assert world.absent.is_proven(world.window, world.window.oldest, 0, 0)


def test_bytes_per_page() -> None:
    assert World().absent.nbytes == 3 * PAGE_BYTES
