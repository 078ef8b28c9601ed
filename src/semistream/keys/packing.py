"""Several short columns as one 64-bit code, in the order of the keys.

Each column gets as many bits as its type has values; the first column gets the highest bits::

    (int16, bool, date32)   ->   | int16 + 2**15 | bool | date32 + 2**31 |
                                     16 bits       1         32             = 49 bits

Signed values are offset so that their lowest is 0: the order of the codes is the lexicographic
order of the keys. With all 64 bits in use, the highest bit is flipped, because codes are signed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from semistream.keys.values import SIGN, Codes, int64_of

_BITS = 64
_DECIMAL_DIGITS = 18  # more digits need more than one word


@dataclass(frozen=True)
class PackedColumn:
    """``offset`` is added to a value to make it an unsigned number of ``bits`` bits."""

    bits: int
    offset: int
    highest: int

    @classmethod
    def of(cls, kind: pa.DataType) -> PackedColumn | None:
        """None for a type that has no small range."""
        types = pa.types
        if types.is_boolean(kind):
            return cls(1, 0, 1)
        if types.is_decimal(kind):
            if kind.precision > _DECIMAL_DIGITS:
                return None
            end = int(10**kind.precision)
            return cls((2 * end - 1).bit_length(), end, end - 1)
        if types.is_unsigned_integer(kind):
            return cls(kind.bit_width, 0, 2**kind.bit_width - 1)
        if types.is_integer(kind) or types.is_date32(kind) or types.is_time32(kind):
            half = 2 ** (kind.bit_width - 1)
            return cls(kind.bit_width, half, half - 1)
        return None

    def within(self, column: pa.Array) -> pa.Array:
        """Values out of range, which cannot match, become null."""
        if not pa.types.is_int64(column.type):
            return column
        import pyarrow.compute as pc

        fits = pc.and_(pc.greater_equal(column, -self.offset), pc.less_equal(column, self.highest))
        return pc.if_else(fits, column, pa.scalar(None, column.type))


@dataclass(frozen=True)
class Packing:
    """The columns of a short composite key."""

    columns: tuple[PackedColumn, ...]

    @classmethod
    def of(cls, types: Sequence[pa.DataType]) -> Packing | None:
        """None if the key is a single column, or does not fit into 64 bits."""
        columns = [PackedColumn.of(kind) for kind in types]
        if len(columns) < 2 or any(column is None for column in columns):
            return None
        packing = cls(tuple(column for column in columns if column is not None))
        return packing if packing.bits <= _BITS else None

    @property
    def bits(self) -> int:
        return sum(column.bits for column in self.columns)

    def codes(self, columns: Sequence[pa.Array]) -> Codes:
        """The codes of canonical columns; a null's code is arbitrary."""
        packed = np.zeros(len(columns[0]), np.uint64)
        for column, part in zip(columns, self.columns, strict=True):
            values = int64_of(column).view(np.uint64) + np.uint64(part.offset)
            packed <<= np.uint64(part.bits)
            packed |= values & np.uint64(2**part.bits - 1)
        if self.bits == _BITS:
            packed ^= SIGN
        return packed.view(np.int64)
