"""Numbers as join keys of any type, for Arrow and for a key-value store; vectorised.

Each codec keeps the order of the numbers (UUIDs have an order of their own), so that a table can be
generated in key order and a store be filled by appending.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]
TEXT_BYTES, UUID_BYTES, STORE_BYTES = 17, 36, 10
FIRST_SECOND = 1_600_000_000
FIRST_DAY = 18_000
_HEX = np.array([f"{byte:02x}".encode() for byte in range(256)], "S2").view(np.uint8).reshape(-1, 2)
_HYPHENS = (8, 13, 18, 23)
_DIGITS_OF_UUID = np.delete(np.arange(UUID_BYTES), _HYPHENS)


@dataclass(frozen=True)
class KeyCodec:
    """One kind of key: its columns, and its form in a key-value store.

    ``to_store`` returns the stored keys, all of one width, one after the other. ``as_integers`` is
    given if a dictionary can have plain integers as keys, which is the faster choice.
    """

    fields: tuple[pa.Field, ...]
    width: int
    to_arrow: Callable[[Numbers], list[pa.Array]]
    to_store: Callable[[list[pa.Array]], bytes]
    as_integers: Callable[[pa.Array], Numbers] | None = None
    in_key_order: Callable[[int], Numbers] | None = None  # default: the numbers' own order

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    def ordered(self, count: int) -> Numbers | None:
        """The numbers 1..count in the order of their keys; None if that is their own order."""
        return None if self.in_key_order is None else self.in_key_order(count)


def fixed_width_text(characters: npt.NDArray[np.uint8]) -> pa.Array:
    """A matrix of characters as text, one row each."""
    count, width = characters.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    data = pa.py_buffer(np.ascontiguousarray(characters))
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), data)


def characters_of(column: pa.Array, width: int) -> npt.NDArray[Any]:
    """The reverse: text of one width as NumPy strings, without a copy."""
    data = np.frombuffer(column.buffers()[2], f"S{width}")
    return data[column.offset : column.offset + len(column)]


def values_of(column: pa.Array) -> npt.NDArray[Any]:
    """The integers of a fixed-width column: days, microseconds, hundredths."""
    size = column.type.bit_width // 8
    words = np.frombuffer(column.buffers()[1], np.int32 if size == 4 else np.int64)
    if size == 16:  # a decimal of at most 18 digits fits into its lower word
        words = words[::2]
    return words[column.offset : column.offset + len(column)]


def _integer(kind: pa.DataType, scale: int = 1, base: int = 0) -> KeyCodec:
    def to_arrow(numbers: Numbers) -> list[pa.Array]:
        values = numbers * scale + base
        if pa.types.is_decimal(kind):
            words = np.zeros((numbers.size, 2), np.int64)
            words[:, 0] = values
            return [pa.Array.from_buffers(kind, numbers.size, [None, pa.py_buffer(words)])]
        narrow = values.astype(np.int32) if kind.bit_width == 32 else values
        return [pa.array(narrow).view(kind)]

    def as_integers(column: pa.Array) -> Numbers:
        return values_of(column).astype(np.int64)

    def to_store(columns: list[pa.Array]) -> bytes:
        return values_of(columns[0]).astype(">i8").tobytes()

    field = pa.field("product_id", kind, nullable=False)
    return KeyCodec((field,), 8, to_arrow, to_store, as_integers)


def _digits(numbers: Numbers, prefix: bytes, width: int) -> npt.NDArray[np.uint8]:
    """The prefix and the number with leading zeros, ``width`` characters in all."""
    out = np.empty((numbers.size, width), np.uint8)
    out[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    rest = numbers
    for place in range(width - 1, len(prefix) - 1, -1):
        rest, digit = np.divmod(rest, 10)
        out[:, place] = digit + ord("0")
    if rest.any():
        raise ValueError(f"a number needs more than {width - len(prefix)} digits: {numbers.max()}")
    return out


def _text(to_characters: Callable[[Numbers], npt.NDArray[np.uint8]], width: int) -> KeyCodec:
    def to_arrow(numbers: Numbers) -> list[pa.Array]:
        return [fixed_width_text(to_characters(numbers))]

    def to_store(columns: list[pa.Array]) -> bytes:
        return characters_of(columns[0], width).tobytes()

    field = pa.field("product_id", pa.string(), nullable=False)
    in_key_order = _uuid_order if to_characters is _uuid_characters else None
    return KeyCodec((field,), width, to_arrow, to_store, in_key_order=in_key_order)


def mix(numbers: Numbers, salt: int = 0) -> npt.NDArray[np.uint64]:
    """64 pseudo-random bits of each number, all different (the finaliser of SplitMix64)."""
    with np.errstate(over="ignore"):
        word = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt)
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return word ^ (word >> np.uint64(31))


def _uuid_words(numbers: Numbers) -> npt.NDArray[np.uint64]:
    """128 random bits with the version (4) and the variant where RFC 9562 has them."""
    words = np.empty((numbers.size, 2), np.uint64)
    words[:, 0] = mix(numbers) & np.uint64(0xFFFFFFFFFFFF0FFF) | np.uint64(0x4000)
    words[:, 1] = mix(numbers, salt=1) & np.uint64(2**62 - 1) | np.uint64(2**63)
    return words


def _uuid_characters(numbers: Numbers) -> npt.NDArray[np.uint8]:
    octets = _uuid_words(numbers).astype(">u8").view(np.uint8)
    out = np.full((numbers.size, UUID_BYTES), ord("-"), np.uint8)
    out[:, _DIGITS_OF_UUID] = _HEX[octets].reshape(numbers.size, 32)
    return out


def _uuid_order(count: int) -> Numbers:
    words = _uuid_words(np.arange(1, count + 1, dtype=np.int64))
    return np.lexsort((words[:, 1], words[:, 0])).astype(np.int64) + 1


def _pair(kind: pa.DataType) -> KeyCodec:
    stored = np.dtype([("a", f">i{kind.bit_width // 8}"), ("b", f">i{kind.bit_width // 8}")])

    def to_arrow(numbers: Numbers) -> list[pa.Array]:
        halves = np.divmod(numbers, 1_000)
        return [pa.array(half.astype(kind.to_pandas_dtype())) for half in halves]

    def to_store(columns: list[pa.Array]) -> bytes:
        out = np.empty(len(columns[0]), stored)
        for name, column in zip(("a", "b"), columns, strict=True):
            out[name] = values_of(column)
        return out.tobytes()

    fields = tuple(pa.field(name, kind, nullable=False) for name in ("store_id", "item_id"))
    return KeyCodec(fields, stored.itemsize, to_arrow, to_store)


def _triple() -> KeyCodec:
    stored = np.dtype([("store", f"S{STORE_BYTES}"), ("shelf", ">i4"), ("day", ">i4")])

    def to_arrow(numbers: Numbers) -> list[pa.Array]:
        stores, rest = np.divmod(numbers, 10_000)
        shelves, days = np.divmod(rest, 100)
        return [
            fixed_width_text(_digits(stores, b"store", STORE_BYTES)),
            pa.array(shelves.astype(np.int32)),
            pa.array((FIRST_DAY + days).astype(np.int32)).view(pa.date32()),
        ]

    def to_store(columns: list[pa.Array]) -> bytes:
        out = np.empty(len(columns[0]), stored)
        out["store"] = characters_of(columns[0], STORE_BYTES)
        out["shelf"], out["day"] = values_of(columns[1]), values_of(columns[2])
        return out.tobytes()

    kinds = {"store": pa.string(), "shelf": pa.int32(), "day": pa.date32()}
    fields = tuple(pa.field(name, kind, nullable=False) for name, kind in kinds.items())
    return KeyCodec(fields, stored.itemsize, to_arrow, to_store)


def _product_text(numbers: Numbers) -> npt.NDArray[np.uint8]:
    return _digits(numbers, b"product-", TEXT_BYTES)


INT64 = _integer(pa.int64())
INT32 = _integer(pa.int32())
DATE = _integer(pa.date32())
TIMESTAMP = _integer(pa.timestamp("us"), 1_000_000, FIRST_SECOND * 1_000_000)
DECIMAL = _integer(pa.decimal128(15, 2), 100, 99)
TEXT = _text(_product_text, TEXT_BYTES)
UUID = _text(_uuid_characters, UUID_BYTES)
TWO_INT64 = _pair(pa.int64())
TWO_INT32 = _pair(pa.int32())
TEXT_INT_DATE = _triple()
