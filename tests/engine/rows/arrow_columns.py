"""Hypothesis strategies: columns of every stored type, with nulls, cut into pages by slices."""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st


class Celsius(pa.ExtensionType):
    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "semistream.test.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Celsius:
        return cls(storage)


def _whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _decimals(digits: int) -> st.SearchStrategy[decimal.Decimal]:
    return st.integers(-(10**digits) + 1, 10**digits - 1).map(decimal.Decimal)


_LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int8(), _whole(8)),
    (pa.int16(), _whole(16)),
    (pa.int32(), _whole(32)),
    (pa.int64(), _whole(64)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.date32(), _whole(16)),
    (pa.timestamp("us"), _whole(40)),
    (pa.decimal128(30, 0), _decimals(30)),
    (pa.decimal256(60, 0), _decimals(60)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.string(), st.text(max_size=20)),
    (pa.large_string(), st.text(max_size=20)),
    (pa.binary(), st.binary(max_size=20)),
    (pa.large_binary(), st.binary(max_size=20)),
    (pa.null(), st.none()),
]
_KEYS = [(kind, values) for kind, values in _LEAVES if kind in (pa.int32(), pa.string())]

Typed = tuple[pa.DataType, st.SearchStrategy[Any]]
"""A type and its values."""


def _optional(typed: Typed) -> st.SearchStrategy[Any]:
    return st.one_of(typed[1], typed[1], st.none())


def _list(typed: Typed, large: bool) -> Typed:
    values = st.lists(_optional(typed), max_size=4)
    return (pa.large_list(typed[0]) if large else pa.list_(typed[0])), values


def _fixed_list(typed: Typed, size: int) -> Typed:
    return pa.list_(typed[0], size), st.lists(_optional(typed), min_size=size, max_size=size)


def _map(key: Typed, item: Typed) -> Typed:
    entries = st.lists(st.tuples(key[1], _optional(item)), max_size=3)
    return pa.map_(key[0], item[0]), entries


def _struct(parts: list[Typed]) -> Typed:
    fields = [(f"f{i}", kind) for i, (kind, _) in enumerate(parts)]
    values = st.fixed_dictionaries({f"f{i}": _optional(part) for i, part in enumerate(parts)})
    return pa.struct(fields), values


def _nested(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    return st.one_of(
        st.builds(_list, inner, st.booleans()),
        st.builds(_fixed_list, inner, st.integers(0, 3)),
        st.builds(_map, st.sampled_from(_KEYS), inner),
        st.lists(inner, min_size=1, max_size=3).map(_struct),
    )


_leaf = st.sampled_from(_LEAVES)
_shallow = st.one_of(_leaf, _nested(_leaf))
typed = st.one_of(_leaf, _nested(_leaf), _nested(_shallow))


def _extended(kind: pa.DataType, array: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(Celsius(kind), array)


@st.composite
def paged_columns(draw: Any, most_columns: int = 4) -> list[list[pa.Array]]:
    """Pages of columns; each page is a slice with an offset of its own."""
    columns = draw(st.lists(st.tuples(typed, st.booleans()), min_size=1, max_size=most_columns))
    pages = []
    for _ in range(draw(st.integers(1, 4))):
        rows, skipped = draw(st.integers(0, 12)), draw(st.integers(0, 11))
        with_nulls = draw(st.booleans())
        page = []
        for (kind, values), is_extension in columns:
            value = _optional((kind, values)) if with_nulls else values
            length = skipped + rows + draw(st.integers(0, 2))
            drawn = draw(st.lists(value, min_size=length, max_size=length))
            array = pa.array(drawn, kind).slice(skipped, rows)
            page.append(_extended(kind, array) if is_extension else array)
        pages.append(page)
    return pages


@st.composite
def rows_of(draw: Any, pages: list[list[pa.Array]], most: int = 30) -> list[tuple[int, int]]:
    """Pairs of a page and a row in it."""
    pairs = [(place, row) for place, page in enumerate(pages) for row in range(len(page[0]))]
    return draw(st.lists(st.sampled_from(pairs), max_size=most)) if pairs else []


def taken(pages: list[list[pa.Array]], pairs: list[tuple[int, int]]) -> list[pa.Array]:
    """The same rows, by Arrow."""
    columns = []
    for parts in zip(*pages, strict=True):
        starts = [0]
        for part in parts:
            starts.append(starts[-1] + len(part))
        rows = pa.array([starts[place] + row for place, row in pairs], pa.int64())
        storages = [p.storage if isinstance(p, pa.ExtensionArray) else p for p in parts]
        column = pa.concat_arrays(storages).take(rows)
        if isinstance(parts[0], pa.ExtensionArray):
            column = _extended(column.type, column)
        columns.append(column)
    return columns
