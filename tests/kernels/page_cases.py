"""Random schemas and batches, for the kernels that read pages."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

FIXED = [
    pa.int8(), pa.uint16(), pa.int32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(),
    pa.date32(), pa.date64(), pa.time32("s"), pa.time64("ns"), pa.timestamp("us", "UTC"),
    pa.duration("ms"), pa.month_day_nano_interval(), pa.decimal32(5, 1), pa.decimal64(12, 2),
    pa.decimal128(20, 3), pa.decimal256(50, 2), pa.binary(0), pa.binary(3),
]  # fmt: skip
LEAVES = [
    *FIXED, pa.null(), pa.bool_(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary(),
]  # fmt: skip


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    structs = st.lists(inner, max_size=3).map(
        lambda kinds: pa.struct([(f"f{i}", kind) for i, kind in enumerate(kinds)])
    )
    keys = st.sampled_from([pa.string(), pa.int32(), pa.large_binary()])
    return st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        st.builds(pa.list_, inner, st.integers(0, 3)),
        structs,
        st.builds(pa.map_, keys, inner),
    )


kinds = st.recursive(st.sampled_from(LEAVES), _nested, max_leaves=4) | st.just(pa.uuid())


def value(rng: random.Random, kind: pa.DataType, nulls: bool) -> Any:
    """A random Python value of this type; None is frequent if ``nulls``."""
    types = pa.types
    if types.is_null(kind) or (nulls and rng.random() < 0.3):
        return None
    if isinstance(kind, pa.BaseExtensionType):
        return rng.randbytes(16)
    if types.is_boolean(kind):
        return rng.random() < 0.5
    if types.is_string(kind) or types.is_large_string(kind):
        return rng.choice("xü") * rng.randrange(12)
    if types.is_fixed_size_binary(kind):
        return rng.randbytes(kind.byte_width)
    if types.is_binary(kind) or types.is_large_binary(kind):
        return rng.randbytes(rng.randrange(12))
    if types.is_struct(kind):
        return {f.name: value(rng, f.type, nulls) for f in kind}
    if types.is_map(kind):
        keys = [value(rng, kind.key_type, False) for _ in range(rng.randrange(3))]
        return [(key, value(rng, kind.item_type, nulls)) for key in keys]
    if types.is_fixed_size_list(kind):
        return [value(rng, kind.value_type, nulls) for _ in range(kind.list_size)]
    if types.is_list(kind) or types.is_large_list(kind):
        return [value(rng, kind.value_type, nulls) for _ in range(rng.randrange(4))]
    if types.is_decimal(kind):
        return Decimal(rng.randrange(1000)).scaleb(-kind.scale)
    if types.is_interval(kind):
        return pa.MonthDayNano([rng.randrange(9), rng.randrange(9), rng.randrange(9)])
    if types.is_floating(kind):
        return float(rng.randrange(100))
    return rng.randrange(100)


def column(rng: random.Random, kind: pa.DataType, rows: int) -> pa.Array:
    """A slice, so that its buffers do not begin with the first value."""
    nulls = rng.random() < 0.5
    values = [value(rng, kind, nulls) for _ in range(rows + 1)]
    return pa.array(values, kind).slice(1)


def batch(rng: random.Random, schema: list[pa.DataType], rows: int) -> pa.RecordBatch:
    columns = [column(rng, kind, rows) for kind in schema]
    return pa.RecordBatch.from_arrays(columns, names=[f"c{i}" for i in range(len(columns))])


batches = st.builds(
    lambda seed, schema, rows: batch(random.Random(seed), schema, rows),
    st.integers(0, 2**32),
    st.lists(kinds, min_size=1, max_size=4),
    st.sampled_from([0, 1, 2, 7, 8, 9, 63, 64, 65, 200]),
)
