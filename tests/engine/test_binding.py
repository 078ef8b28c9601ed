"""How a stream and a master fit together: keys, output columns, versions of the master."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import semistream as ss
from engine.kit import Side, binding
from semistream.engine.binding import HOWS, Binding, key_pairs

MASTER = pa.schema([("k", pa.int64()), ("price", pa.int64()), ("maker", pa.string())])
STREAM = pa.schema([("n", pa.int32()), ("k", pa.int64()), ("price", pa.float64())])


def bound(
    select: Any = None,
    how: str = "inner",
    on: Any = "k",
    master: pa.Schema = MASTER,
    stream: pa.Schema = STREAM,
) -> Binding:
    made = Binding(Side(master, tuple(key_pairs(on).values())), on, select, how)
    made.bind(stream)
    return made


def names(made: Binding) -> list[str]:
    assert made.schema is not None
    return list(made.schema.names)


# -- keys --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on", "pairs"),
    [
        ("k", {"k": "k"}),
        (["a", "b"], {"a": "a", "b": "b"}),
        (("a",), {"a": "a"}),
        ({"a": "k"}, {"a": "k"}),
    ],
    ids=repr,
)
def test_forms_of_on(on: Any, pairs: dict[str, str]) -> None:
    assert key_pairs(on) == pairs


@pytest.mark.parametrize(
    ("on", "problem"),
    [
        ([], "at least one column"),
        ({}, "at least one column"),
        ([1], "each by its name"),
        ({"k": 1}, "each by its name"),
        (["a", "b", "a"], "names a column twice"),
        (5, "give a column name, a list of names, or a mapping"),
    ],
    ids=repr,
)
def test_on_that_cannot_be_read(on: Any, problem: str) -> None:
    with pytest.raises(ss.ConfigError, match=problem):
        key_pairs(on)


@pytest.mark.parametrize("on", ["price", ["k", "price"], {"k": "price"}, {"a": "k", "b": "k"}])
def test_a_table_is_joined_on_exactly_its_key(on: Any) -> None:
    with pytest.raises(ss.SchemaError, match="join on exactly the key columns"):
        Binding(Side(MASTER, ("k",)), on, None, "inner")


def test_key_columns_come_in_the_order_of_the_masters_key() -> None:
    master = Side(MASTER, ("maker", "k"))
    made = Binding(master, {"id": "k", "by": "maker"}, None, "inner")
    assert (made.stream_key, made.master_key) == (("by", "id"), ("maker", "k"))


def test_a_master_without_a_key_is_joined_on_any_column() -> None:
    made = Binding(Side(MASTER, ()), {"n": "price"}, None, "inner")
    assert made.master_key == ("price",)
    with pytest.raises(ss.SchemaError, match=r"no column 'other'; it has k, price, maker"):
        Binding(Side(MASTER, ()), {"n": "other"}, None, "inner")


def test_equal_keys_have_equal_codes_on_both_sides() -> None:
    made = bound(on={"n": "k"})  # int32 in the stream, int64 in the master
    stream = pa.record_batch({"n": pa.array([3, None, -1], pa.int32())})
    codes, valid = made.stream_codes(stream)
    master, all_valid = made.master_codes(pa.record_batch({"k": [3, 0, -1]}))
    assert codes[[0, 2]].tolist() == master[[0, 2]].tolist() == [3, -1]
    assert valid is not None
    assert valid.tolist() == [True, False, True]
    assert all_valid is None


@pytest.mark.parametrize(
    ("stream", "master"),
    [
        (pa.string(), pa.int64()),
        (pa.float64(), pa.int64()),
        (pa.timestamp("ns"), pa.timestamp("s")),
        (pa.decimal128(10, 4), pa.decimal128(10, 2)),
    ],
    ids=str,
)
def test_a_stream_key_that_does_not_widen_to_the_masters(
    stream: pa.DataType, master: pa.DataType
) -> None:
    with pytest.raises(
        ss.SchemaError, match=r"'k'.* (cast one of them first|cannot be a join key)"
    ):
        bound(master=pa.schema([("k", master)]), stream=pa.schema([("k", stream)]))


def test_a_column_that_cannot_be_a_key() -> None:
    with pytest.raises(ss.SchemaError, match="'k' of type double cannot be a join key"):
        bound(master=pa.schema([("k", pa.float64())]))


# -- output columns ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("select", "added"),
    [
        (None, ["price_master", "maker"]),
        ([], []),
        (["maker"], ["maker"]),
        (["maker", "price"], ["maker", "price_master"]),
        (["k"], ["k_master"]),
        ({"price": "list_price"}, ["list_price"]),
        ({"maker": "by", "k": "product"}, ["by", "product"]),
    ],
    ids=repr,
)
def test_columns_of_the_master_follow_those_of_the_stream(select: Any, added: list[str]) -> None:
    assert names(bound(select)) == ["n", "k", "price", *added]


def test_a_key_of_another_name_is_a_column_like_others() -> None:
    made = bound(on={"n": "k"}, stream=pa.schema([("n", pa.int32())]))
    assert names(made) == ["n", "k", "price", "maker"]


@pytest.mark.parametrize(
    ("select", "stream"),
    [
        ({"maker": "n"}, STREAM),
        ({"maker": "x", "price": "x"}, STREAM),
        (["maker", "maker"], STREAM),
        (None, STREAM.append(pa.field("price_master", pa.int8()))),
    ],
    ids=["as in the stream", "two of one name", "twice", "with the suffix"],
)
def test_no_two_columns_of_one_name(select: Any, stream: pa.Schema) -> None:
    with pytest.raises(ss.SchemaError, match="the output would have two columns"):
        bound(select, stream=stream)
    assert names(bound(select, how="left_semi", stream=stream)) == stream.names


@pytest.mark.parametrize(
    ("select", "error", "problem"),
    [
        ("maker", ss.ConfigError, "give a list of columns or a mapping"),
        (7, ss.ConfigError, "give a list of columns or a mapping"),
        (["marker"], ss.SchemaError, "no column 'marker'; did you mean 'maker'. it has k, price"),
    ],
)
def test_select_that_cannot_be_read(select: Any, error: type[Exception], problem: str) -> None:
    with pytest.raises(error, match=problem):
        bound(select)


@pytest.mark.parametrize("how", HOWS)
def test_only_inner_and_left_add_columns(how: str) -> None:
    made = bound(["maker"], how)
    adds = how in ("inner", "left")
    assert made.keeps_master is adds
    assert made.master_columns == made.cached_columns == (["maker"] if adds else [])
    assert names(made) == [*STREAM.names, *(["maker"] if adds else [])]
    assert [column.to_pylist() for column in made.nulls(2)] == ([[None, None]] if adds else [])


@pytest.mark.parametrize(("how", "nullable"), [("inner", False), ("left", True)])
def test_columns_may_be_null_where_a_tuple_may_have_no_match(how: str, nullable: bool) -> None:
    strict = pa.schema([("k", pa.int64()), pa.field("v", pa.int8(), nullable=False)])
    made = bound(how=how, master=strict)
    assert made.schema is not None
    assert made.schema.field("v").nullable is nullable


def test_a_front_stage_keeps_the_key_where_codes_may_collide() -> None:
    assert bound(["maker"]).cached_columns == ["maker"]
    texts = pa.schema([("k", pa.string())])
    made = bound(["v"], master=texts.append(pa.field("v", pa.int8())), stream=texts)
    assert made.cached_columns == ["v", "k"]


# -- batches of the stream ---------------------------------------------------------------------


def empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ([("n", pa.int64())], "the stream has no column 'k'; it has n"),
        ([("k", pa.int64()), ("n", pa.int8()), ("n", pa.int8())], "more than one column 'n'"),
        ([("k", pa.int64()), ("k", pa.int64())], "more than one column 'k'"),
    ],
)
def test_a_first_batch_that_does_not_fit_fixes_nothing(fields: Any, problem: str) -> None:
    made = Binding(Side(MASTER), "k", None, "inner")
    with pytest.raises(ss.SchemaError, match=problem):
        made.check_batch(empty(pa.schema(fields)))
    assert made.stream_schema is made.schema is None
    made.check_batch(empty(STREAM))
    assert made.stream_schema == STREAM


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (STREAM.remove(0), r"missing \['n'\], unexpected \[\]"),
        (STREAM.append(pa.field("z", pa.int8())), r"missing \[\], unexpected \['z'\]"),
        (STREAM.set(0, pa.field("n", pa.int8())), "n is int8 instead of int32"),
        (pa.schema([STREAM[1], STREAM[0], STREAM[2]]), "column order is .*'k', 'n', 'price'"),
    ],
    ids=["missing", "more", "type", "order"],
)
def test_later_batches_have_the_first_ones_schema(other: pa.Schema, difference: str) -> None:
    made = bound()
    made.check_batch(empty(STREAM))
    with pytest.raises(ss.SchemaError, match=f"{difference}.*; cast it to the first schema"):
        made.check_batch(empty(other))
    made.unbind()
    if "k" in other.names:
        made.check_batch(empty(other))
        assert made.stream_schema == other


def test_a_table_is_no_batch() -> None:
    with pytest.raises(ss.SchemaError, match=r"not Table; .*\.to_batches\(\)"):
        bound().check_batch(pa.table({"k": [1]}))


# -- versions of the master --------------------------------------------------------------------


@dataclass(frozen=True)
class Version(Side):
    version: int = 2


def test_a_version_may_have_its_columns_in_another_order_and_others() -> None:
    fields = [MASTER[2], pa.field("new", pa.int8()), MASTER[0]]  # and no price
    bound(["maker"]).check_version(Version(pa.schema(fields)), 1)


@pytest.mark.parametrize(
    ("schema", "key", "change"),
    [
        (MASTER, ("maker",), r"its key is \['maker'\] instead of \['k'\]"),
        (MASTER.remove(2), ("k",), "column 'maker' is missing"),
        (MASTER.set(2, pa.field("maker", pa.int8())), ("k",), "'maker' is int8 instead of string"),
        (MASTER.set(0, pa.field("k", pa.int32())), ("k",), "'k' is int32 instead of int64"),
    ],
    ids=["key", "column", "type of a column", "type of the key"],
)
def test_a_version_that_has_changed_too_much(
    schema: pa.Schema, key: tuple[str, ...], change: str
) -> None:
    made = bound(["maker"])
    with pytest.raises(ss.SchemaError, match=rf"version 2 .* version 1: .*{change}.* use\(1\)"):
        made.check_version(Version(schema, key), 1)


@pytest.mark.parametrize("how", HOWS)
def test_a_column_that_may_be_null_now(how: str) -> None:
    """Only an inner join has promised that it has no nulls."""
    strict = pa.schema([("k", pa.int64()), pa.field("v", pa.int8(), nullable=False)])
    lax = Version(pa.schema([("k", pa.int64()), ("v", pa.int8())]))
    made = binding(Side(strict), how=how)
    if how == "inner":
        with pytest.raises(ss.SchemaError, match="'v' is nullable now"):
            made.check_version(lax, 1)
    else:
        made.check_version(lax, 1)
