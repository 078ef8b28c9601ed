"""Records and the text heap against lists of Python values."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from semistream.kernels import rows as kernel

NO_MASK = np.zeros(0, np.bool_)
UNIT = 8
many = pytest.mark.parametrize("seed", range(20))


def address(array: Any) -> int:
    return int(array.ctypes.data)


@many
def test_fixed_values_round_trip_through_records(seed: int) -> None:
    rng = np.random.default_rng(seed)
    widths = rng.permutation([1, 2, 4, 8, 16, 3])[: rng.integers(1, 7)]
    places = np.cumsum([0, *widths[:-1]])
    size = int(widths.sum()) + int(rng.integers(0, 3))  # records need not be tight
    columns = [rng.integers(0, 256, (10, width), np.uint8) for width in widths]
    records = np.zeros((30, size), np.uint8)
    rows = rng.integers(0, 10, 20)
    slots = rng.permutation(30)[:20].astype(np.int32)
    sources = np.array([address(column) for column in columns])
    kernel.put_fixed(sources, widths, places, rows, slots, address(records), size)
    expected = np.zeros_like(records)
    for row, slot in zip(rows, slots, strict=True):
        for column, place in zip(columns, places, strict=True):
            expected[slot, place : place + column.shape[1]] = column[row]
    assert (records == expected).all()

    back = [np.empty((20, width), np.uint8) for width in widths]
    targets = np.array([address(column) for column in back])
    kernel.take_fixed(targets, widths, places, slots, address(records), size)
    for column, taken in zip(columns, back, strict=True):
        assert (taken == column[rows]).all()

    picked = [np.empty((20, width), np.uint8) for width in widths]
    targets = np.array([address(column) for column in picked])
    kernel.pick(targets, sources, widths, rows)
    for column, taken in zip(columns, picked, strict=True):
        assert (taken == column[rows]).all()


def text_column(values: list[bytes | None], before: bytes = b"") -> tuple[Any, Any, Any]:
    """(offsets, content, validity) as Arrow has them, with other bytes before the first value."""
    lengths = [len(value or b"") for value in values]
    offsets = np.cumsum([len(before), *lengths]).astype(np.int32)
    content = np.frombuffer(before + b"".join(v or b"" for v in values), np.uint8).copy()
    valid = np.array([v is not None for v in values]) if None in values else NO_MASK
    return offsets, content, valid


def units(value: bytes | None) -> int:
    return 0 if value is None else 1 + -(-len(value) // UNIT)


class Heap:
    """Texts of two columns in one heap."""

    def __init__(self, capacity: int, size: int) -> None:
        self.heap = np.empty(size * UNIT, np.uint8)
        self.headers = self.heap.view(np.int32)
        self.positions = np.full((capacity, 2), -1, np.int32)
        self.top = 0

    def put(self, values: list[bytes | None], slots: list[int], column: int) -> None:
        """Put values that lie in every other row of a column."""
        offsets, content, valid = text_column([v for v in values for _ in (0, 1)], b"xyz")
        self.top = kernel.put(
            offsets, content, valid, np.arange(0, 2 * len(values), 2), np.array(slots, np.int32),
            column, 2, self.heap, self.headers, self.positions, self.top,
        )  # fmt: skip

    def release(self, slots: list[int]) -> int:
        return int(kernel.release(np.array(slots, np.int32), self.headers, self.positions))

    def compact(self) -> None:
        self.top = kernel.compact(self.heap, self.headers, self.positions, self.top)

    def take(self, slots: list[int], column: int) -> list[bytes | None]:
        wanted, valid = np.array(slots, np.int32), np.empty(len(slots), np.bool_)
        offsets = np.empty(len(slots) + 1, np.int32)
        size, nulls = kernel.measure(wanted, column, self.headers, self.positions, offsets, valid)
        assert nulls == len(slots) - valid.sum()
        out = np.empty(size, np.uint8)
        kernel.gather(wanted, column, self.heap, self.positions, offsets, out)
        return [
            out[offsets[i] : offsets[i + 1]].tobytes() if valid[i] else None
            for i in range(len(slots))
        ]


def random_text(rng: random.Random) -> bytes | None:
    return rng.choice([None, b"", rng.randbytes(rng.randint(1, 30))])


@many
def test_texts_are_added_and_removed_and_the_heap_is_compacted(seed: int) -> None:
    rng = random.Random(seed)
    heap = Heap(10, 10 * 2 * units(bytes(30)))
    held: dict[int, list[bytes | None]] = {}
    for _ in range(30):
        new = [slot for slot in range(10) if slot not in held and rng.random() < 0.4]
        needed = sum(units(v) for values in held.values() for v in values)
        if heap.top + len(new) * 2 * units(bytes(30)) > len(heap.heap) // UNIT:
            heap.compact()
            assert heap.top == needed
        values = [[random_text(rng) for _ in new] for _ in range(2)]
        for column in range(2):
            heap.put(values[column], new, column)
        held.update({slot: [values[0][i], values[1][i]] for i, slot in enumerate(new)})
        gone = [slot for slot in held if rng.random() < 0.3]
        assert heap.release(gone) == sum(units(v) for slot in gone for v in held.pop(slot))
        if rng.random() < 0.3:
            heap.compact()
            assert heap.top == sum(units(v) for values in held.values() for v in values)
        wanted = rng.choices([*held], k=20) if held else []
        for column in range(2):
            assert heap.take(wanted, column) == [held[slot][column] for slot in wanted]


@many
def test_heap_units_of_texts(seed: int) -> None:
    rng = random.Random(seed)
    values = [random_text(rng) for _ in range(10)]
    offsets, content, valid = text_column(values, b"before")
    rows = np.array(rng.choices(range(10), k=rng.randint(0, 20)), np.int64)
    needed = kernel.units_needed(offsets, len(content), valid, rows)
    assert needed == sum(units(values[row]) for row in rows.tolist())


@pytest.mark.parametrize("offsets", [[-1, 2], [2, 1], [0, 4]])
def test_a_non_null_text_outside_its_content_is_detected(offsets: list[int]) -> None:
    bad, row = np.array(offsets, np.int32), np.zeros(1, np.int64)
    assert kernel.units_needed(bad, 3, NO_MASK, row) == -1
    assert kernel.units_needed(bad, 3, np.array([False]), row) == 0
