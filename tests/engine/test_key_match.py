"""Keys are compared themselves where their codes may be hashes: against Python's equality."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from engine.kit import Side, binding
from semistream.engine.key_match import KeyMatch
from semistream.engine.rows.page_columns import PageColumns
from semistream.engine.rows.row_store import RowStore
from semistream.engine.window.tuple_layout import TupleLayout

TEXTS = ["", "a", "b", "ab", "ab\0", "12345678", "12345679", "123456789", "é" * 9, "x" * 100]
BYTES = [text.encode() for text in TEXTS] + [b"\xff\xfe"]
WIDE = [Decimal(n) / 8 for n in (0, 8, -8, 2**80 * 8, 2**80 * 8 + 8, -(2**80) * 8, 24)]

# name -> (types of the stream, types of the master, keys as tuples, compared in compiled code)
CASES: dict[str, tuple[list[pa.DataType], list[pa.DataType], list[Any], bool]] = {
    "text": ([pa.string()], [pa.string()], [(t,) for t in TEXTS], True),
    "text, large in the master": ([pa.string()], [pa.large_string()], [(t,) for t in TEXTS], True),
    "text, large in the stream": ([pa.large_string()], [pa.string()], [(t,) for t in TEXTS], True),
    "binary": ([pa.binary()], [pa.large_binary()], [(b,) for b in BYTES], True),
    "fixed width": (
        [pa.binary(9)], [pa.binary(9)],
        [(b,) for b in (b"123456789", b"12345678X", b"X23456789", b"\0" * 9)], True,
    ),
    "binary of a fixed width and of any": (
        [pa.binary(2)], [pa.binary()], [(b,) for b in (b"ab", b"ac", b"\0\0")], False,
    ),
    "wide decimals": (
        [pa.decimal128(38, 3)], [pa.decimal128(38, 3)], [(d,) for d in WIDE], True,
    ),
    "decimals of other precision": (
        [pa.decimal128(30, 3)], [pa.decimal128(38, 3)], [(d,) for d in WIDE], True,
    ),
    "decimals of other scale": (
        [pa.decimal128(30, 3)], [pa.decimal128(38, 5)], [(d,) for d in WIDE], False,
    ),
    "decimals of other width": (
        [pa.decimal128(30, 3)], [pa.decimal256(60, 3)], [(d,) for d in WIDE], False,
    ),
    "decimal256": ([pa.decimal256(60, 3)], [pa.decimal256(60, 3)], [(d,) for d in WIDE], True),
    "text + int64": (
        [pa.string(), pa.int64()], [pa.string(), pa.int64()],
        list(itertools.product(["", "a", "12345678"], [0, 1, -(2**63)])), True,
    ),
    "bool + text + date": (
        [pa.bool_(), pa.string(), pa.date32()], [pa.bool_(), pa.string(), pa.date32()],
        list(itertools.product([True, False], ["", "xy"], [dt.date(1, 1, 1), dt.date(9, 9, 9)])),
        True,
    ),
    "three numbers": (
        [pa.int64(), pa.int64(), pa.bool_()], [pa.int64(), pa.int64(), pa.bool_()],
        list(itertools.product([1, -1], [2**62, 0], [True, False])), True,
    ),
    "a shorter integer in the stream": (
        [pa.string(), pa.int32()], [pa.string(), pa.int64()],
        list(itertools.product(["", "a"], [0, 1, -1])), False,
    ),
    "another unit of time": (
        [pa.string(), pa.timestamp("ms")], [pa.string(), pa.timestamp("us")],
        list(itertools.product(["", "a"], [dt.datetime(2000, 1, 1), dt.datetime(2000, 1, 2)])),
        False,
    ),
}  # fmt: skip
every_case = pytest.mark.parametrize("name", CASES)


class World:
    """Every key in the stream and, in another order, in two pages."""

    def __init__(self, name: str) -> None:
        stream, master, self.keys, self.compiled = CASES[name]
        names = [f"k{i}" for i in range(len(stream))]
        side = Side(pa.schema(zip(names, master, strict=True)), tuple(names))
        fields = [("a", pa.string()), *zip(names, stream, strict=True), ("b", pa.bool_())]
        self.binding = binding(side, pa.schema(fields))
        self.match = KeyMatch(self.binding)
        count = len(self.keys)
        order = list(range(count)) * 2
        np.random.default_rng(1).shuffle(order)
        self.page_keys = [order[: count // 2], order[count // 2 :]]
        self.columns = PageColumns(master, 2)
        for place, page in enumerate(self.page_keys):
            self.columns.put(place, self.arrays(master, page))
        self.batch = self.arrays(stream, range(count))

    def arrays(self, types: list[pa.DataType], numbers: Any) -> list[pa.Array]:
        """The columns of these keys; slices, so that they do not begin with their buffers."""
        numbers = [0, 0, 0, *numbers]
        return [
            pa.array([self.keys[n][i] for n in numbers], kind).slice(3)
            for i, kind in enumerate(types)
        ]

    def pairs(self) -> list[tuple[int, int, int, bool]]:
        """Every tuple with every row: (tuple, place, row, whether they have the same key)."""
        return [
            (n, place, row, n == other)
            for n in range(len(self.keys))
            for place, page in enumerate(self.page_keys)
            for row, other in enumerate(page)
        ]

    def stored(self) -> tuple[RowStore, list[int], Any]:
        """The tuples in a row store: (store, places of the key columns, slot of each tuple)."""
        schema, count = self.binding.stream_schema, len(self.keys)
        layout = TupleLayout(self.binding, schema)
        store = RowStore(layout.record, count + 2, 20_000)
        batch = pa.RecordBatch.from_arrays(
            [pa.array(["other"] * count), *self.batch, pa.array([True] * count)], schema=schema
        )
        slots = (np.arange(count, dtype=np.int32) + 1) * 7 % (count + 2)
        if len(set(slots.tolist())) < count:
            slots = np.arange(count, dtype=np.int32)[::-1].copy()
        store.put(layout.columns(batch), np.arange(count), slots)
        return store, layout.key_places, slots


@every_case
def test_keys_of_stored_tuples(name: str) -> None:
    world = World(name)
    assert not world.binding.codec.exact
    assert world.match.compiled is world.compiled
    store, wanted, slots = world.stored()
    tuples, places, rows, expected = map(np.array, zip(*world.pairs(), strict=True))
    same = world.match.same(store, wanted, slots[tuples], world.columns, places, rows)
    assert same is not None
    assert same.tolist() == expected.tolist()
    equal = np.flatnonzero(expected)
    args = slots[tuples[equal]], world.columns, places[equal], rows[equal]
    assert world.match.same(store, wanted, *args) is None  # all are


@every_case
def test_keys_of_a_batch(name: str) -> None:
    world = World(name)
    batch = PageColumns([column.type for column in world.batch], 1)
    batch.put(0, world.batch)
    tuples, places, rows, expected = map(np.array, zip(*world.pairs(), strict=True))
    same = world.match.same_rows(batch, tuples, world.columns, places, rows)
    assert same is not None
    assert same.tolist() == expected.tolist()
    equal = np.flatnonzero(expected)
    args = tuples[equal], world.columns, places[equal], rows[equal]
    assert world.match.same_rows(batch, *args) is None


@every_case
def test_no_pairs(name: str) -> None:
    world = World(name)
    store, wanted, slots = world.stored()
    none = np.zeros(0, np.int64)
    assert world.match.same(store, wanted, slots[:0], world.columns, none, none) is None


def test_stored_texts_that_have_moved() -> None:
    """The heap is compacted when slots are freed and others come."""
    world = World("text")
    store, wanted, slots = world.stored()
    store.free(slots[::2])
    kept = slots[1::2]
    tuples = np.arange(len(world.keys))[1::2]
    batch = [pa.array(["y" * 900]), pa.array(["z" * 500]), pa.array([False])]
    for _ in range(30):
        store.put(batch, np.zeros(1, np.int64), slots[:1])
        store.free(slots[:1])
    pairs = [pair for pair in world.pairs() if pair[0] in tuples]
    numbers, places, rows, expected = map(np.array, zip(*pairs, strict=True))
    owners = kept[(numbers - 1) // 2]
    same = world.match.same(store, wanted, owners, world.columns, places, rows)
    assert same is not None
    assert same.tolist() == expected.tolist()
