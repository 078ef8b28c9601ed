"""Whether rows are equal, column by column: nulls equal nulls, and a NaN equals itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_BITS = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def same_rows(left: pa.RecordBatch, right: pa.RecordBatch) -> np.ndarray[Any, Any]:
    """A mask; both batches have the same columns and number of rows."""
    same = np.ones(left.num_rows, np.bool_)
    for name in left.schema.names:
        same &= _same(left.column(name), right.column(name))
    return same


def _same(left: pa.Array, right: pa.Array) -> np.ndarray[Any, Any]:
    if pa.types.is_nested(left.type) or pa.types.is_interval(left.type):  # Arrow compares neither
        if left.equals(right):  # the usual case, without Python objects
            return np.ones(len(left), np.bool_)
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        return np.array([a == b for a, b in pairs], np.bool_)
    if pa.types.is_floating(left.type):  # by their bits
        left, right = (column.view(_BITS[column.type.bit_width]) for column in (left, right))
    if pa.types.is_null(left.type):
        return np.ones(len(left), np.bool_)
    equal = pc.fill_null(pc.equal(left, right), False).to_numpy(zero_copy_only=False)
    if left.null_count and right.null_count:
        nulls = pc.and_(left.is_null(), right.is_null()).to_numpy(zero_copy_only=False)
        equal = equal | nulls
    return np.asarray(equal, np.bool_)
