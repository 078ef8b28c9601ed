"""Rows of a portion leave in the order of its tuples."""

from __future__ import annotations

import pyarrow as pa

from semistream.engine.reorder_buffer import ReorderBuffer
from semistream.engine.tuple_queue import TupleQueue

SCHEMA = pa.schema({"k": pa.int64(), "name": pa.string(), "price": pa.int64()})
PORTION = pa.record_batch({"k": [7, 3, 9], "name": ["a", None, "ccc"]})


def numbers(*given: int) -> pa.Array:
    return pa.array(given, pa.int64())


def test_rows_of_several_batches_come_in_the_order_of_their_tuples() -> None:
    buffer = ReorderBuffer(10_000)
    buffer.begin(PORTION, first=100)
    assert buffer.add(numbers(102, 100), [pa.array([90, 70])])
    assert buffer.add(numbers(100, 101), [pa.array([71, None])])
    assert (buffer.rows, buffer.is_sorted) == (4, False)
    buffer.sort()
    found = []
    while buffer.is_sorted:
        found += buffer.take(3, SCHEMA).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        (7, "a", 70), (7, "a", 71), (3, None, None), (9, "ccc", 90),
    ]  # fmt: skip
    assert (buffer.rows, buffer.nbytes) == (0, 0)


def test_rows_that_do_not_fit_are_not_kept() -> None:
    buffer = ReorderBuffer(100)
    buffer.begin(PORTION, first=0)
    assert buffer.add(numbers(0), [pa.array([1])])
    before = buffer.nbytes
    assert not buffer.add(numbers(*[1] * 20), [pa.array(range(20))])
    assert (buffer.rows, buffer.nbytes) == (1, before)


def test_rows_without_columns_of_the_master() -> None:
    buffer = ReorderBuffer(1000)
    buffer.begin(PORTION, first=0)
    buffer.add(numbers(2, 0), [])
    buffer.sort()
    assert buffer.take(9, PORTION.schema).to_pylist() == PORTION.take([0, 2]).to_pylist()


def test_a_queue_gives_the_oldest_tuples_of_one_version() -> None:
    queue = TupleQueue()
    for first, version in ((0, 1), (3, 1), (6, 2)):
        queue.push(pa.record_batch({"k": range(first, first + 3)}), version)
    batch, version = queue.take(4)
    assert (batch["k"].to_pylist(), version, queue.tuples) == ([0, 1, 2, 3], 1, 5)
    queue.put_back(batch.slice(2), 1)
    assert queue.take(9) == (pa.record_batch({"k": range(2, 6)}), 1)
    queue.redirect(2, 3)
    assert queue.take(9)[1] == 3
    assert (bool(queue), queue.tuples, queue.nbytes) == (False, 0, 0)


def test_a_queue_keeps_no_batch_of_the_caller() -> None:
    """And copies a tuple once, however often more arrive."""
    queue = TupleQueue()
    given = pa.record_batch({"k": range(1000)})
    queue.push(given.slice(990), 1)
    queue.keep_copies()
    first, _ = queue.take(9)
    address = first.column(0).buffers()[1].address
    assert address != given.column(0).buffers()[1].address
    queue = TupleQueue()
    queue.push(given, 1)
    queue.keep_copies()
    queue.push(given, 1)
    addresses = []
    for _ in range(2):
        queue.keep_copies()
        addresses.append([one.batch.column(0).buffers()[1].address for one in queue._batches])
    assert addresses[0] == addresses[1]
    assert queue.nbytes == 2 * given.nbytes
