"""Key types with values for each, and a model of a table's content."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

KEYS: dict[str, tuple[list[pa.DataType], Any]] = {
    "int8": ([pa.int8()], st.integers(-128, 127)),
    "int32": ([pa.int32()], st.integers(-(2**31), 2**31 - 1)),
    "int64": ([pa.int64()], st.integers(-(2**63), 2**63 - 1)),
    "uint64": ([pa.uint64()], st.integers(0, 2**64 - 1)),
    "string": ([pa.string()], st.text(max_size=4)),
    "large_string": ([pa.large_string()], st.text(alphabet="ab\0\u00e9\U0001f600", max_size=3)),
    "binary": ([pa.binary()], st.binary(max_size=3)),
    "fixed_size_binary": ([pa.binary(2)], st.binary(min_size=2, max_size=2)),
    "date32": ([pa.date32()], st.dates()),
    "timestamp[us, tz]": (
        [pa.timestamp("us", tz="Europe/Berlin")],
        st.integers(-(2**40), 2**40),
    ),
    "timestamp[ns]": ([pa.timestamp("ns")], st.integers(-(2**40), 2**40)),
    "time64": ([pa.time64("us")], st.times()),
    "decimal small": (
        [pa.decimal128(9, 2)],
        st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2)),
    ),
    "decimal wide": (
        [pa.decimal128(38, 3)],
        st.integers(-(10**28), 10**28).map(lambda n: Decimal(n).scaleb(-3)),
    ),
    "decimal256": (
        [pa.decimal256(60, 0)],
        st.integers(-(10**28), 10**28).map(Decimal),
    ),
    "bool": ([pa.bool_()], st.booleans()),
    "string + int64": (
        [pa.string(), pa.int64()],
        st.tuples(st.text(alphabet="ab\0", max_size=2), st.integers(-2, 2)),
    ),
    "int16 + bool + date": (
        [pa.int16(), pa.bool_(), pa.date32()],
        st.tuples(st.integers(-2, 2), st.booleans(), st.dates()),
    ),
    "int32 + uint32": (
        [pa.int32(), pa.uint32()],
        st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**32 - 1)),
    ),
    "decimal + uint8": (
        [pa.decimal128(5, 2), pa.uint8()],
        st.tuples(
            st.integers(1 - 10**5, 10**5 - 1).map(lambda n: Decimal(n).scaleb(-2)),
            st.integers(0, 255),
        ),
    ),
    "int32 + date + binary": (
        [pa.int32(), pa.date32(), pa.binary()],
        st.tuples(st.integers(-1, 1), st.dates(max_value=dt.date(1, 1, 2)), st.binary(max_size=2)),
    ),
}


def names(kinds: list[pa.DataType]) -> list[str]:
    return [f"k{i}" for i in range(len(kinds))]


def rows_table(kinds: list[pa.DataType], rows: list[tuple[Any, int]]) -> pa.Table:
    """A table of key column(s), a number and a text that says the same."""
    columns: dict[str, Any] = {}
    for i, kind in enumerate(kinds):
        values = [key[i] if len(kinds) > 1 else key for key, _ in rows]
        columns[f"k{i}"] = pa.array(values, type=kind)
    columns["n"] = pa.array([n for _, n in rows], type=pa.int64())
    columns["text"] = pa.array(["x" * (n % 7) for _, n in rows], type=pa.string())
    return pa.table(columns)


def contents(table: Any, width: int) -> list[tuple[Any, int]]:
    """The rows of a table, as (key, number), in page order."""
    data = table.to_table()
    columns = [data.column(i) for i in range(width)]
    keys = [[plain(value) for value in column] for column in columns]
    parts = keys[0] if width == 1 else list(zip(*keys, strict=True))
    assert data["text"].to_pylist() == ["x" * (n % 7) for n in data["n"].to_pylist()]
    return list(zip(parts, data["n"].to_pylist(), strict=True))


def plain(value: Any) -> Any:
    """A canonical value for printing and comparing; a timestamp becomes an integer."""
    return value.value if pa.types.is_timestamp(value.type) else value.as_py()


def order(key: Any) -> Any:
    """Sorts like the table: text by its bytes."""
    parts = key if isinstance(key, tuple) else (key,)
    return tuple(part.encode() if isinstance(part, str) else part for part in parts)


def numbers(count: int, width: int = 20, start: int = 0) -> pa.Table:
    """Shuffled unique integers with a text of ``width`` bytes."""
    import numpy as np

    ids = np.random.default_rng(count).permutation(count) + start
    return pa.table({"id": ids, "text": [f"{i:0{width}d}" for i in ids]})
