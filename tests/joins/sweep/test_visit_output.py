"""Output rows of several visits make one batch; slots are freed when it is handed over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from engine.kit import binding, context, emitted, intake_and_output, pages_of, stream_shape
from semistream.engine.plan import plan_memory
from semistream.engine.rows.page_columns import PageColumns
from semistream.engine.shape import TableShape
from semistream.joins.sweep.stretch_window import StretchWindow
from semistream.joins.sweep.stretches import Stretches
from semistream.joins.sweep.visit import Visit
from semistream.joins.sweep.visit_output import VisitOutput
from semistream.kernels import states

BATCH = pa.record_batch({"k": [5, 6, 7], "a": [0, 1, 2]})


class World:
    def __init__(self, how: str = "left", rows: int = 100) -> None:
        source = pages_of([[5, 6, 7]])
        self.context = context(binding(source, how=how))
        _, self.output = intake_and_output(self.context, rows)
        table = TableShape.of(source, self.context.binding)
        stream = stream_shape(BATCH)
        join = ss.join("sweepjoin", memory=100_000, how=how)
        self.plan: Any = plan_memory(join, table, stream)
        self.window = StretchWindow(stream.layout, self.plan.window, Stretches(source.index, 1))
        codes = self.context.binding.stream_codes(BATCH)[0]
        self.window.add(codes, stream.layout.columns(BATCH), np.arange(3), lambda _: [])
        slots, chunks, _ = self.window.collect(0, 1, 1)
        self.visit = Visit(np.arange(1), np.zeros(3, np.int32), slots, chunks)
        self.visits = VisitOutput(self.context, self.output, self.window, table, self.plan)
        self.columns = PageColumns(list(table.output_types), 1)
        self.columns.put(
            0, [source.pages[0].column(n) for n in self.context.binding.master_columns]
        )

    def add(self, *tuples: int) -> None:
        """Tuples, each with the page row of its key."""
        numbers = self.window.take(self.visit.slots)[1].to_pylist()
        slots = self.visit.slots[[numbers.index(number) for number in tuples]]
        rows, places = np.array(tuples, np.int64), np.zeros(len(tuples), np.int64)
        keeps = self.context.binding.keeps_master
        self.visits.add(self.columns if keeps else None, places, rows, slots)


def test_rows_are_held_until_they_are_handed_over() -> None:
    world = World()
    world.add(0)
    world.add(2, 1)
    assert not world.output
    vacant = world.window.vacant
    world.visits.add_served(world.visit)
    assert (world.visits.served_visits, world.visits.served_tuples) == (1, 3)
    assert world.window.vacant == vacant
    world.visits.hand_over()
    assert [(r["a"], r["v"]) for r in emitted(world.output)] == [(0, "5/0"), (2, "7/2"), (1, "6/1")]
    assert world.window.vacant > vacant
    assert (world.visits.served_visits, world.visits.served_tuples) == (0, 0)
    world.visits.hand_over()
    assert not world.output


def test_a_full_batch_goes_out_at_once() -> None:
    world = World(rows=2)
    assert world.visits.room() == 2
    world.add(0)
    assert world.visits.room() == 1
    world.add(1)
    assert len(emitted(world.output)) == 2
    assert world.visits.room() == 2


def test_a_wider_tuple_makes_batches_shorter() -> None:
    world = World(rows=3)
    world.add(0, 1)
    world.output.set_row_bytes(150)  # one row only
    assert world.visits.room() == 1
    assert len(emitted(world.output)) == 2


@pytest.mark.parametrize(("how", "matched", "absent"), [
    ("inner", 1, 0), ("left", 1, 2), ("left_semi", 1, 0), ("left_anti", 0, 2),
])  # fmt: skip
def test_output_of_each_how(how: str, matched: int, absent: int) -> None:
    world = World(how)
    world.add(0)
    left = world.visits.add_absent(world.visit.slots[1:])
    assert len(left) == 0
    world.visits.hand_over()
    assert len(emitted(world.output)) == matched + absent


def test_absent_tuples_without_room_are_returned_to_the_caller() -> None:
    world = World(rows=2)
    left = world.visits.add_absent(world.visit.slots)
    assert len(left) == 1
    assert len(emitted(world.output)) == 2
    assert (world.window.state[world.visit.slots[:2]] == states.ABSENT).all()
    assert len(world.visits.add_absent(left)) == 0
    world.visits.hand_over()
    assert len(emitted(world.output)) == 1


def test_bytes_are_within_the_plan() -> None:
    world = World()
    rows = world.plan.output_rows
    scratch = 3 * 4 * rows
    assert scratch <= world.visits.nbytes <= scratch + rows * (world.plan.widest_row + 4) + 4
