"""The hook of load shedding: which tuples a policy gives up, and where HYBRIDJOIN looks up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import naive
import semistream as ss
from engine.kit import STREAM, context, intake_and_output, layout, pages_of
from harness import build, check_books
from joins.sweep.test_stretch_window import add as add_to_stretches
from joins.sweep.test_stretch_window import collect, window_of
from joins.sweep.test_stretch_window import numbers as numbers_of
from overload.kit import all_of, batch, joined, master_rows
from semistream import kernels
from semistream.engine.intake import Intake
from semistream.engine.window.hash_window import QueueWindow
from semistream.engine.window.tuple_layout import WindowSize


def queue_of(keys: list[int], capacity: int = 1000, turns: bool = False) -> QueueWindow:
    window = QueueWindow(layout(STREAM), WindowSize(capacity, 0, 0))
    for number, key in enumerate(keys):
        window.turn = number if turns else 1
        columns = [pa.array([number], pa.int64())]
        assert window.add(np.array([key], np.int64), columns, np.arange(1)) == 1
    return window


def content(window: QueueWindow) -> list[int]:
    """The tuples of the queue, oldest first."""
    slots = np.empty(window.count, np.int32)
    kernels.window.oldest(window._newer, slots)
    return window.take(slots)[1].to_pylist()


class TestQueueWindow:
    def test_the_oldest_tuples_leave(self) -> None:
        window = queue_of([5, 7, 5, 9, 7, 5])
        assert [column.to_pylist() for column in window.release(3)] == [[5, 7, 5], [0, 1, 2]]
        assert content(window) == [3, 4, 5]
        assert window.count == 3
        assert window.with_code(5, -1, 10)[0].tolist() == [5]
        assert window.with_code(7, -1, 10)[0].tolist() == [4]

    def test_all_may_leave_and_others_come(self) -> None:
        window = queue_of([5, 7], capacity=2)
        assert window.release(10)[1].to_pylist() == [0, 1]
        assert (window.count, window.vacant) == (0, 2)
        columns = [pa.array([8, 9], pa.int64())]
        assert window.add(np.array([7, 5]), columns, np.arange(2)) == 2
        assert content(window) == [8, 9]

    def test_positions_in_the_queue(self) -> None:
        window = queue_of(list(range(1000)), turns=True)
        assert window.at(1.0) == window.oldest == 0
        for position in (0.0, 0.15, 0.5, 0.85):
            found = np.mean([window.at(position) for _ in range(50)])
            assert abs(found - 999 * (1 - position)) < 30

    def test_only_waiting_tuples_are_looked_up(self) -> None:
        window = queue_of(list(range(10)), capacity=1000, turns=True)
        assert all(window.at(0.3) < 10 for _ in range(200))
        window.release(9)
        assert {window.at(0.3) for _ in range(50)} == {9}


class TestStretchWindow:
    def test_the_farthest_stretch_is_behind_the_sweep(self) -> None:
        window = window_of(10, 2)
        add_to_stretches(window, [5, 25])
        assert [window.farthest(stretch) for stretch in (0, 1, 2, 3)] == [2, 0, 0, 2]
        collect(window, 0)
        collect(window, 2)
        assert window.farthest(1) == -1

    def test_whole_chunks_leave_and_newest_first(self) -> None:
        window = window_of(10, 2)
        add_to_stretches(window, [5, 6, 7, 8, 9])
        slots, chunks = window.pop(0, 3)
        assert numbers_of(window, slots) == [2, 3, 4]
        window.leave(slots)
        window.free(slots, chunks)
        assert (window.count, window.vacant) == (2, 18)
        assert add_to_stretches(window, [5, 5], first=7) == 2
        slots, chunks = window.pop(0, 1)  # at least one chunk
        assert numbers_of(window, slots) == [7, 8]
        slots, chunks = window.pop(0, 100)
        assert numbers_of(window, slots) == [0, 1]
        assert window.next_needed(0) == -1
        assert window._listed == 0, "no list is looked at"


def test_the_intake_gives_up_its_newest_tuples() -> None:
    intake: Intake = intake_and_output(context())[0]
    rows = pa.record_batch({"k": range(10), "a": range(10)}, schema=STREAM)
    for version in (1, 1, 2):
        intake.push(rows, version)
    intake.push(rows.slice(0, 0), 3)
    assert [part.column("a").to_pylist() for part in intake.withdraw(13)] == [
        [7, 8, 9],
        list(range(10)),
    ]
    part = intake.slice()
    intake.consume(4)
    assert [len(b) for b in intake.withdraw(100)] == [7]  # the slice in use stays
    assert intake.left == 6
    intake.consume(part.batch.num_rows)
    assert intake.version == 3


@pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))
def test_released_tuples_can_come_back(algorithm: str, tmp_path: Path) -> None:
    """Tuples leave and are queued again, again and again: the result is the naive join."""
    keys = range(0, 300, 2)
    master = build(tmp_path / "table", master_rows(keys), ["k"], unique=True, page_bytes=512)
    batches = [batch([7 * i % 330 for i in range(j, j + 90)], j) for j in range(0, 900, 90)]
    found: naive.Rows = []
    gave = 0
    with ss.join(algorithm, memory=60_000, how="left").open(master, on="k") as run:
        *_, policy = run.parts
        for number, one in enumerate(batches):
            found += all_of(run, run.push(one))
            policy.look_up_at(number / 10)
            released = policy.release(50)
            if released is not None:
                assert 0 < released.num_rows <= 50 + 64
                gave += released.num_rows
                run.requeue(released)
            found += all_of(run, run.step())
            check_books(run)
        found += all_of(run, run.flush())
        assert bool(gave) is policy.can_release
    naive.same_rows(found, joined(batches, keys, "left"))


@pytest.mark.parametrize("position", [0.0, 0.15, 1.0])
def test_hybridjoin_looks_up_where_it_is_told(position: float) -> None:
    source: Any = pages_of([[i] for i in range(40)])
    with ss.HybridJoin(memory=100_000, disk_buffer_pages=1).open(source, on="k") as run:
        *_, policy = run.parts
        stream = pa.record_batch({"k": range(40), "a": range(40)}, schema=STREAM)
        list(run.push(stream))
        policy.look_up_at(position)
        rows = [row["k"] for part in run.step() for row in part.to_pylist()]
    assert len(rows) == 1
    assert (rows == [0]) is (position == 1.0)
