"""Join keys as 64-bit codes.

The joins do not access keys directly: they hash and compare one ``int64`` code per tuple.

- One integer-like column (integers, booleans, dates, times, timestamps, durations, decimals
  of up to 18 digits): the code *is* the key, in key order. Such a codec is ``exact``.
- Everything else (text, binary, wide decimals, several columns): the code is a 64-bit hash.
  Equal keys have equal codes; if codes are equal, the caller must still compare the keys.

A null in any key column makes the key null, and a null key never matches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import SchemaError

Codes: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"

_SUPPORTED = "integers, booleans, text, binary, dates, times, timestamps, durations and decimals"
_INT64_DIGITS = 18
_SIGN = np.uint64(1 << 63)
_DIGITS = Context(prec=80)
_UNIT = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def canonical_type(kind: pa.DataType, name: str = "key") -> pa.DataType:
    """The type in which keys of this type are compared; raises SchemaError if not supported."""
    types = pa.types
    if types.is_dictionary(kind):
        return canonical_type(kind.value_type, name)
    if types.is_uint64(kind):
        return pa.uint64()
    if types.is_integer(kind):
        return pa.int64()
    if types.is_boolean(kind) or (types.is_temporal(kind) and not types.is_interval(kind)):
        return kind
    if types.is_decimal(kind):
        wide = kind.precision > 38
        return (pa.decimal256(76, kind.scale)) if wide else pa.decimal128(38, kind.scale)
    if _is_bytes(kind):
        return pa.large_binary()
    raise SchemaError(f"column {name!r} of type {kind} cannot be a join key; keys are {_SUPPORTED}")


@dataclass(frozen=True)
class KeyCodec:
    """Turns the key columns of a master table, and of streams that join it, into codes."""

    types: tuple[pa.DataType, ...]
    exact: bool

    @classmethod
    def for_types(
        cls, types: Sequence[pa.DataType], names: Sequence[str] | None = None
    ) -> KeyCodec:
        if not types:
            raise SchemaError("a join needs at least one key column")
        names = names or [f"key {i}" for i in range(len(types))]
        for kind, name in zip(types, names, strict=True):
            canonical_type(kind, name)
        exact = len(types) == 1 and _fits_int64(types[0])
        return cls(tuple(types), exact)

    def adopt(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Cast columns whose types widen safely to the canonical types.

        A value outside the range of the master's type cannot match: it becomes null.
        """
        return [_widen(column, kind) for column, kind in zip(columns, self.types, strict=True)]

    def check(self, stream_types: Sequence[pa.DataType], names: Sequence[str]) -> None:
        """Raise if a stream key type does not widen safely to the master's."""
        for ours, theirs, name in zip(self.types, stream_types, names, strict=True):
            canonical_type(theirs, name)
            if not _widens(theirs, ours):
                raise SchemaError(
                    f"key column {name!r} is {theirs} in the stream but {ours} in the master "
                    f"table, and {theirs} does not widen safely; cast one of them first"
                )

    def codes(self, columns: Sequence[pa.Array]) -> tuple[Codes, Mask | None]:
        """One code per row, and a mask of the rows with a non-null key (None: all rows)."""
        columns = self.adopt(columns)
        valid: Mask | None = None
        for column in columns:
            if column.null_count:
                present = column.is_valid().to_numpy(zero_copy_only=False)
                valid = present if valid is None else valid & present
        if self.exact:
            return _int64_of(columns[0]), valid
        from semistream.kernels import hashing

        hashes = np.zeros(len(columns[0]), dtype=np.uint64)
        for column in columns:
            if _is_bytes(column.type):
                offsets, data = _bytes_of(column)
                hashing.fold_bytes(offsets, data, hashes)
            else:
                for words in _words_of(column):
                    hashing.fold_words(words, hashes)
        return hashes.view(np.int64), valid

    def sortable(self, columns: Sequence[pa.Array]) -> np.ndarray[Any, Any]:
        """An array whose NumPy order is the key order; the columns must not have nulls."""
        columns = self.adopt(columns)
        if self.exact:
            return _int64_of(columns[0])
        if len(columns) == 1:
            parts = _ordered_bytes(columns[0], terminated=False)
        else:
            encoded = [_ordered_bytes(column, terminated=True) for column in columns]
            parts = [b"".join(row) for row in zip(*encoded, strict=True)]
        result = np.empty(len(columns[0]), dtype=object)
        result[:] = parts
        return result

    def same(self, left: Sequence[pa.Array], right: Sequence[pa.Array]) -> Mask:
        """Row by row, whether the keys (not only their codes) are equal."""
        equal: Mask | None = None
        for a, b in zip(self.adopt(left), self.adopt(right), strict=True):
            column = pc.fill_null(pc.equal(a, b), False).to_numpy(zero_copy_only=False)
            equal = column if equal is None else equal & column
        assert equal is not None
        return equal


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        _is_text(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    )


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _fits_int64(kind: pa.DataType) -> bool:
    canonical = canonical_type(kind)
    if pa.types.is_decimal(canonical):
        return bool(kind.precision <= _INT64_DIGITS)
    return not _is_bytes(canonical)


def _widens(stream: pa.DataType, master: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(stream):
        stream = stream.value_type
    if types.is_integer(stream) and types.is_integer(master):
        return True
    if types.is_decimal(master):
        if types.is_integer(stream):
            return True
        return bool(types.is_decimal(stream) and stream.scale <= master.scale)
    if _is_bytes(stream) and _is_bytes(master):
        return _is_text(stream) == _is_text(master)
    if types.is_timestamp(stream) and types.is_timestamp(master):
        finer = _UNIT[stream.unit] <= _UNIT[master.unit]
        return finer and (stream.tz is None) == (master.tz is None)
    for family in (types.is_time, types.is_duration):
        if family(stream) and family(master):
            return _UNIT[stream.unit] <= _UNIT[master.unit]
    if types.is_date(stream) and types.is_date(master):
        return bool(stream == master or types.is_date32(stream))
    return bool(stream == master)


def _widen(column: pa.Array, master: pa.DataType) -> pa.Array:
    """Cast to the canonical form of the master's type; values out of range become null."""
    types = pa.types
    kind = column.type
    if types.is_dictionary(kind):
        return _widen(column.dictionary_decode(), master)
    target = canonical_type(master)
    if kind == target and not types.is_decimal(target):
        return column
    if types.is_decimal(target):
        return _widen_decimal(column, master, target)
    if types.is_uint64(target):
        if kind != target and types.is_signed_integer(kind):
            column = _keep(column, pc.greater_equal(column, pa.scalar(0, kind)))
        return column.cast(target)
    if types.is_uint64(kind):
        column = _keep(column, pc.less(column, pa.scalar(1 << 63, kind)))
        return column.cast(target)
    if types.is_temporal(target) and not types.is_date(target) and kind != target:
        if kind.unit != target.unit:
            ratio = _UNIT[target.unit] // _UNIT[kind.unit]
            limit = (2**63 - 1) // ratio
            raw = column.view(pa.int32() if types.is_time32(kind) else pa.int64()).cast(pa.int64())
            column = _keep(column, pc.less_equal(pc.abs(raw), limit))
        return column.cast(target)
    if _is_text(kind):
        column = column.cast(pa.large_string())
    return column.cast(target)


def _widen_decimal(column: pa.Array, master: pa.DataType, target: pa.DataType) -> pa.Array:
    if pa.types.is_integer(column.type):
        column = column.cast(pa.decimal128(20, 0))
    if column.type != target:
        roomy = pa.decimal256(76, target.scale)
        digits = column.type.precision - column.type.scale + target.scale
        if digits > 76:
            raise SchemaError(
                f"key type {column.type} has too many digits to compare with {master}; "
                "cast the stream's key to the master's type first"
            )
        column = column.cast(roomy)
        if target != roomy:
            largest = Decimal(10**master.precision - 1).scaleb(-target.scale, _DIGITS)
            fits = pc.less_equal(pc.abs(column), pa.scalar(largest, type=roomy))
            column = _keep(column, fits).cast(target)
    return column


def _keep(column: pa.Array, mask: pa.Array) -> pa.Array:
    return pc.if_else(mask, column, pa.scalar(None, column.type))


def _int64_of(column: pa.Array) -> Codes:
    """The int64 codes of one canonical integer-like column; a null's code is arbitrary."""
    kind = column.type
    types = pa.types
    if types.is_boolean(kind):
        column = column.cast(pa.int64())
    elif types.is_decimal(kind):
        return _words_of(column)[0].view(np.int64).copy()
    elif types.is_uint64(kind):
        return (_values(column, np.uint64) ^ _SIGN).view(np.int64)
    if column.type.bit_width == 32:
        return _values(column, np.int32).astype(np.int64)
    return _values(column, np.int64)


def _words_of(column: pa.Array) -> list[np.ndarray[Any, np.dtype[np.uint64]]]:
    """A fixed-width canonical column as 64-bit words, least significant first."""
    if not pa.types.is_decimal(column.type):
        return [_int64_of(column).view(np.uint64)]
    words = column.type.bit_width // 64
    if column.null_count:  # the value under a null is arbitrary but must be readable
        column = pc.fill_null(column, pa.scalar(0).cast(column.type))
    raw = np.frombuffer(column.buffers()[1], dtype=np.uint64)
    start = column.offset * words
    matrix = raw[start : start + len(column) * words].reshape(-1, words)
    return [np.ascontiguousarray(matrix[:, i]) for i in range(words)]


def _values(column: pa.Array, dtype: Any) -> np.ndarray[Any, Any]:
    buffer = column.buffers()[1]
    if buffer is None or len(column) == 0:
        return np.zeros(len(column), dtype=dtype)
    width = np.dtype(dtype).itemsize
    return np.frombuffer(buffer, dtype=dtype, count=len(column), offset=column.offset * width)


def _bytes_of(column: pa.Array) -> tuple[Codes, np.ndarray[Any, np.dtype[np.uint8]]]:
    _, offsets, data = column.buffers()
    count = len(column) + 1
    if offsets is None or len(column) == 0:
        return np.zeros(count, np.int64), np.zeros(0, np.uint8)
    starts = np.frombuffer(offsets, np.int64, count=count, offset=column.offset * 8)
    content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return starts, content


def _ordered_bytes(column: pa.Array, terminated: bool) -> list[bytes]:
    """Byte strings whose order is the order of the values.

    Inside a composite key a text is escaped and terminated, so that its end cannot be
    confused with the next column.
    """
    if _is_bytes(column.type):
        values = column.to_pylist()
        if not terminated:
            return list(values)
        return [value.replace(b"\0", b"\0\xff") + b"\0\0" for value in values]
    words = _words_of(column)
    words[-1] = words[-1] ^ _SIGN
    width = 8 * len(words)
    raw = np.stack(words[::-1], axis=1).astype(">u8").tobytes()
    return [raw[i : i + width] for i in range(0, len(raw), width)]
