"""Join keys as 64-bit codes.

The joins do not access keys directly: they hash and compare one ``int64`` code per tuple, and the
rows of a table are sorted by code.

- One integer-like column (integers, booleans, dates, times, timestamps, durations, decimals
  of up to 18 digits): the code *is* the key, in key order. Such a codec is ``exact``.
- Several short integer-like columns, of at most 64 bits together: they are packed into a code
  (:mod:`semistream.keys.packing`). This is ``exact``, too.
- Everything else (text, binary, wide decimals, longer keys): the code is a 64-bit hash.
  Equal keys have equal codes; if codes are equal, the caller must still compare the keys.

A null in any key column makes the key null, and a null key never matches. Codes are stored in
tables: a change of any of them is a new format version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.errors import SchemaError
from semistream.keys.packing import Packing
from semistream.keys.values import (
    Codes,
    Mask,
    bytes_of,
    int64_of,
    int64_view,
    ordered_bytes,
    words_of,
)
from semistream.keys.widen import canonical_type, is_bytes, widen, widens

_INT64_DIGITS = 18


@dataclass(frozen=True)
class KeyCodec:
    """Turns the key columns of a master table, and of streams that join it, into codes."""

    types: tuple[pa.DataType, ...]
    exact: bool
    packing: Packing | None = None

    @classmethod
    def for_types(
        cls, types: Sequence[pa.DataType], names: Sequence[str] | None = None
    ) -> KeyCodec:
        if not types:
            raise SchemaError("a join needs at least one key column")
        names = names or [f"key {i}" for i in range(len(types))]
        for kind, name in zip(types, names, strict=True):
            canonical_type(kind, name)
        packing = Packing.of(types)
        exact = packing is not None or (len(types) == 1 and _fits_int64(types[0]))
        return cls(tuple(types), exact, packing)

    @cached_property
    def native(self) -> bool:
        """Whether the key is one column whose buffer already is the array of codes."""
        if not self.exact or len(self.types) != 1:
            return False
        kind, types = self.types[0], pa.types
        return bool(types.is_int64(kind) or (types.is_temporal(kind) and kind.bit_width == 64))

    def adopt(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Cast columns whose types widen safely to the canonical types.

        A value outside the range of the master's type cannot match: it becomes null.
        """
        adopted = [widen(column, kind) for column, kind in zip(columns, self.types, strict=True)]
        if self.packing is None:
            return adopted
        parts = zip(adopted, columns, self.types, self.packing.columns, strict=True)
        return [
            column if given.type == kind else part.within(column)
            for column, given, kind, part in parts
        ]

    def check(self, stream_types: Sequence[pa.DataType], names: Sequence[str]) -> None:
        """Raise if a stream key type does not widen safely to the master's."""
        for ours, theirs, name in zip(self.types, stream_types, names, strict=True):
            canonical_type(theirs, name)
            if not widens(theirs, ours):
                raise SchemaError(
                    f"key column {name!r} is {theirs} in the stream but {ours} in the master "
                    f"table, and {theirs} does not widen safely; cast one of them first"
                )

    def codes(self, columns: Sequence[pa.Array]) -> tuple[Codes, Mask | None]:
        """One code per row, and a mask of the rows with a non-null key (None: all rows)."""
        if not self.native or columns[0].type != self.types[0]:
            columns = self.adopt(columns)
        valid: Mask | None = None
        for column in columns:
            if column.null_count:
                present = column.is_valid().to_numpy(zero_copy_only=False)
                valid = present if valid is None else valid & present
        if self.native:
            return int64_view(columns[0]), valid
        if self.exact:
            return self._exact_codes(columns), valid
        return hash_columns(columns).view(np.int64), valid

    def _exact_codes(self, columns: Sequence[pa.Array]) -> Codes:
        return int64_of(columns[0]) if self.packing is None else self.packing.codes(columns)

    def sortable(self, columns: Sequence[pa.Array]) -> np.ndarray[Any, Any]:
        """An array whose NumPy order is the key order; the columns must not have nulls.

        Tables are sorted by code. This order is for sources that come in the order of their keys,
        and for comparing keys with equal codes.
        """
        columns = self.adopt(columns)
        if self.exact:
            return self._exact_codes(columns)
        if len(columns) == 1:
            parts = ordered_bytes(columns[0], terminated=False)
        else:
            encoded = [ordered_bytes(column, terminated=True) for column in columns]
            parts = [b"".join(row) for row in zip(*encoded, strict=True)]
        result = np.empty(len(columns[0]), dtype=object)
        result[:] = parts
        return result

    def same(self, left: Sequence[pa.Array], right: Sequence[pa.Array]) -> Mask:
        """Row by row, whether the keys (not only their codes) are equal."""
        import pyarrow.compute as pc  # 25 ms, which most runs never need

        equal: Mask | None = None
        for a, b in zip(self.adopt(left), self.adopt(right), strict=True):
            column = pc.fill_null(pc.equal(a, b), False).to_numpy(zero_copy_only=False)
            equal = column if equal is None else equal & column
        assert equal is not None
        return equal


def hash_columns(columns: Sequence[pa.Array]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """The hash of each row of canonical columns."""
    from semistream.kernels import hashing

    hashes = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        if is_bytes(column.type):
            offsets, data = bytes_of(column)
            hashing.fold_bytes(offsets, data, hashes)
        else:
            for words in words_of(column):
                hashing.fold_words(words, hashes)
    return hashes


def _fits_int64(kind: pa.DataType) -> bool:
    canonical = canonical_type(kind)
    if pa.types.is_decimal(canonical):
        return bool(kind.precision <= _INT64_DIGITS)
    return not is_bytes(canonical)
