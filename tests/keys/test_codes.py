"""Codes of every key type. They are part of the table format: these values must never change."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.keys import KeyCodec

TEXTS = ["", "a", "12345678", "longer than eight bytes: \u00e9"]
DAYS = [dt.date(1970, 1, 1), dt.date(2024, 2, 29)]


def codes(*columns: pa.Array) -> list[int]:
    found, valid = KeyCodec.for_types([c.type for c in columns]).codes(list(columns))
    assert valid is None
    return found.tolist()


_TEXT_CODES = [-2152535657050944081, -3503551388772959629, -65686651707423253, 6229700107818102054]
PINNED: dict[str, tuple[list[pa.Array], list[int]]] = {
    "string": ([pa.array(TEXTS)], _TEXT_CODES),
    "large_string": ([pa.array(TEXTS, pa.large_string())], _TEXT_CODES),
    "dictionary": ([pa.array(TEXTS).dictionary_encode()], _TEXT_CODES),
    "string_view": ([pa.array(TEXTS, pa.string_view())], _TEXT_CODES),
    "binary": (
        [pa.array([b"", b"\0", b"\0\0", b"\xff" * 9])],
        [-2152535657050944081, -4556599160875839514, 7672073202031479054, -4251623185538658200],
    ),
    "fixed_size_binary": (
        [pa.array([b"\0\0\0", b"abc"], pa.binary(3))],
        [1002545363230947925, 1856639733928048892],
    ),
    "decimal128 wide": (
        [
            pa.array(
                [Decimal("-1.5"), Decimal("0"), Decimal("12345678901234567890.5")],
                pa.decimal128(38, 1),
            )
        ],
        [-5033489627176275434, -6411193824288604561, 6040168522234109900],
    ),
    "decimal256": (
        [pa.array([Decimal(-1), Decimal(10**50)], pa.decimal256(60, 0))],
        [-7176936699531724329, -6626979371213871103],
    ),
    "int64, int64": (
        [pa.array([0, -1, 2**62]), pa.array([0, 5, -(2**63)])],
        [-6411193824288604561, 3846658174030194800, 1628161983107081010],
    ),
    "string, int32, date32": (
        [pa.array(["a", ""]), pa.array([1, -1], pa.int32()), pa.array(DAYS)],
        [-3096821586142781824, 2587838370968959033],
    ),
}


@pytest.mark.parametrize("kind", list(PINNED))
def test_hashes_are_part_of_the_format(kind: str) -> None:
    columns, expected = PINNED[kind]
    assert codes(*columns) == expected
    assert not KeyCodec.for_types([c.type for c in columns]).exact


def test_a_null_changes_no_other_code() -> None:
    texts = pa.array(["", None, "a"])
    found, valid = KeyCodec.for_types([pa.string()]).codes([texts])
    assert valid is not None
    assert valid.tolist() == [True, False, True]
    assert found[[0, 2]].tolist() == _TEXT_CODES[:2]


NATIVE = [pa.int64(), pa.timestamp("ns"), pa.timestamp("s", "UTC"), pa.date64(), pa.time64("us")]
NATIVE += [pa.duration("ms")]


@pytest.mark.parametrize("kind", NATIVE, ids=str)
def test_codes_of_native_keys_are_the_columns_buffer(kind: pa.DataType) -> None:
    codec = KeyCodec.for_types([kind])
    assert codec.exact
    assert codec.native
    column = pa.array([1, 5, 86_400_000], pa.int64()).view(kind).slice(1)
    found, _ = codec.codes([column])
    assert found.tolist() == [5, 86_400_000]
    assert found.__array_interface__["data"][0] == column.buffers()[1].address + 8


@pytest.mark.parametrize(
    "types",
    [
        [pa.int32()],
        [pa.uint64()],
        [pa.decimal128(9, 2)],
        [pa.bool_()],
        [pa.date32()],
        [pa.string()],
        [pa.int32(), pa.int32()],
    ],
    ids=str,
)
def test_other_keys_are_not_native(types: list[pa.DataType]) -> None:
    assert not KeyCodec.for_types(types).native


# -- short composites --------------------------------------------------------------------------

EXTREMES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [False, True]),
    "int8": (pa.int8(), [-128, -1, 0, 127]),
    "uint8": (pa.uint8(), [0, 1, 255]),
    "int16": (pa.int16(), [-(2**15), 0, 2**15 - 1]),
    "uint16": (pa.uint16(), [0, 2**16 - 1]),
    "int32": (pa.int32(), [-(2**31), -1, 0, 1, 2**31 - 1]),
    "uint32": (pa.uint32(), [0, 2**31, 2**32 - 1]),
    "date32": (pa.date32(), [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31)]),
    "time32": (pa.time32("ms"), [dt.time(), dt.time(23, 59, 59, 999_000)]),
    "decimal": (pa.decimal128(4, 2), [Decimal("-99.99"), Decimal("0.00"), Decimal("99.99")]),
}
SHORT = [
    ["int32", "int32"],
    ["int32", "uint32"],
    ["uint32", "int32"],
    ["bool", "int8", "uint8", "int16", "bool"],
    ["date32", "time32"],
    ["decimal", "uint16", "int32"],
    ["int16", "date32", "bool"],
    ["uint16", "uint16", "uint16", "uint16"],
]


@pytest.mark.parametrize("kinds", SHORT, ids="+".join)
def test_codes_of_short_composites_are_in_key_order(kinds: list[str]) -> None:
    rng = random.Random(str(kinds))
    types = [EXTREMES[kind][0] for kind in kinds]
    keys = {tuple(rng.choice(EXTREMES[kind][1]) for kind in kinds) for _ in range(300)}
    ordered = sorted(keys)
    columns = [
        pa.array(list(values), t)
        for values, t in zip(zip(*ordered, strict=False), types, strict=True)
    ]
    codec = KeyCodec.for_types(types)
    assert codec.exact
    found, valid = codec.codes(columns)
    assert valid is None
    assert bool(np.all(found[1:] > found[:-1])), "as many codes as keys, in the same order"
    assert found.dtype == np.int64
    assert np.array_equal(codec.sortable(columns), found)


def test_packed_codes_are_part_of_the_format() -> None:
    pair = [
        pa.array([-(2**31), 0, 2**31 - 1], pa.int32()),
        pa.array([0, 0, 2**32 - 1], pa.uint32()),
    ]
    assert codes(*pair) == [-(2**63), 0, 2**63 - 1]
    triple = [pa.array([-1], pa.int8()), pa.array([True]), pa.array([DAYS[0]])]
    assert codes(*triple) == [(127 << 33) + (1 << 32) + 2**31]
    money = [pa.array([Decimal("-0.01")], pa.decimal128(3, 2)), pa.array([3], pa.uint8())]
    assert codes(*money) == [(999 << 8) + 3]


@pytest.mark.parametrize(
    "types",
    [
        [pa.int64(), pa.bool_()],
        [pa.int32(), pa.int32(), pa.bool_()],
        [pa.int8(), pa.string()],
        [pa.decimal128(19, 0), pa.int8()],
        [pa.uint64(), pa.bool_()],
        [pa.timestamp("s"), pa.int8()],
    ],
    ids=str,
)
def test_longer_composites_are_hashed(types: list[pa.DataType]) -> None:
    assert not KeyCodec.for_types(types).exact


def test_a_stream_value_out_of_range_cannot_match() -> None:
    """It must not spill into the bits of another column."""
    codec = KeyCodec.for_types([pa.int8(), pa.uint16()])
    first = pa.array([1, 1, 1, 200, -129, None, 1], pa.int64())
    second = pa.array([5, -1, 2**16, 5, 5, 5, 2**16 - 1], pa.int64())
    found, valid = codec.codes([first, second])
    assert valid is not None
    assert valid.tolist() == [True, False, False, False, False, False, True]
    inside = codes(pa.array([1, 1], pa.int8()), pa.array([5, 2**16 - 1], pa.uint16()))
    assert found[valid].tolist() == inside


def test_a_stream_decimal_with_more_digits_cannot_match() -> None:
    """Its low word alone would be the code of another value."""
    for kind in ([pa.decimal128(10, 0)], [pa.decimal128(10, 0), pa.int8()]):
        wide = pa.array([Decimal(2**64 + 5), Decimal(5), Decimal(-(10**10))], pa.decimal128(38, 0))
        others = [pa.array([1, 1, 1], pa.int8())] * (len(kind) - 1)
        _, valid = KeyCodec.for_types(kind).codes([wide, *others])
        assert valid is not None
        assert valid.tolist() == [False, True, False]
