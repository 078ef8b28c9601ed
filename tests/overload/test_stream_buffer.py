"""The bytes of the stream buffer, the pace of iterations, and when there is overload."""

from __future__ import annotations

import random

from semistream.overload.stream_buffer import Pace, StreamBuffer, overload


def test_a_batch_holds_its_bytes_until_its_last_tuple_is_consumed() -> None:
    buffer = StreamBuffer()
    buffer.add(10, 100, offered=True)
    buffer.add(20, 400, offered=False)
    buffer.add(0, 8, offered=True)
    assert (buffer.rows, buffer.nbytes, buffer.newest) == (30, 500, 10)
    buffer.consumed_to(21)
    assert buffer.nbytes == 500
    buffer.consumed_to(20)
    assert buffer.nbytes == 400
    buffer.consumed_to(0)
    assert (buffer.rows, buffer.nbytes) == (0, 0)


def test_the_newest_tuples_are_withdrawn() -> None:
    buffer = StreamBuffer()
    buffer.add(10, 100, offered=True)
    buffer.add(20, 400, offered=True)
    buffer.withdraw(25)
    assert (buffer.rows, buffer.nbytes, buffer.entered) == (5, 50, 5)


def test_against_a_list_of_tuples() -> None:
    chance, buffer, model = random.Random(1), StreamBuffer(), []  # rows left of each batch
    for _ in range(500):
        rows = chance.randrange(1, 9)
        buffer.add(rows, 10 * rows, offered=True)
        model.append(rows)
        gone = chance.randrange(sum(model) + 1)
        buffer.withdraw(gone)
        while gone:
            last = min(gone, model[-1])
            model[-1] -= last
            gone -= last
            if not model[-1]:
                model.pop()
        left = chance.randrange(sum(model) + 1)
        buffer.consumed_to(left)
        while model and sum(model) - model[0] >= left:
            model.pop(0)
        assert buffer.rows == sum(model)
        assert buffer.nbytes == 10 * sum(model)


def test_the_pace_follows_what_iterations_take_in() -> None:
    pace = Pace()
    pace.note(50, 1, emptied=True)
    assert pace.per_iteration is None  # it could have been more
    pace.note(150, 2, emptied=False)
    assert pace.per_iteration == 100
    pace.note(150, 2, emptied=False)  # no iteration since
    assert pace.per_iteration == 100
    pace.note(250, 4, emptied=False)
    assert pace.per_iteration == 75
    pace.note(251, 5, emptied=True)
    assert pace.per_iteration == 75
    pace.note(451, 6, emptied=True)
    assert pace.per_iteration == 200


def test_more_than_twice_what_an_iteration_serves_is_overload() -> None:
    assert overload(200, 0, 100.0) == 0
    assert overload(201, 0, 100.0) == 1
    assert overload(1201, 1000, 100.0) == 1  # beside the batch that came last
    assert overload(50, 1000, 10.0) == 0
    assert overload(10**6, 0, None) == 0
