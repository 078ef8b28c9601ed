"""Room that pushes leave to those that have more to do, where the table changes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from engine.kit import layout, pages_of
from semistream.joins.sweep.push_reserve import PushReserve
from semistream.joins.sweep.stretch_window import StretchWindow, StretchWindowSize
from semistream.joins.sweep.stretches import Stretches

CHUNKS, SIZE = 640, 2


def window_of() -> StretchWindow:
    stretches = Stretches(pages_of([[10 * page] for page in range(8)]).index, 1)
    return StretchWindow(layout(), StretchWindowSize(CHUNKS * SIZE, 0, 0, SIZE), stretches)


def add(window: StretchWindow, count: int) -> int:
    """Tuples of one key, so that they fill chunks."""
    columns = [pa.array(range(count), pa.int64())]
    return window.add(np.full(count, 20), columns, np.arange(count), lambda _: [])


def push(reserve: PushReserve, window: StretchWindow, count: int) -> None:
    reserve.added(add(window, count))
    reserve.push_over(window)


def test_a_table_that_does_not_change_needs_none() -> None:
    reserve, window = PushReserve(), window_of()
    for _ in range(5):
        push(reserve, window, 20)
        reserve.visited(window)
    assert window.reserve == 0
    assert not reserve.has_moved


def test_it_holds_the_tuples_of_some_pushes_and_admission_leaves_it() -> None:
    reserve, window = PushReserve(), window_of()
    add(window, 4)
    reserve.version_moved(window)
    push(reserve, window, 8)
    assert window.reserve == 4 * 4
    assert window.vacant == (CHUNKS - 6 - 16) * SIZE
    assert add(window, CHUNKS * SIZE) == window.capacity - 12 - 16 * SIZE
    reserve.version_moved(window)
    assert window.vacant == 16 * SIZE
    push(reserve, window, 16)
    assert window.reserve == 8 + 8 // 2, "what is free, and room for half of a push"
    push(reserve, window, 0)
    assert window.reserve == 12, "a push without tuples changes nothing"


def test_it_is_a_small_part_of_the_window() -> None:
    reserve, window = PushReserve(), window_of()
    reserve.version_moved(window)
    push(reserve, window, 400)
    assert window.reserve == CHUNKS // 32


def test_a_push_that_makes_many_visits_takes_from_it() -> None:
    reserve, window = PushReserve(), window_of()
    reserve.version_moved(window)
    push(reserve, window, 8)
    for _ in range(2):
        reserve.visited(window)
    assert window.reserve == 16
    reserve.visited(window)
    assert window.reserve == 0
    push(reserve, window, 8)
    reserve.visited(window)
    assert window.reserve == 16, "visits are counted anew"


def test_of_pushes_that_all_move_to_a_new_version_every_second_one_does_other_work() -> None:
    reserve, window = PushReserve(), window_of()
    moved = []
    for _ in range(4):
        reserve.version_moved(window)
        moved.append(reserve.has_moved)
        reserve.push_over(window)
    assert moved == [True, False, True, False]


def test_an_empty_window_has_none() -> None:
    reserve, window = PushReserve(), window_of()
    reserve.version_moved(window)
    push(reserve, window, 8)
    slots, chunks, _ = window.collect(0, 8, 8)
    window.leave(slots)
    window.free(slots, chunks)
    reserve.push_over(window)
    assert window.reserve == 0
