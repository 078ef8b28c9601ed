"""SweepJoin's window: tuples wait for a stretch, are collected with it, and free their chunks."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from engine.kit import STREAM, Side, layout, pages_of
from semistream.joins.sweep.stretch_window import StretchWindow, StretchWindowSize
from semistream.joins.sweep.stretches import Stretches
from semistream.keys import KeyCodec
from semistream.master.index import PageIndex

CODEC = KeyCodec.for_types([pa.int64()])
PAGES = pages_of([[0], [10], [20], [30]])
TEXT = pa.schema([("k", pa.int64()), ("t", pa.string())])


def window_of(chunks: int, size: int, schema: pa.Schema = STREAM, heap: int = 0) -> StretchWindow:
    wanted = StretchWindowSize(chunks * size, heap, 0, size)
    return StretchWindow(layout(schema), wanted, Stretches(PAGES.index, 1))


def no_keys(rows: Any) -> list[pa.Array]:
    raise AssertionError("codes are enough")


def collect(window: StretchWindow, stretch: int) -> tuple[Any, Any]:
    """The tuples of one stretch, and their chunks."""
    slots, chunks, end = window.collect(stretch, stretch + 1, 0)
    assert end == (stretch + 1 if len(slots) else stretch)
    return slots, chunks


def add(window: StretchWindow, keys: list[int], first: int = 0) -> int:
    columns = [pa.array(range(first, first + len(keys)), pa.int64())]
    return window.add(np.array(keys, np.int64), columns, np.arange(len(keys)), no_keys)


def numbers(window: StretchWindow, slots: Any) -> list[int]:
    return sorted(window.take(slots)[1].to_pylist())


def test_tuples_are_collected_by_their_stretch() -> None:
    window = window_of(10, 2)
    assert add(window, [5, 25, 7, 35, -3, 11]) == 6
    assert window.next_needed(0) == 0
    slots, chunks = collect(window, 0)
    assert numbers(window, slots) == [0, 2, 4]
    assert len(chunks) == 2
    assert window.next_needed(0) == 1
    assert window.next_needed(3) == 3
    for stretch in (1, 2, 3):
        collect(window, stretch)
    assert window.next_needed(0) == -1


def test_a_window_is_full_when_no_chunk_is_free() -> None:
    window = window_of(2, 2)
    assert window.vacant == 4
    assert add(window, [5, 15, 25]) == 2  # a third stretch finds no chunk
    assert window.vacant == 0
    assert add(window, [6, 16, 7], first=2) == 2  # but their chunks have room
    slots, chunks = collect(window, 0)
    assert numbers(window, slots) == [0, 2]
    window.free(slots, chunks)
    assert window.vacant == 2
    assert add(window, [25], first=9) == 1


def test_visits_gather_spare_chunks_for_the_next_shrink() -> None:
    window = window_of(20, 1)
    window.most_spare = 3
    assert (window.vacant, window.spare) == (20, 0)
    assert add(window, list(range(20))) == 20
    for stretch in (0, 1):
        slots, chunks = collect(window, stretch)
        window.leave(slots)
        window.free(slots, chunks)
    assert (window.free_chunks, window.spare, window.vacant) == (20, 3, 17)  # of 10 and 10: 2 each
    assert add(window, [25] * 20) == 17
    window.shrink(2, [])
    assert (window.free_chunks, window.spare, window.vacant) == (1, 1, 0)
    assert add(window, [25]) == 0
    slots, chunks = collect(window, 2)
    assert len(slots) == 17


def test_the_last_chunks_are_spared() -> None:
    window = window_of(20, 1)
    window.most_spare = 3
    for _ in range(4):
        add(window, list(range(20)))
        for stretch in (0, 1):
            slots, chunks = collect(window, stretch)
            window.leave(slots)
            window.free(slots, chunks)
    assert add(window, [25] * 20) == 17
    slots, _ = collect(window, 2)
    assert max(slots) == 16, "no tuple moves when the window shrinks"


def test_tuples_follow_their_stretches_to_another_version() -> None:
    """The pages of a folded delta come after those of the new version."""
    old = PageIndex(CODEC, np.array([0, 10, 5, 3]), np.zeros(4, np.bool_), boundaries=[2, 3])
    firsts = np.array([0, 10, 5, 2, 12, 3])
    new = PageIndex(CODEC, firsts, np.zeros(6, np.bool_), boundaries=[2, 3, 5], own_pages=5)
    before, after = Stretches(old, 1), Stretches(new, 1)
    window = StretchWindow(layout(), StretchWindowSize(40, 0, 0, 2), before)
    stretches = np.array([0, 3, 1, 2, 3, 3], np.int32)
    before.of = lambda keys: stretches  # type: ignore[method-assign]
    assert add(window, [1, 3, 11, 5, 3, 3]) == 6
    assert (before.shared_with(after, 3), after.own, len(after)) == (3, 5, 6)
    assert before.moved_to(after, 3) == 1
    window.follow(after, 3)
    found = [numbers(window, collect(window, stretch)[0]) for stretch in range(6)]
    assert found == [[0], [2], [3], [], [], [1, 4, 5]]


def test_tuples_follow_stretches_that_were_folded_before() -> None:
    """The next change folds another delta: its pages come before those of the older one."""
    firsts = np.array([0, 10, 5, 2, 12, 3])
    old = PageIndex(CODEC, firsts, np.zeros(6, np.bool_), boundaries=[2, 3, 5], own_pages=5)
    firsts = np.array([0, 10, 5, 1, 2, 12, 3])
    new = PageIndex(CODEC, firsts, np.zeros(7, np.bool_), boundaries=[2, 3, 4, 6], own_pages=4)
    before, after = Stretches(old, 1), Stretches(new, 1)
    assert (before.folded, after.folded) == ([5], [4, 6])
    window = StretchWindow(layout(), StretchWindowSize(40, 0, 0, 2), before)
    stretches = np.array([0, 5, 4, 3, 5, 1], np.int32)
    before.of = lambda keys: stretches  # type: ignore[method-assign]
    assert add(window, [1, 3, 12, 2, 3, 11]) == 6
    assert before.moved_to(after, 3) == 3
    window.follow(after, 3)
    found = [numbers(window, collect(window, stretch)[0]) for stretch in range(7)]
    assert found == [[0], [5], [], [], [3], [2], [1, 4]]


def test_tuples_are_added_and_removed() -> None:
    rng = random.Random(1)
    window, model, number = window_of(6, 3), {s: [] for s in range(4)}, 0
    for _ in range(200):
        keys = [rng.randrange(40) for _ in range(rng.randint(0, 6))]
        taken = add(window, keys, number)
        for i, key in enumerate(keys[:taken]):
            model[key // 10].append(number + i)
        number += len(keys)
        assert window.count == sum(map(len, model.values()))
        stretch = rng.randrange(4)
        slots, chunks = collect(window, stretch)
        assert numbers(window, slots) == model[stretch]
        window.count -= len(slots)
        window.free(slots, chunks)
        model[stretch] = []


def test_tuples_of_several_stretches_are_collected_together() -> None:
    window = window_of(10, 2)
    add(window, [5, 25, 7, 35])
    slots, chunks, end = window.collect(0, 4, 2)
    assert numbers(window, slots) == [0, 1, 2]  # stretches 0 and 2, with a page each
    assert (len(chunks), end) == (2, 3)
    assert window.next_needed(0) == 3


def test_values_and_keys_of_tuples() -> None:
    window = window_of(4, 2)
    add(window, [7, 5, 5, 8])
    slots, _ = collect(window, 0)
    pairs = zip(window.keys(slots)[0].to_pylist(), window.take(slots)[1].to_pylist(), strict=True)
    assert sorted(pairs) == [(5, 1), (5, 2), (7, 0), (8, 3)]
    window.leave(slots[:3])
    assert window.count == 1
    assert len(window.take(slots)[0]) == 4  # their values stay


def test_keys_decide_where_codes_are_hashes() -> None:
    pages = pages_of([["b"], ["d"], ["f"]], pa.string())
    stream = pa.schema([("k", pa.string()), ("a", pa.int64())])
    size = StretchWindowSize(8, 1000, 0, 1)
    window = StretchWindow(layout(stream, pages), size, Stretches(pages.index, 1))
    batch = pa.record_batch({"k": ["f", "x", "a", "d"], "a": range(4)})
    rows = np.array([0, 2, 3])
    columns = window.layout.columns(batch)

    def keys(some: Any) -> list[pa.Array]:
        return [batch.column("k").take(pa.array(some)).cast(pa.large_binary())]

    assert window.add(np.zeros(4, np.int64), columns, rows, keys) == 3
    for stretch, tuples in ((0, [2]), (1, [3]), (2, [0])):
        assert numbers(window, collect(window, stretch)[0]) == tuples


def test_a_new_version_has_new_stretches() -> None:
    window = window_of(4, 2)
    window.wait_for(Stretches(pages_of([[0], [100]]).index, 1))
    assert add(window, [99, 100]) == 2
    assert numbers(window, collect(window, 0)[0]) == [0]


def test_texts_that_do_not_fit_stay_outside_the_window() -> None:
    window = window_of(10, 1, TEXT, heap=160)
    columns, codes = [pa.array(["x" * 20] * 10)], np.arange(10)
    taken = [window.add(codes, columns, np.arange(10), no_keys) for _ in range(4)]
    assert sum(taken) == window.count == 4
    assert taken[-1] == 0


@pytest.mark.parametrize("schema", [STREAM, TEXT], ids=["numbers", "text"])
@pytest.mark.parametrize("stretches", [1, 4, 1000])
@pytest.mark.parametrize("nbytes", [200, 1000, 12_345, 1_000_000])
def test_allocated_bytes_match_the_plan(schema: pa.Schema, stretches: int, nbytes: int) -> None:
    tuples = layout(schema, Side())
    heap = 0.0 if schema is STREAM else 40.0
    size = StretchWindow.size_for(tuples, nbytes, heap, 0, stretches)
    window = StretchWindow(tuples, size, Stretches(PAGES.index, 1))
    assert window.nbytes == size.nbytes <= nbytes
    assert size.capacity % size.chunk == 0
    lists = [window.codes, window.state, window._next_chunk, window._free]
    assert sum(a.nbytes for a in lists) + window.rows.nbytes + size.capacity == window.nbytes
    more = StretchWindow.size_for(tuples, 2 * nbytes, heap, 0, stretches)
    assert more.capacity > size.capacity


def test_the_heap_has_room_for_the_longest_tuple() -> None:
    tuples = layout(TEXT)
    longest = 5_000
    nbytes = StretchWindow.least_bytes(tuples) + longest
    size = StretchWindow.size_for(tuples, nbytes, 10.0, longest, 4)
    assert size.capacity >= 1
    assert size.nbytes <= nbytes
    assert size.heap >= longest
