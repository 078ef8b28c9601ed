"""Compares columns of tuples with columns of master rows, pair by pair, all comparisons at once."""

import numpy as np

from semistream.kernels.arrow_buffers import load_bit
from semistream.kernels.column_forms import VALIDITY, VALUES
from semistream.kernels.compile import compiled
from semistream.kernels.intrinsics import (
    load_float32,
    load_float64,
    load_int8,
    load_int16,
    load_int32,
    load_int64,
    load_uint8,
    load_uint16,
    load_uint32,
    prefetch_at,
)
from semistream.kernels.value_kinds import (
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    KIND,
    NODE,
    OPEN,
    SCALE,
    STEP,
    UINT8,
    UINT16,
    UINT32,
    VALID_STEP,
)

_AHEAD = 8  # pairs to prefetch ahead


@compiled(inline=True)
def _integer(address, kind):
    if kind == INT32:
        return np.int64(load_int32(address))
    if kind == INT16:
        return np.int64(load_int16(address))
    if kind == INT8:
        return np.int64(load_int8(address))
    if kind == UINT32:
        return np.int64(load_uint32(address))
    if kind == UINT16:
        return np.int64(load_uint16(address))
    if kind == UINT8:
        return np.int64(load_uint8(address))
    return load_int64(address)


@compiled(inline=True)
def _order(one, other):
    """1, 2, 4: less, equal, greater."""
    return 1 if one < other else (2 if one == other else 4)


@compiled(inline=True)
def _compare(one, one_kind, one_scale, other, other_kind, other_scale):
    """1, 2, 4 or 8: less, equal, greater, or not a number."""
    if one_kind in (FLOAT32, FLOAT64):
        x = load_float64(one) if one_kind == FLOAT64 else float(load_float32(one))
        y = load_float64(other) if other_kind == FLOAT64 else float(load_float32(other))
        return 8 if x != x or y != y else _order(x, y)
    a, b = _integer(one, one_kind), _integer(other, other_kind)
    # Different units: the finer value is divided, as multiplying the coarser one may overflow.
    if one_scale != 1:
        order = _order(a // one_scale, b)
        return 4 if order == 2 and a % one_scale != 0 else order
    if other_scale != 1:
        order = _order(a, b // other_scale)
        return 1 if order == 2 and b % other_scale != 0 else order
    return _order(a, b)


@compiled
def passes(
    one_at, one_columns, one_places, one_rows, other_at, other_columns, other_places, other_rows,
    accepted, passed,
):  # fmt: skip
    """Whether pair i passes all comparisons; returns how many pairs do.

    A side has row ``rows[i]`` at place ``places[i]`` (empty: place 0). Comparison ``c`` finds its
    column by ``columns[:, c]``: its node in ``at``, the kind and scale of its values, the bytes
    between two values, the bits between two bits of validity, and whether a null passes.
    ``accepted[c]`` is the sum of the orders that it accepts.
    """
    count = 0
    first_one, first_other = one_columns[NODE, 0], other_columns[NODE, 0]
    for i in range(len(one_rows)):
        if i + _AHEAD < len(one_rows):
            ahead = one_places[i + _AHEAD] if len(one_places) else 0
            step = one_rows[i + _AHEAD] * one_columns[STEP, 0]
            prefetch_at(one_at[VALUES, first_one, ahead] + step)
            ahead = other_places[i + _AHEAD] if len(other_places) else 0
            step = other_rows[i + _AHEAD] * other_columns[STEP, 0]
            prefetch_at(other_at[VALUES, first_other, ahead] + step)
        one_place = one_places[i] if len(one_places) else 0
        other_place = other_places[i] if len(other_places) else 0
        fine = True
        for c in range(len(accepted)):
            one, other = one_columns[NODE, c], other_columns[NODE, c]
            valid = one_at[VALIDITY, one, one_place]
            if valid and not load_bit(valid + one_rows[i] * one_columns[VALID_STEP, c]):
                fine = False
                break
            valid = other_at[VALIDITY, other, other_place]
            if valid and not load_bit(valid + other_rows[i] * other_columns[VALID_STEP, c]):
                if other_columns[OPEN, c]:
                    continue
                fine = False
                break
            order = _compare(
                one_at[VALUES, one, one_place] + one_rows[i] * one_columns[STEP, c],
                one_columns[KIND, c], one_columns[SCALE, c],
                other_at[VALUES, other, other_place] + other_rows[i] * other_columns[STEP, c],
                other_columns[KIND, c], other_columns[SCALE, c],
            )  # fmt: skip
            if not order & accepted[c]:
                fine = False
                break
        passed[i] = fine
        count += fine
    return count
