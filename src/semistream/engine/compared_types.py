"""Which types can be compared, and which of them compiled code compares, and how."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from semistream.engine.conditions import AsOf, Condition, comparisons_of
from semistream.errors import SchemaError
from semistream.kernels import value_kinds as kinds

# Orders that an operator accepts: the sum of 1 (less), 2 (equal), 4 (greater), 8 (not a number).
ACCEPTED = {"<": 1, "<=": 3, ">": 4, ">=": 6, "==": 2, "!=": 13}

FUNCTIONS = {
    "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
    "==": pc.equal, "!=": pc.not_equal,
}  # fmt: skip

_INTEGERS = {
    pa.int64(): kinds.INT64, pa.int32(): kinds.INT32, pa.int16(): kinds.INT16,
    pa.int8(): kinds.INT8, pa.uint32(): kinds.UINT32, pa.uint16(): kinds.UINT16,
    pa.uint8(): kinds.UINT8,
}  # fmt: skip
_FLOATS = {pa.float64(): kinds.FLOAT64, pa.float32(): kinds.FLOAT32}
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY = 86_400  # seconds
_ALL_INTEGERS = pa.decimal128(20, 0)  # signed and unsigned


def kind_of(kind: pa.DataType) -> int:
    """The kind of the values in memory."""
    if kind in _INTEGERS or kind in _FLOATS:
        return _INTEGERS.get(kind, _FLOATS.get(kind, 0))
    return kinds.INT32 if kind.bit_width == 32 else kinds.INT64


def compared(one: pa.DataType, other: pa.DataType) -> tuple[int, int] | None:
    """How many units of each type make one unit of the coarser one; None: not in compiled code."""
    if (one in _INTEGERS and other in _INTEGERS) or (one in _FLOATS and other in _FLOATS):
        return 1, 1
    if not (pa.types.is_temporal(one) and pa.types.is_temporal(other)):
        return None
    if one == other:
        return None if pa.types.is_interval(one) else (1, 1)
    if not (_is_instant(one) and _is_instant(other)) or _zoned(one) != _zoned(other):
        return None
    first, second = _units_per_day(one), _units_per_day(other)
    coarser = min(first, second)
    return first // coarser, second // coarser


def _is_instant(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _zoned(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def _units_per_day(kind: pa.DataType) -> int:
    if pa.types.is_date32(kind):
        return 1
    return _DAY * (1_000 if pa.types.is_date64(kind) else _PER_SECOND[kind.unit])


def plain(values: pa.Array) -> pa.Array:
    """Without extension type and dictionary, as Arrow compares no two of these."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def alike(one: pa.Array, other: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Both sides of a comparison, so that Arrow compares any two values of them.

    Arrow itself fails at an integer that the other side's type cannot represent.
    """
    one, other = plain(one), plain(other)
    types = pa.types
    integers = types.is_integer(one.type), types.is_integer(other.type)
    if all(integers) and types.is_uint64(one.type) != types.is_uint64(other.type):
        return one.cast(_ALL_INTEGERS), other.cast(_ALL_INTEGERS)
    floats = types.is_floating(one.type), types.is_floating(other.type)
    if any(integers) and any(floats):  # as databases do: an integer beyond 2^53 is rounded
        return one.cast(pa.float64(), safe=False), other.cast(pa.float64(), safe=False)
    return one, other


def _arrow_compares(operator: str, one: pa.DataType, other: pa.DataType) -> bool:
    if _is_instant(one) and _is_instant(other) and _zoned(one) != _zoned(other):
        return False  # one of them is not an instant
    try:
        FUNCTIONS[operator](*alike(pa.nulls(1, one), pa.nulls(1, other)))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):
        return False
    return True


def check_types(conditions: Sequence[Condition], stream: pa.Schema, master: pa.Schema) -> None:
    """Raise SchemaError for a comparison of types that cannot be compared."""
    for condition in conditions:
        for comparison in comparisons_of(condition):
            one, other = stream.field(comparison.stream).type, master.field(comparison.master).type
            if compared(one, other) is not None:
                continue
            if isinstance(condition, AsOf) or not _arrow_compares(comparison.operator, one, other):
                raise SchemaError(
                    f"column {comparison.stream!r} of the stream is {one} and "
                    f"{comparison.master!r} of the master table is {other}: they cannot be "
                    "compared; cast one of them"
                )
