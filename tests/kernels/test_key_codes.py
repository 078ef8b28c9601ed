"""The codes that compiled code computes from pages are those of the codec."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.kernels import page_nodes as problems
from semistream.master.codes import KeyCodes
from semistream.master.page_keys import PageKeys
from semistream.master.page_spec import PageSpec

KINDS = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
    pa.uint64(), pa.bool_(), pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("us"),
    pa.timestamp("ns"), pa.timestamp("us", "UTC"), pa.duration("s"), pa.decimal32(7, 2),
    pa.decimal64(16, 1), pa.decimal128(12, 2), pa.decimal128(18, 0), pa.decimal128(38, 4),
    pa.decimal256(15, 3), pa.decimal256(38, 0), pa.decimal256(70, 5), pa.string(),
    pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(0), pa.binary(5), pa.binary(16),
]  # fmt: skip
ROWS = 1500  # more than the kernel computes at once


def column(rng: random.Random, kind: pa.DataType) -> pa.Array:
    types = pa.types
    if types.is_boolean(kind):
        return pa.array([rng.random() < 0.5 for _ in range(ROWS)])
    if types.is_decimal(kind):
        most = 10**kind.precision
        ends = [most - 1, 1 - most, 0, -1]
        numbers = ends + [rng.randrange(1 - most, most) for _ in range(ROWS - 4)]
        return pa.array([Decimal(f"{n}e{-kind.scale}") for n in numbers], kind)
    if types.is_fixed_size_binary(kind):
        return pa.array([rng.randbytes(kind.byte_width) for _ in range(ROWS)], kind)
    if types.is_string(kind) or types.is_large_string(kind):
        texts = [rng.choice("aü") * rng.randrange(20) + str(rng.random()) for _ in range(ROWS)]
        return pa.array(["", *texts[1:]], kind)
    if types.is_binary(kind) or types.is_large_binary(kind):
        return pa.array([rng.randbytes(rng.randrange(30)) for _ in range(ROWS)], kind)
    bits = kind.bit_width
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if types.is_unsigned_integer(kind):
        low, high = 0, 2**bits - 1
    numbers = [low, high, *(rng.randint(low, high) for _ in range(ROWS - 2))]
    signed = f"{'u' if low == 0 else ''}int{bits}"
    return pa.array(np.array(numbers, signed)).view(kind)


class Page:
    """One page with random keys, in the order of their codes."""

    def __init__(self, kinds: list[pa.DataType], seed: int = 0) -> None:
        rng = random.Random(seed)
        names = [f"k{i}" for i in range(len(kinds))]
        columns = {name: column(rng, kind) for name, kind in zip(names, kinds, strict=True)}
        rows = pa.record_batch({"before": ["x"] * ROWS, **columns})
        self.codes = KeyCodes(rows.schema, names)
        order = np.argsort(self.codes.compute(rows), kind="stable")
        self.batch = self.codes.add(rows.take(pa.array(order)))
        self.stored = self.codes.stored(self.batch).copy()

    def problem(self, codes: Any = None, first: int | None = None, last: int | None = None) -> int:
        batch = self.batch
        if codes is not None:
            changed = pa.array(codes, pa.int64()).view(batch.schema.field(self.codes.column).type)
            batch = batch.set_column(
                batch.schema.get_field_index(self.codes.column),
                batch.schema.field(self.codes.column),
                changed,
            )
        page = batch.serialize()
        keys = PageKeys(self.codes, PageSpec(batch.schema, [*self.codes.key, self.codes.column]))
        problem = np.zeros((1, 2), np.int64)
        ends = [
            np.array([end if given is None else given])
            for end, given in ((self.stored[0], first), (self.stored[-1], last))
        ]
        keys.check(np.array([page.address]), *ends, problem)
        return int(problem[0, 0])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_keys_of_one_column(kind: pa.DataType) -> None:
    page = Page([kind])
    assert page.problem() == problems.FINE
    if page.codes.codec.native:
        return
    for row in (0, ROWS // 2, ROWS - 1):
        for bit in (0, 40, 63):
            other = page.stored.copy()
            other[row] ^= np.int64(1 << bit) if bit < 63 else np.int64(-(2**63))
            assert page.problem(other) == problems.WRONG_CODES


@pytest.mark.parametrize("seed", range(40))
def test_keys_of_several_columns(seed: int) -> None:
    rng = random.Random(seed)
    page = Page([rng.choice(KINDS) for _ in range(rng.randint(2, 4))], seed)
    assert page.problem() == problems.FINE
    other = page.stored.copy()
    other[rng.randrange(ROWS)] ^= 1 << rng.randrange(63)
    assert page.problem(other) == problems.WRONG_CODES


@pytest.mark.parametrize(
    ("kinds", "bits"),
    [
        ([pa.int16(), pa.bool_(), pa.date32()], 49),
        ([pa.int32(), pa.uint32()], 64),
        ([pa.decimal128(9, 2), pa.int8(), pa.uint16()], 55),
        ([pa.bool_(), pa.bool_()], 2),
    ],
)
def test_packed_keys(kinds: list[pa.DataType], bits: int) -> None:
    page = Page(kinds)
    assert page.codes.codec.packing is not None
    assert page.codes.codec.packing.bits == bits
    assert page.problem() == problems.FINE
    other = page.stored.copy()
    other[7] += 1
    assert page.problem(other) == problems.WRONG_CODES


def test_a_decimal_with_too_many_digits_has_no_code() -> None:
    page = Page([pa.decimal256(38, 0)])
    row = page.batch.column("k0").slice(5, 1)
    assert page.problem() == problems.FINE
    numbers = np.frombuffer(page.batch.column("k0").buffers()[1], np.uint64).copy().reshape(-1, 4)
    for words in ([0, 0, 1, 0], [0, 2**63, 0, 0], [2**64 - 1, 10**38 >> 64, 0, 0]):
        numbers[5] = words
        changed = pa.Array.from_buffers(row.type, ROWS, [None, pa.py_buffer(numbers.tobytes())])
        page.batch = page.batch.set_column(1, page.batch.schema.field(1), changed)
        assert page.problem() == problems.WRONG_CODES


@pytest.mark.parametrize("kind", [pa.int64(), pa.int32(), pa.string()], ids=str)
def test_the_order_and_the_ends(kind: pa.DataType) -> None:
    page = Page([kind])
    assert page.problem(first=int(page.stored[0]) + 1) == problems.WRONG_ENDS
    assert page.problem(last=int(page.stored[-1]) - 1) == problems.WRONG_ENDS
    order = np.arange(ROWS)
    order[[700, 701]] = order[[701, 700]]
    assert page.stored[700] != page.stored[701]
    page.batch = page.batch.take(pa.array(order))
    assert page.problem() == problems.OUT_OF_ORDER
