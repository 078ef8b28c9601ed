"""The values of a key column as NumPy arrays: 64-bit codes, words, bytes."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from semistream.keys.widen import is_bytes

Codes: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"

SIGN = np.uint64(1 << 63)


def int64_view(column: pa.Array) -> Codes:
    """The buffer of a 64-bit column as numbers, without a copy; a null's number is arbitrary."""
    return _values(column, np.int64)


def int64_of(column: pa.Array) -> Codes:
    """The int64 codes of one canonical integer-like column; a null's code is arbitrary."""
    kind = column.type
    types = pa.types
    if types.is_boolean(kind):
        column = column.cast(pa.int64())
    elif types.is_decimal(kind):
        return words_of(column)[0].view(np.int64).copy()
    elif types.is_uint64(kind):
        return (_values(column, np.uint64) ^ SIGN).view(np.int64)
    if column.type.bit_width == 32:
        return _values(column, np.int32).astype(np.int64)
    return int64_view(column)


def words_of(column: pa.Array) -> list[np.ndarray[Any, np.dtype[np.uint64]]]:
    """A fixed-width canonical column as 64-bit words, least significant first."""
    if not pa.types.is_decimal(column.type):
        return [int64_of(column).view(np.uint64)]
    words = column.type.bit_width // 64
    if column.null_count:  # the value under a null is arbitrary but must be readable
        import pyarrow.compute as pc

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


def bytes_of(column: pa.Array) -> tuple[Codes, np.ndarray[Any, np.dtype[np.uint8]]]:
    _, offsets, data = column.buffers()
    count = len(column) + 1
    if offsets is None or len(column) == 0:
        return np.zeros(count, np.int64), np.zeros(0, np.uint8)
    starts = np.frombuffer(offsets, np.int64, count=count, offset=column.offset * 8)
    content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return starts, content


def ordered_bytes(column: pa.Array, terminated: bool) -> list[bytes]:
    """Byte strings whose order is the order of the values.

    Inside a composite key a text is escaped and terminated, so that its end cannot be
    confused with the next column.
    """
    if is_bytes(column.type):
        values = column.to_pylist()
        if not terminated:
            return list(values)
        return [value.replace(b"\0", b"\0\xff") + b"\0\0" for value in values]
    words = words_of(column)
    words[-1] = words[-1] ^ SIGN
    width = 8 * len(words)
    raw = np.stack(words[::-1], axis=1).astype(">u8").tobytes()
    return [raw[i : i + width] for i in range(0, len(raw), width)]
