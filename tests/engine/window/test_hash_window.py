"""The windows of the published joins: tuples wait, are paired, and leave in their order."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from engine.kit import STREAM, Side, layout
from semistream.engine.shape import tuple_heap_bytes
from semistream.engine.window.hash_window import HashWindow, QueueWindow, RingWindow
from semistream.engine.window.tuple_layout import WindowSize
from semistream.kernels import states
from semistream.keys import KeyCodec
from semistream.master.changed import ChangedCodes
from semistream.master.delta_codes import Delta, DeltaCodes
from semistream.master.index import PageIndex

TEXT = pa.schema([("k", pa.int64()), ("t", pa.string())])
NESTED = pa.schema([("k", pa.string()), ("l", pa.list_(pa.int64()))])
SIDES = {id(STREAM): None, id(TEXT): None, id(NESTED): Side(pa.schema([("k", pa.string())]))}
every_kind = pytest.mark.parametrize("kind", [RingWindow, QueueWindow])


def window_of(kind: type[HashWindow], capacity: int) -> Any:
    return kind(layout(), WindowSize(capacity, 0, 0))


def add(window: Any, keys: list[int], first: int = 0) -> int:
    """Tuples with these keys; ``a`` counts them."""
    columns = [pa.array(range(first, first + len(keys)), pa.int64())]
    return window.add(np.array(keys, np.int64), columns, np.arange(len(keys)))


def pairs(window: Any, page: list[int], mark: bool = False) -> list[tuple[int, int]]:
    """(page row, ``a``) of every match."""
    cursor = np.array([0, -1])
    rows, slots = np.empty(1000, np.int32), np.empty(1000, np.int32)
    found = window.probe(np.array(page, np.int64), None, cursor, mark, False, rows, slots)
    numbers = window.take(slots[:found])[1].to_pylist()
    return list(zip(rows[:found].tolist(), numbers, strict=True))


@every_kind
def test_all_tuples_of_a_key_are_paired_oldest_first(kind: type[HashWindow]) -> None:
    window = window_of(kind, 10)
    assert add(window, [5, 7, 5, 5]) == 4
    assert pairs(window, [7, 5, 6]) == [(0, 1), (1, 0), (1, 2), (1, 3)]
    assert window.keys(np.array([1, 0], np.int32))[0].to_pylist() == [7, 5]


@every_kind
def test_a_full_window_accepts_what_fits(kind: type[HashWindow]) -> None:
    window = window_of(kind, 3)
    assert add(window, [1, 2]) == 2
    assert add(window, [3, 4], first=2) == 1
    assert (window.count, window.vacant) == (3, 0)
    assert add(window, [9]) == 0
    assert pairs(window, [3, 4, 9]) == [(0, 2)]


@every_kind
def test_one_slot(kind: type[HashWindow]) -> None:
    window = window_of(kind, 1)
    for turn in range(5):
        assert add(window, [turn, turn], first=turn) == 1
        assert pairs(window, [turn], mark=True) == [(0, turn)]
        if kind is RingWindow:
            window.expire(1)
        else:
            assert window.remove(np.array([turn])) == 1
        assert (window.count, window.vacant) == (0, 1)
        assert pairs(window, [turn]) == []


def test_a_ring_releases_tuples_in_arrival_order() -> None:
    rng = random.Random(1)
    window, model, number = window_of(RingWindow, 7), [], 0
    for _ in range(100):
        keys = [rng.randrange(3) for _ in range(rng.randint(0, 4))]
        taken = add(window, keys, number)
        assert taken == min(len(keys), 7 - len(model))
        model += [(key, number + i) for i, key in enumerate(keys[:taken])]
        number += len(keys)
        gone = rng.randint(0, len(model))
        oldest = window.take(window.oldest(gone))
        assert [c.to_pylist() for c in oldest] == [[t[i] for t in model[:gone]] for i in (0, 1)]
        window.expire(gone)
        del model[:gone]
        assert window.count == len(model)
        assert pairs(window, [0, 1, 2]) == [(r, a) for r in range(3) for k, a in model if k == r]


def test_a_queue_releases_matched_tuples_at_any_position() -> None:
    rng = random.Random(2)
    window, model, number = window_of(QueueWindow, 7), [], 0
    for _ in range(100):
        keys = [rng.randrange(4) for _ in range(rng.randint(0, 4))]
        taken = add(window, keys, number)
        model += [(key, number + i) for i, key in enumerate(keys[:taken])]
        number += len(keys)
        if model:
            oldest = window.take(np.array([window.oldest], np.int32))
            assert [c[0].as_py() for c in oldest] == list(model[0])
        key = rng.randrange(4)
        pairs(window, [key], mark=True)
        assert window.remove(np.array([key, 99])) == sum(k == key for k, _ in model)
        model = [(k, a) for k, a in model if k != key]
        assert window.count == len(model)
        assert window.remove(np.arange(4)) == 0  # the others wait


def test_the_tuples_of_a_code_are_released_in_batches() -> None:
    window = window_of(QueueWindow, 8)
    add(window, [1, 2, 1, 1, 2])
    slots, following = window.with_code(1, -1, 2)
    assert window.take(slots)[1].to_pylist() == [0, 2]
    assert following >= 0
    slots, following = window.with_code(1, following, 2)
    assert window.take(slots)[1].to_pylist() == [3]
    assert following == -1
    slots, following = window.with_code(9, -1, 2)
    assert (len(slots), following) == (0, -1)


def test_tuples_that_arrived_before_their_page_was_probed() -> None:
    window = window_of(QueueWindow, 8)
    add(window, [5, 15])
    window.turn = 3
    add(window, [6, 25], first=2)
    codec, firsts = KeyCodec.for_types([pa.int64()]), np.array([0, 10, 20])
    index = PageIndex(codec, firsts, np.zeros(3, np.bool_))
    probed = np.array([2, 0, 4], np.int32)  # pages 0 and 2, in turns 2 and 4
    found = window.proven(index, probed, 100)
    assert window.take(found)[1].to_pylist() == [0, 3]
    assert len(window.proven(index, probed, 1)) == 1
    cut = np.array([True, False, False])  # a key goes on from page 0 to page 1
    index = PageIndex(codec, firsts, cut)
    assert window.take(window.proven(index, probed, 100))[1].to_pylist() == [3]


def test_a_page_that_cuts_a_key_proves_nothing() -> None:
    window = window_of(QueueWindow, 8)
    add(window, [10, 9, 25])
    codec, firsts = KeyCodec.for_types([pa.int64()]), np.array([0, 10, 20])
    index = PageIndex(codec, firsts, np.array([True, False, False]))
    found = window.proven(index, np.array([2, 2, 2], np.int32), 100)
    assert window.take(found)[1].to_pylist() == [2]


def test_keys_of_deltas_are_proven_absent_by_pages_of_the_delta() -> None:
    window = window_of(QueueWindow, 8)
    add(window, [5, 6, 7, 25])
    codes = DeltaCodes(ChangedCodes(np.array([5, 6]), np.array([True, False])))
    index = PageIndex(
        KeyCodec.for_types([pa.int64()]), np.array([0, 10, 5]), np.zeros(3, np.bool_),
        boundaries=[2], deltas=[Delta(codes, 2, 3)],
    )  # fmt: skip
    found = window.proven(index, np.array([2, 0, 0], np.int32), 100)
    assert window.take(found)[1].to_pylist() == [1, 2], "6 is deleted, 7 would be in page 0"
    found = window.proven(index, np.array([0, 0, 2], np.int32), 100)
    assert window.take(found)[1].to_pylist() == [0, 1]


def test_marks_are_cleared_when_a_slot_is_reused() -> None:
    window = window_of(QueueWindow, 1)
    add(window, [1])
    pairs(window, [1], mark=True)
    assert window.state[0] == states.MATCHED
    window.remove(np.array([1]))
    add(window, [1])
    assert window.state[0] == states.WAITING


@every_kind
@pytest.mark.parametrize("schema", [STREAM, TEXT, NESTED], ids=["numbers", "text", "nested"])
@pytest.mark.parametrize("nbytes", [300, 1000, 12_345, 1_000_000])
def test_allocated_bytes_match_the_plan(kind: Any, schema: pa.Schema, nbytes: int) -> None:
    tuples = layout(schema, SIDES[id(schema)])
    heap = 0.0 if schema is STREAM else 40.0
    size = kind.size_for(tuples, nbytes, heap)
    window = kind(tuples, size)
    assert window.nbytes == size.nbytes <= nbytes
    assert own_bytes(window) + window.rows.nbytes == window.nbytes
    assert kind.size_for(tuples, 2 * nbytes, heap).capacity >= size.capacity
    assert nbytes - size.nbytes < 200 or schema is STREAM  # what is left is in the heap


def own_bytes(window: Any) -> int:
    """Bytes of its arrays; those that are views of one array count once."""
    arrays = [a for a in vars(window).values() if isinstance(a, np.ndarray)]
    owners = [a if a.base is None else a.base for a in arrays]
    return sum({id(owner): owner.nbytes for owner in owners}.values())


@every_kind
def test_the_heap_has_room_for_the_longest_tuple(kind: Any) -> None:
    tuples = layout(TEXT)
    columns = [pa.array(["x" * 5000])]
    heap = tuple_heap_bytes(tuples, columns, 0)
    least = kind.least_bytes(tuples) + heap
    size = kind.size_for(tuples, least, 10.0, heap)
    window = kind(tuples, size)
    assert window.nbytes <= least
    assert window.rows.first_too_large(columns) is None
    assert window.add(np.array([1]), columns, np.arange(1)) == 1


@every_kind
def test_texts_that_do_not_fit_stay_outside_the_window(kind: Any) -> None:
    tuples = layout(TEXT)
    window = kind(tuples, WindowSize(10, 160, 0))  # sixteen of twenty units of heap may be live
    columns, codes = [pa.array(["x" * 20] * 10)], np.arange(10)  # four units each
    taken = []
    while not taken or taken[-1]:
        taken.append(window.add(codes, columns, np.arange(10)))
    assert sum(taken) == window.count == 4
    assert window.take(np.arange(4, dtype=np.int32))[1].to_pylist() == ["x" * 20] * 4
