"""The oracle against hand-computed answers."""

from __future__ import annotations

import math
from decimal import Decimal

import pyarrow as pa
import pytest

import naive

SALES = pa.table({"id": [1, 2, 2, None, 9], "note": ["a", "b", "c", "d", "e"]})
PRODUCTS = pa.table({"id": [2, 1, 2, None, 5], "price": [20, 10, 21, 99, 50]})


@pytest.mark.parametrize(
    ("how", "rows"),
    [
        ("inner", [(1, "a", 10), (2, "b", 20), (2, "b", 21), (2, "c", 20), (2, "c", 21)]),
        (
            "left",
            [
                (1, "a", 10),
                (2, "b", 20),
                (2, "b", 21),
                (2, "c", 20),
                (2, "c", 21),
                (None, "d", None),
                (9, "e", None),
            ],
        ),
        ("left_semi", [(1, "a"), (2, "b"), (2, "c")]),
        ("left_anti", [(None, "d"), (9, "e")]),
    ],
)
def test_every_how(how: str, rows: naive.Rows) -> None:
    assert naive.join(SALES, PRODUCTS, "id", how) == rows
    assert naive.join(SALES, PRODUCTS, ["id"], how) == rows


def test_on_a_mapping_keeps_both_key_columns() -> None:
    sales = SALES.rename_columns(["product", "note"])
    on = {"product": "id"}
    assert naive.columns(sales, PRODUCTS, on) == ["product", "note", "id", "price"]
    assert naive.join(sales, PRODUCTS, on)[0] == (1, "a", 1, 10)


def test_composite_keys_with_a_null_in_one_part_never_match() -> None:
    stream = pa.table({"a": [1, 1, None], "b": ["x", None, "x"]})
    master = pa.table({"a": [1, 1, None], "b": ["x", None, "x"], "v": [1, 2, 3]})
    assert naive.join(stream, master, ["a", "b"]) == [(1, "x", 1)]
    assert len(naive.join(stream, master, ["a", "b"], "left_anti")) == 2


def test_names_of_columns() -> None:
    stream = pa.table({"id": [1], "price": [3]})
    master = pa.table({"id": [1], "price": [10], "maker": ["m"]})
    assert naive.columns(stream, master, "id") == ["id", "price", "price_master", "maker"]
    assert naive.columns(stream, master, "id", select=["maker"]) == ["id", "price", "maker"]
    assert naive.columns(stream, master, "id", select=["id"]) == ["id", "price", "id_master"]
    renamed = {"price": "list_price", "id": "key"}
    assert naive.columns(stream, master, "id", select=renamed)[2:] == ["list_price", "key"]
    assert naive.columns(stream, master, "id", "left_semi") == ["id", "price"]
    assert naive.join(stream, master, "id", select=renamed) == [(1, 3, 10, 1)]


def test_same_rows_ignores_order_and_counts_duplicates() -> None:
    naive.same_rows([(1, "a"), (2, "b"), (1, "a")], [(1, "a"), (1, "a"), (2, "b")])
    with pytest.raises(AssertionError, match=r"2 rows, 3 expected; 1 missing, 0 that"):
        naive.same_rows([(1, "a"), (2, "b")], [(1, "a"), (1, "a"), (2, "b")])


def test_same_rows_shows_the_difference() -> None:
    with pytest.raises(AssertionError) as failure:
        naive.same_rows([(1, {"x": [1]})], [(1, {"x": [2]})])
    assert "missing:\n  1 x (1, {'x': [2]})" in str(failure.value)
    assert "should not be there:\n  1 x (1, {'x': [1]})" in str(failure.value)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (math.nan, float("nan"), True),
        ([{"a": math.nan}], [{"a": math.nan}], True),
        (1, 1.0, False),
        (1, True, False),
        (0.0, -0.0, False),
        (None, "None", False),
        (b"a", "a", False),
        (Decimal("1.50"), Decimal("1.50"), True),
        ([1, None], [1], False),
        ({"a": 1}, {"a": 1, "b": None}, False),
    ],
)
def test_canonical(left: object, right: object, same: bool) -> None:
    assert (naive.canonical(left) == naive.canonical(right)) is same
