"""Conditions on pairs: every comparison equals that of Python values, for any types and units."""

from __future__ import annotations

import operator
import pickle
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semistream as ss
from semistream.engine.binding import Binding
from semistream.engine.compared_types import FUNCTIONS, alike, compared
from semistream.engine.context import Context
from semistream.engine.intake import Slice
from semistream.engine.observer import Observer
from semistream.engine.rows.page_columns import PageColumns
from semistream.engine.rows.row_store import RowStore
from semistream.engine.window.tuple_layout import TupleLayout

OPERATORS = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
EPOCH = datetime(1970, 1, 1)
TIMES = st.integers(-3, 3).map(lambda n: EPOCH + timedelta(hours=12 * n))
INTS = st.integers(-100, 100)
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): INTS | st.sampled_from([-(2**63), 2**63 - 1]),
    pa.int32(): INTS,
    pa.int16(): INTS,
    pa.int8(): INTS,
    pa.uint8(): st.integers(0, 255),
    pa.uint16(): st.integers(0, 300),
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.float64(): st.floats(-3, 3) | st.just(float("nan")),
    pa.float32(): st.sampled_from([0.5, -1.0, 2.0, float("nan"), float("inf")]),
    pa.timestamp("s"): TIMES,
    pa.timestamp("us"): TIMES,
    pa.timestamp("ns"): TIMES,
    pa.date32(): st.integers(-2, 2).map(lambda n: date(1970, 1, 1) + timedelta(days=n)),
    pa.string(): st.text("ab", max_size=2),
    pa.decimal128(5, 1): st.integers(-3, 3).map(lambda n: Decimal(n) / 2),
}
GROUPS = [
    [kind for kind in VALUES if pa.types.is_integer(kind)],
    [kind for kind in VALUES if pa.types.is_floating(kind)],
    [kind for kind in VALUES if pa.types.is_temporal(kind)],
    [pa.string()],
    [pa.decimal128(5, 1)],
]


class Master:
    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.key = ("k",)
        self.code_column = None


def bound(stream: pa.Schema, master: pa.Schema, where: Any) -> Binding:
    binding = Binding(Master(master), "k", None, "inner", where)
    binding.bind(stream)
    return binding


def as_time(value: Any) -> Any:
    return datetime(value.year, value.month, value.day) if type(value) is date else value


@st.composite
def pairs(draw: st.DrawFn) -> tuple[pa.Array, pa.Array, str]:
    kinds = draw(st.sampled_from(GROUPS))
    one, other = draw(st.sampled_from(kinds)), draw(st.sampled_from(kinds))
    count = draw(st.integers(1, 12))
    arrays = [
        pa.array(draw(st.lists(VALUES[kind] | st.none(), min_size=count, max_size=count)), kind)
        for kind in (one, other)
    ]
    return arrays[0], arrays[1], draw(st.sampled_from(list(OPERATORS)))


@given(drawn=pairs(), cut=st.integers(0, 3))
@settings(max_examples=150)
def test_every_comparison_equals_that_of_python(drawn: Any, cut: int) -> None:
    x, y, sign = drawn
    keys = pa.array(range(len(x)))
    stream = pa.RecordBatch.from_pydict({"k": keys, "x": x}).slice(cut)
    master = pa.RecordBatch.from_pydict({"k": keys, "y": y})
    binding = bound(stream.schema, master.schema, ss.Compare("x", sign, "y"))
    checked = binding.pair_filter()
    assert checked is not None
    tuples = np.repeat(np.arange(stream.num_rows), master.num_rows)
    rows = np.tile(np.arange(master.num_rows), stream.num_rows)
    left, right = stream.column("x").to_pylist(), y.to_pylist()
    expected = [
        None not in (left[t], right[r]) and OPERATORS[sign](as_time(left[t]), as_time(right[r]))
        for t, r in zip(tuples.tolist(), rows.tolist(), strict=True)
    ]
    columns = PageColumns([y.type], 2)
    columns.put(1, [y])
    layout = TupleLayout(binding, stream.schema)
    context = Context(binding, Observer(), lambda: 0.0)
    part = Slice(stream, context, layout)
    pages = np.ones(len(rows), np.int32)
    found = [checked.arriving(part, tuples, columns, pages, rows.astype(np.int32))]
    cached = store_of([master.schema.field(n).type for n in binding.cached_columns])
    cached.put(
        [master.column(name) for name in binding.cached_columns],
        np.arange(len(y)), np.arange(len(y), dtype=np.int32)[::-1].copy(),
    )  # fmt: skip
    found.append(checked.cached(part, tuples, cached, (len(y) - 1 - rows).astype(np.int32)))
    window = Window(layout, stream, part)
    found.append(checked.waiting(window, window.slots[tuples], columns, pages, rows))
    for mask in found:
        assert (np.ones(len(rows), bool) if mask is None else mask).tolist() == expected


class Window:
    """Tuples in slots, as in the windows of the joins."""

    def __init__(self, layout: TupleLayout, batch: pa.RecordBatch, part: Slice) -> None:
        count = batch.num_rows
        self.layout = layout
        self.rows = RowStore(layout.record, count + 1, 10_000)
        self.slots = np.arange(count, dtype=np.int32)[::-1].copy()
        self.codes = np.zeros(count + 1, np.int64)
        self.codes[self.slots] = part.codes
        self.rows.put(layout.columns(batch), np.arange(count), self.slots)


def store_of(types: list[pa.DataType]) -> RowStore:
    from semistream.engine.rows.layout import RecordLayout

    return RowStore(RecordLayout(types), 20, 10_000)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (pa.array([-1, 2**63 - 1]), pa.array([2**64 - 1, 0], pa.uint64())),
        (pa.array([2**64 - 1, 7], pa.uint64()), pa.array([-1, 7], pa.int8())),
        (pa.array([2**53 + 1, 2**62]), pa.array([2.5, 1e300])),
        (pa.array([2**24 + 1], pa.int32()), pa.array([2.0**24], pa.float32())),
    ],
)
def test_integers_that_the_other_type_cannot_represent(x: pa.Array, y: pa.Array) -> None:
    """Arrow refuses to compare them, which would stop a stream at such a tuple for ever."""
    for sign, compare in OPERATORS.items():
        passed = FUNCTIONS[sign](*alike(x, y)).to_pylist()
        expected = [compare(a, b) for a, b in zip(x.to_pylist(), y.to_pylist(), strict=True)]
        assert passed == expected, sign


def test_units_are_compared_without_overflow() -> None:
    """The end of time in seconds has no value in nanoseconds."""
    assert compared(pa.timestamp("s"), pa.timestamp("ns")) == (1, 10**9)
    assert compared(pa.date32(), pa.timestamp("us")) == (1, 86_400 * 10**6)
    assert compared(pa.timestamp("us", "UTC"), pa.timestamp("us", "Asia/Tokyo")) == (1, 1)
    assert compared(pa.timestamp("us", "UTC"), pa.timestamp("us")) is None


STREAM = pa.schema([("k", pa.int64()), ("x", pa.int64()), ("t", pa.timestamp("us"))])
MASTER = pa.schema([("k", pa.int64()), ("y", pa.int64()), ("u", pa.timestamp("us", "UTC"))])


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (ss.Compare("z", "<", "y"), "stream has no column 'z'"),
        (ss.Compare("x", "<", "z"), "master table has no column 'z'"),
        (ss.Compare("t", "<", "u"), "cannot be compared; cast one"),
        (ss.Compare("x", "<", "u"), "cannot be compared; cast one"),
    ],
)
def test_wrong_columns_are_refused(where: Any, words: str) -> None:
    with pytest.raises(ss.SchemaError, match=words):
        bound(STREAM, MASTER, where)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ss.Compare("x", "=<", "y"), "operator '=<' is unknown"),
        (lambda: ss.Between("x", "y", "z", closed="up"), "closed='up'"),
        (lambda: ss.Between("x", "y", "z", of="both"), "of='both'"),
        (lambda: ss.Between("x", "y", 3), "3 is not a column name"),  # type: ignore[arg-type]
        (lambda: ss.Predicate("x > y"), "give a function"),  # type: ignore[arg-type]
        (lambda: ss.Predicate(len, stream="x"), "a list of column names"),
        (lambda: Binding(Master(MASTER), "k", None, "inner", "x < y"), "give ss.Between"),
    ],
)
def test_wrong_conditions_are_refused(make: Any, words: str) -> None:
    with pytest.raises(ss.ConfigError, match=words):
        make()


@pytest.mark.parametrize("result", [[True], pa.array([1]), np.array([True, False])])
def test_a_predicate_must_return_a_mask_of_its_pairs(result: Any) -> None:
    binding = bound(STREAM, MASTER, ss.Predicate(lambda stream, master: result))
    checked = binding.pair_filter()
    assert checked is not None
    batch = pa.RecordBatch.from_pylist([{"k": 1, "x": 2, "t": None}] * 3, STREAM)
    part = Slice(batch, Context(binding, Observer(), lambda: 0.0), TupleLayout(binding, STREAM))
    columns = PageColumns(MASTER.types, 1)
    columns.put(0, pa.RecordBatch.from_pylist([{"k": 1, "y": 2, "u": None}], MASTER).columns)
    zeros = np.zeros(3, np.int64)
    with pytest.raises(ss.ConfigError, match="return a Boolean array with one value per pair"):
        checked.arriving(part, np.arange(3), columns, zeros, zeros)


def test_both_directions_of_a_range() -> None:
    of_stream = ss.Between("x", "low", "high", closed="left").comparisons
    assert [tuple(c)[:3] for c in of_stream] == [("x", ">=", "low"), ("x", "<", "high")]
    of_master = ss.Between("v", "low", "high", closed="right", of="master").comparisons
    assert [tuple(c)[:3] for c in of_master] == [("low", "<", "v"), ("high", ">=", "v")]


def test_descriptions_are_values() -> None:
    for one in (ss.Between("x", "a", "b"), ss.Compare("x", "<", "a"), ss.Predicate(len)):
        assert pickle.loads(pickle.dumps(one)) == one
