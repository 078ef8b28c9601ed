"""The types in which keys are compared, and the casts of a stream's key columns to them."""

from __future__ import annotations

from decimal import Context, Decimal

import pyarrow as pa

from semistream.errors import SchemaError

_SUPPORTED = "integers, booleans, text, binary, dates, times, timestamps, durations and decimals"
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
    if is_bytes(kind):
        return pa.large_binary()
    raise SchemaError(f"column {name!r} of type {kind} cannot be a join key; keys are {_SUPPORTED}")


def is_bytes(kind: pa.DataType) -> bool:
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


def widens(stream: pa.DataType, master: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(stream):
        stream = stream.value_type
    if types.is_integer(stream) and types.is_integer(master):
        return True
    if types.is_decimal(master):
        if types.is_integer(stream):
            return True
        return bool(types.is_decimal(stream) and stream.scale <= master.scale)
    if is_bytes(stream) and is_bytes(master):
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


def widen(column: pa.Array, master: pa.DataType) -> pa.Array:
    """Cast to the canonical form of the master's type; values out of range become null."""
    types = pa.types
    kind = column.type
    if types.is_dictionary(kind):
        return widen(column.dictionary_decode(), master)
    target = canonical_type(master)
    if kind == target and not types.is_decimal(target):
        return column
    import pyarrow.compute as pc

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
    if column.type == master:
        return column.cast(target)
    import pyarrow.compute as pc

    if pa.types.is_integer(column.type):
        column = column.cast(pa.decimal128(20, 0))
    roomy = pa.decimal256(76, target.scale)
    if column.type.precision - column.type.scale + target.scale > 76:
        raise SchemaError(
            f"key type {column.type} has too many digits to compare with {master}; "
            "cast the stream's key to the master's type first"
        )
    column = column.cast(roomy)
    if target == roomy:
        return column
    largest = Decimal(10**master.precision - 1).scaleb(-target.scale, _DIGITS)
    fits = pc.less_equal(pc.abs(column), pa.scalar(largest, type=roomy))
    return _keep(column, fits).cast(target)


def _keep(column: pa.Array, mask: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.if_else(mask, column, pa.scalar(None, column.type))
