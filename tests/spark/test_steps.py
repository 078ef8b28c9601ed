"""The papers' transformations on small DataFrames, batch and streaming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import semistream as ss
from spark.streams import Sink, feed, master, products, rows_of, sales, stream_of

KEYS = pa.table(
    {
        "source": ["crm", "crm", "shop", "shop"],
        "id": [1, 2, 1, 7],
        "customer_key": [100, 101, 101, 102],  # shop's 1 is crm's 2
    }
)


@pytest.fixture
def keys(tmp_path: Path) -> Any:
    return master(tmp_path / "keys", KEYS, key=["source", "id"], unique=True)


def test_surrogate_keys_of_two_sources_that_overlap(spark: Any, keys: Any) -> None:
    from semistream.spark.steps import surrogate_key

    df = spark.createDataFrame([(1, "a"), (2, "b"), (9, "c"), (None, "d")], "cid long, x string")
    found = {}
    for source in ("crm", "shop"):
        out = df.transform(
            surrogate_key, keys, source=source, key="cid", to="customer_key", memory="16MB"
        )
        assert out.columns == ["x", "customer_key"]
        found[source] = {row.x: row.customer_key for row in out.collect()}
    assert found["crm"] == {"a": 100, "b": 101, "c": None, "d": None}
    assert found["shop"] == {"a": 101, "b": None, "c": None, "d": None}
    kept = surrogate_key(df, keys, source="crm", key="cid", to="customer_key", keep=True)
    assert kept.columns == ["cid", "x", "customer_key"]


def test_a_mapping_has_a_key_of_two_columns(spark: Any, tmp_path: Path) -> None:
    from semistream.spark.steps import surrogate_key

    with pytest.raises(ss.SchemaError, match="two columns"):
        df = spark.range(3)
        surrogate_key(df, master(tmp_path / "p"), source="crm", key="id", to="price")


def test_content_with_computed_columns(spark: Any, tmp_path: Path) -> None:
    from semistream.spark.steps import add_content

    df = spark.createDataFrame([(4, 3), (6, 2)], "product_id long, quantity int")
    compute = {"amount": "quantity * price", "tax": "round(amount * 0.19, 2)"}
    table = master(tmp_path / "p", products(50))
    out = add_content(df, table, "product_id", compute, select=["price"], memory="16MB")
    assert [tuple(row) for row in out.orderBy("product_id").collect()] == [
        (4, 3, 4.0, 12.0, 2.28),
        (6, 2, 6.0, 12.0, 2.28),
    ]


def test_new_and_known_tuples(spark: Any, tmp_path: Path) -> None:
    from semistream.spark.steps import known_tuples, new_tuples

    table = master(tmp_path / "p", products(50))
    df = spark.createDataFrame([(0,), (1,), (2,), (None,)], "product_id long")
    assert {r[0] for r in rows_of(new_tuples(df, table, "product_id"))} == {1, None}
    assert {r[0] for r in rows_of(known_tuples(df, table, "product_id"))} == {0, 2}


def test_duplicates(spark: Any, tmp_path: Path) -> None:
    from semistream.spark.steps import without_duplicates

    df = spark.createDataFrame([(1, 1), (1, 2), (2, 1)], "a long, b long")
    assert without_duplicates(df, "a").count() == 2
    assert without_duplicates(df, ["a", "b"]).count() == 3
    with pytest.raises(ss.SchemaError, match="'c'; the columns are a, b"):
        without_duplicates(df, "c")
    with pytest.raises(ss.ConfigError, match="belong together"):
        without_duplicates(df, "a", time="b")
    timed = "timestamp_seconds(sale_id + 1000) as at"
    for _ in range(2):
        feed(tmp_path / "in", sales(50))
    stream = stream_of(spark, tmp_path / "in").selectExpr("*", timed)
    sink = Sink(tmp_path)
    sink.run(without_duplicates(stream, "sale_id", "at", "10 minutes"))
    assert sorted(row[0] for row in sink.read(spark)) == list(range(50))


def test_dead_letters_have_a_reason(spark: Any, tmp_path: Path) -> None:
    from semistream.spark.steps import dead_letters, matched, with_reason

    shops = pa.table({"shop": ["b", "a"], "city": ["Bonn", "Aachen"]})
    lookups = [
        ss.Lookup(master(tmp_path / "products", products(50)), on="product_id", select=["price"]),
        ss.Lookup(master(tmp_path / "shops", shops, key="shop"), on={"at": "shop"}),
    ]
    rows = [(1, 4, "a"), (2, 5, "a"), (3, None, "b"), (4, 4, "x"), (5, 5, None)]
    df = spark.createDataFrame(rows, "n long, product_id long, at string")
    out = with_reason(df, lookups, memory="32MB")
    good = matched(out)
    assert good.columns == ["n", "product_id", "at", "price", "shop", "city"]
    assert [tuple(row) for row in good.collect()] == [(1, 4, "a", 4.0, "a", "Aachen")]
    reasons = {row.n: row.dead_letter_reason for row in dead_letters(out).collect()}
    assert reasons == {
        2: "no row of products for product_id = 5",
        3: "product_id is null",
        4: "no row of shops for at = x",
        5: "no row of products for product_id = 5",
    }
    with pytest.raises(ss.ConfigError, match="inner"):
        with_reason(df, ss.Lookup(tmp_path / "products", on="product_id", how="left"))
