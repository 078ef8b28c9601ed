"""Columns of every type are returned unchanged, from both sides."""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa

from conformance.suite import conform, every_join
from harness import Case

STRUCT = pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string())]))])
UTC = timezone.utc
NOON = datetime(2024, 2, 29, 12, 0, 0, 123456)

PAYLOADS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [-128, 127, None, 0]),
    "uint64": (pa.uint64(), [0, 2**64 - 1, None]),
    "half float": (pa.float16(), [0.5, math.nan, None]),
    "float": (pa.float32(), [1.5, math.inf, None]),
    "double": (pa.float64(), [0.1, -0.0, math.nan, -math.inf, None]),
    "boolean": (pa.bool_(), [True, False, None, True, True]),
    "null": (pa.null(), [None]),
    "text": (pa.string(), ["", "a", None, "日本", "x" * 200]),
    "large text": (pa.large_string(), ["", "a", None, "日本", "x" * 200]),
    "binary": (pa.binary(), [b"", b"\0\xff", None, b"x" * 200]),
    "fixed binary": (pa.binary(5), [b"12345", None, b"\0\0\0\0\0"]),
    "date": (pa.date32(), [date(1, 1, 1), None, date(2024, 2, 29)]),
    "date64": (pa.date64(), [date(1969, 12, 31), None]),
    "time": (pa.time64("us"), [time(23, 59, 59, 999999), None]),
    "timestamp": (pa.timestamp("us"), [NOON, None]),
    "timestamp with zone": (pa.timestamp("ms", tz="Europe/Berlin"), [NOON.replace(tzinfo=UTC)]),
    "duration": (pa.duration("s"), [timedelta(days=-3), None]),
    "decimal": (pa.decimal128(9, 2), [Decimal("1299.99"), None, Decimal("-0.01")]),
    "wide decimal": (pa.decimal256(70, 5), [Decimal(10**60), None]),
    "list": (pa.list_(pa.int64()), [[1, 2], [], None, [None]]),
    "large list of text": (pa.large_list(pa.string()), [["a", None, "bb"], [], None]),
    "fixed list": (pa.list_(pa.int16(), 2), [[1, 2], None, [3, None]]),
    "list of lists": (pa.list_(pa.list_(pa.int8())), [[[1], []], None, [None, [2, 3]]]),
    "struct": (STRUCT, [{"a": 1, "b": {"c": "x"}}, None, {"a": None, "b": None}]),
    "list of structs": (pa.list_(STRUCT), [[{"a": 1, "b": {"c": None}}], [], None]),
    "map": (pa.map_(pa.string(), pa.int32()), [[("a", 1), ("b", None)], [], None]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["red", "green", None, "red"]),
    "dictionary of integers": (pa.dictionary(pa.int32(), pa.int64()), [10**12, None, 5]),
    "no nulls": (pa.int64(), [1, 2, 3]),
}


def column(kind: pa.DataType, values: list[Any], count: int, turn: int = 0) -> pa.Array:
    values = [values[(i + turn) % len(values)] for i in range(count)]
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(values, kind)


def case(name: str, kinds: dict[str, tuple[pa.DataType, list[Any]]]) -> Case:
    keys = [i * 37 % 45 if i % 11 else None for i in range(48)]
    stream = {"k": pa.array(keys, pa.int32()), "n": pa.array(range(48))}
    master = {"k": pa.array([i // 2 for i in range(60)], pa.int32()), "v": pa.array(range(60))}
    for label, (kind, values) in kinds.items():
        stream[f"stream {label}"] = column(kind, values, 48)
        master[f"master {label}"] = column(kind, values, 60, turn=1)
    return Case(name, pa.table(stream), pa.table(master), page_bytes=512 * len(kinds))


CASES = [case(name, {name: payload}) for name, payload in PAYLOADS.items()]


@every_join([*CASES, case("all at once", PAYLOADS)])
def test_payloads(algorithm: str, how: str, case: Case, master_of: Any) -> None:
    conform(algorithm, how, case, master_of(case))
