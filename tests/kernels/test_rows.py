"""Records and the text heap against lists of Python values."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from semistream.kernels import rows as kernel
from semistream.kernels.column_forms import BITS

UNIT, LISTED = 8, 4  # entries of up to three units are listed when they are released
many = pytest.mark.parametrize("seed", range(20))


def address(array: Any) -> int:
    return int(array.ctypes.data)


def bits_of(flags: Any, before: int) -> tuple[Any, int]:
    """Flags as bits with others before them, and the position of the first."""
    bits = np.packbits([*[0] * before, *flags], bitorder="little")
    return bits, address(bits) * 8 + before


@many
@pytest.mark.parametrize("with_nulls", [False, True])
def test_fixed_values_round_trip_through_records(seed: int, with_nulls: bool) -> None:
    rng = np.random.default_rng(seed)
    forms = rng.permutation([1, 2, 4, 8, 16, 3, BITS, 8, 4, BITS, 2])[: rng.integers(1, 12)]
    widths = np.where(forms == BITS, 1, forms)
    places = np.cumsum([0, *widths[:-1]])
    mask, masks = int(widths.sum()) + 1, -(-len(forms) // 8) if with_nulls else 0
    size = mask + masks + int(rng.integers(0, 3))  # records need not be tight
    columns = [rng.integers(0, 256, (10, width), np.uint8) for width in widths]
    held, sources = [], []
    for c, form in enumerate(forms):
        if form == BITS:
            columns[c] &= 1
            bits, position = bits_of(columns[c][:, 0], int(rng.integers(0, 12)))
            held.append(bits)
            sources.append(position)
        else:
            sources.append(address(columns[c]))
    valid = [rng.random(10) < 0.7 if with_nulls and rng.random() < 0.7 else None for _ in forms]
    validity = []
    for flags in valid:
        bits, position = bits_of(flags, int(rng.integers(0, 12))) if flags is not None else (0, 0)
        held.append(bits)
        validity.append(position)
    records = np.zeros((30, size), np.uint8)
    rows = rng.integers(0, 10, 20)
    slots = rng.permutation(30)[:20].astype(np.int32)
    kernel.put_fixed(
        np.array(sources), np.array(validity), forms, places, rows, slots, address(records), size,
        mask, masks,
    )  # fmt: skip
    expected = np.zeros_like(records)
    for row, slot in zip(rows, slots, strict=True):
        expected[slot, mask : mask + masks] = 255
        for c, (column, place) in enumerate(zip(columns, places, strict=True)):
            expected[slot, place : place + column.shape[1]] = column[row]
            if valid[c] is not None and not valid[c][row]:
                expected[slot, mask + c // 8] &= ~np.uint8(1 << c % 8)
    assert (records == expected).all()

    chosen = rng.permutation(len(forms))[: rng.integers(1, len(forms) + 1)]
    back = [np.empty((20, width), np.uint8) for width in widths[chosen]]
    bitmaps = [np.empty(3, np.uint8) for _ in chosen]
    wanted = np.array([valid[c] is not None for c in chosen])
    nulls = np.zeros(len(chosen), np.bool_)
    kernel.take_fixed(
        np.array([address(column) for column in back]),
        np.array([address(bits) for bits in bitmaps]) * wanted, forms[chosen], places[chosen],
        chosen, slots, address(records), size, mask, nulls,
    )  # fmt: skip
    for c, taken, bits, null in zip(chosen, back, bitmaps, nulls, strict=True):
        if forms[c] == BITS:
            taken = np.unpackbits(taken[:, 0], count=20, bitorder="little")[:, None]
        assert (taken == columns[c][rows]).all()
        if valid[c] is not None:
            found = np.unpackbits(bits, count=20, bitorder="little").astype(np.bool_)
            assert (found == valid[c][rows]).all()
        assert null == (valid[c] is not None and not valid[c][rows].all())


@many
def test_values_are_picked(seed: int) -> None:
    rng = np.random.default_rng(seed)
    widths = rng.permutation([1, 2, 4, 8, 16, 3])[: rng.integers(1, 7)]
    columns = [rng.integers(0, 256, (10, width), np.uint8) for width in widths]
    sources = np.array([address(column) for column in columns])
    rows = rng.integers(0, 10, 20)
    picked = [np.empty((20, width), np.uint8) for width in widths]
    targets = np.array([address(column) for column in picked])
    kernel.pick(targets, sources, widths, rows)
    for column, taken in zip(columns, picked, strict=True):
        assert (taken == column[rows]).all()


def text_column(values: list[bytes | None], before: bytes = b"") -> tuple[Any, Any, Any]:
    """(offsets, content, bits of the validity) as Arrow has them, with other bytes before the
    first value; no bits if there is no null."""
    lengths = [len(value or b"") for value in values]
    offsets = np.cumsum([len(before), *lengths]).astype(np.int32)
    content = np.frombuffer(before + b"".join(v or b"" for v in values), np.uint8).copy()
    flags = [v is not None for v in values] if None in values else []
    return offsets, content, np.packbits(np.array(flags, np.bool_), bitorder="little")


def position(bits: Any) -> int:
    return address(bits) * 8 if len(bits) else 0


def units(value: bytes | None) -> int:
    return 0 if value is None else 1 + -(-len(value) // UNIT)


class Heap:
    """Texts of two columns in one heap."""

    def __init__(self, capacity: int, size: int) -> None:
        self.heap = np.empty(size * UNIT, np.uint8)
        self.headers = self.heap.view(np.int32)
        self.positions = np.full((capacity, 2), -1, np.int32)
        self.vacant = np.full(LISTED, -1, np.int32)
        self.top = self.compacted = 0

    def put(self, values: list[bytes | None], slots: list[int], column: int) -> None:
        """Put values that lie in every other row of a column, compacting the heap if need be."""
        offsets, content, valid = text_column([v for v in values for _ in (0, 1)], b"xyz")
        done = 0
        while True:
            done, self.top = kernel.put(
                offsets, content, position(valid), np.arange(0, 2 * len(values), 2),
                np.array(slots, np.int32), column, 2, self.heap, self.headers, self.positions,
                self.vacant, self.top, done,
            )  # fmt: skip
            if done == len(values):
                return
            self.compact()

    def release(self, slots: list[int]) -> int:
        gone = np.array(slots, np.int32)
        return int(kernel.release(gone, self.headers, self.positions, self.vacant))

    def compact(self) -> None:
        self.top = kernel.compact(self.heap, self.headers, self.positions, self.vacant, self.top)
        self.compacted += 1

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
    heap = Heap(10, 10 * 2 * units(bytes(30)))  # just enough if all are of the longest
    held: dict[int, list[bytes | None]] = {}
    for _ in range(60):
        new = [slot for slot in range(10) if slot not in held and rng.random() < 0.4]
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


def test_a_released_entry_is_taken_by_the_next_text_of_its_size() -> None:
    """Texts of one size need no room beside their own, and no compaction."""
    heap = Heap(4, 4 * units(bytes(9)))
    heap.put([b"a" * 9, b"b" * 10, b"c" * 16, b"d" * 12], [0, 1, 2, 3], 0)
    for turn in range(10):
        gone = [turn % 4, (turn + 2) % 4]
        assert heap.release(gone) == 6
        heap.put([b"e" * 15, b"f" * 9], gone, 0)
        assert heap.take(gone, 0) == [b"e" * 15, b"f" * 9]
    assert heap.compacted == 0


def test_texts_beyond_the_listed_sizes_wait_for_a_compaction() -> None:
    long = bytes(UNIT * LISTED)
    heap = Heap(2, 2 * units(long))
    heap.put([long, b"short"], [0, 1], 0)
    for _ in range(3):
        heap.release([0])
        heap.put([long], [0], 0)
    assert heap.compacted == 3
    assert heap.take([0, 1], 0) == [long, b"short"]


@many
def test_rows_that_fit(seed: int) -> None:
    rng = random.Random(seed)
    columns = [[random_text(rng) for _ in range(10)] for _ in range(rng.randint(1, 3))]
    large = [rng.random() < 0.5 for _ in columns]
    parts = [text_column(values, b"before") for values in columns]
    offsets = [
        part[0].astype(np.int64 if wide else np.int32)
        for part, wide in zip(parts, large, strict=True)
    ]
    rows = np.array(rng.choices(range(10), k=rng.randint(0, 20)), np.int64)
    needed = [sum(units(values[row]) for values in columns) for row in rows.tolist()]
    ends = np.cumsum([0, *needed])
    for room in (0, rng.randint(0, 60), int(ends[-1]) - 1, int(ends[-1])):
        count, taken = kernel.fitting(
            np.array([address(part) for part in offsets]),
            np.array([len(content) for _, content, _ in parts]),
            np.array([position(bits) for _, _, bits in parts]), np.array(large), rows, room,
        )  # fmt: skip
        assert count == max((i for i, end in enumerate(ends) if end <= room), default=0)
        assert taken == ends[count]


@pytest.mark.parametrize("offsets", [[-1, 2], [2, 1], [0, 4]])
def test_a_non_null_text_outside_its_content_is_detected(offsets: list[int]) -> None:
    bad, null = np.array(offsets, np.int32), np.zeros(1, np.uint8)
    for validity, fitting in ((0, -1), (address(null) * 8, 1)):
        count, _ = kernel.fitting(
            np.array([address(bad)]), np.array([3]), np.array([validity]), np.array([False]),
            np.zeros(1, np.int64), 9,
        )  # fmt: skip
        assert count == fitting
