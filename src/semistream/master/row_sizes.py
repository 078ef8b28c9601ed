"""The bytes of each row of a batch, to cut pages by size.

Rows with text, binary or lists differ in size. The sizes are those of the Arrow format: values,
offsets, and a validity bit for each value of a column with nulls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

Sizes = np.ndarray[Any, np.dtype[np.int64]]


def cumulative_bytes(batch: pa.RecordBatch) -> Sizes:
    """``result[i]`` is the size of the first ``i`` rows; ``len(result) == rows + 1``."""
    total = np.zeros(batch.num_rows + 1, dtype=np.int64)
    for column in batch.columns:
        total += _cumulative(column)
    return total


def _cumulative(array: pa.Array) -> Sizes:
    kind = array.type
    types = pa.types
    if isinstance(array, pa.ExtensionArray):
        return _cumulative(array.storage)
    rows = np.arange(len(array) + 1, dtype=np.int64)
    total: Sizes = np.zeros(len(array) + 1, dtype=np.int64)
    if types.is_null(kind):
        return total
    if array.null_count:
        total += (rows + 7) // 8
    if types.is_struct(kind):
        for i in range(kind.num_fields):
            total += _cumulative(array.field(i))
    elif types.is_fixed_size_list(kind):
        start = array.offset * kind.list_size
        values = array.values.slice(start, len(array) * kind.list_size)
        total += _cumulative(values)[rows * kind.list_size]
    elif types.is_list(kind) or types.is_large_list(kind):
        total += _list_bytes(array, _cumulative(array.values), rows)
    elif types.is_map(kind):
        total += _list_bytes(array, _cumulative(array.keys) + _cumulative(array.items), rows)
    elif _has_offsets(kind):
        offsets, width = _offsets(array)
        total += offsets - offsets[0] + rows * width
    else:
        try:
            total += (rows * kind.bit_width + 7) // 8
        except ValueError:  # unions and future types: use the average row
            total += rows * -(-array.nbytes // max(1, len(array)))
    return total


def _list_bytes(array: pa.Array, inner: Sizes, rows: Sizes) -> Sizes:
    """``inner`` covers all values; the offsets of a slice select its own."""
    offsets, width = _offsets(array)
    result: Sizes = inner[offsets] - inner[offsets[0]] + rows * width
    return result


def _has_offsets(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_binary(kind)
        or types.is_large_string(kind)
        or types.is_large_binary(kind)
    )


def _offsets(array: pa.Array) -> tuple[Sizes, int]:
    kind = array.type
    large = (
        pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_large_list(kind)
    )
    dtype = np.int64 if large else np.int32
    width = 8 if large else 4
    buffer = array.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(len(array) + 1, dtype=np.int64), width
    raw = np.frombuffer(buffer, dtype=dtype, count=len(array) + 1, offset=array.offset * width)
    return raw.astype(np.int64), width
