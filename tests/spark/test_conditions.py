"""Conditions and as-of in Spark: a star with three kinds of look-up in one transfer."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import naive
import semistream as ss
from spark.streams import rows_of

START = datetime(2024, 1, 1, tzinfo=timezone.utc)


def _hour(n: int) -> datetime:
    return START + timedelta(hours=n)


def _tables(folder: Path) -> tuple[list[ss.Lookup], naive.Rows, pa.Table]:
    """Look-ups by equality, as of a time and by a range; the expected rows; the stream."""
    times = pa.timestamp("us", "UTC")
    places = range(300)
    stream = pa.table(
        {
            "n": places,
            "product": [i % 23 for i in places],
            "t": pa.array([None if i % 19 == 5 else _hour(i % 50) for i in places], times),
            "amount": [(i * 7) % 100 for i in places],
        }
    )
    names = pa.table({"product": range(20), "name": [f"product {i}" for i in range(20)]})
    prices = pa.table(
        {
            "product": [i % 20 for i in range(80)],
            "since": pa.array([_hour(i // 20 * 13 + i % 5) for i in range(80)], times),
            "price": range(80),
        }
    )
    tariffs = pa.table(
        {
            "product": [i % 20 for i in range(60)],
            "low": [i // 20 * 30 for i in range(60)],
            "high": [i // 20 * 30 + 25 for i in range(60)],
            "tariff": range(60),
        }
    )
    build = ss.MasterTable.build
    lookups = [
        ss.Lookup(build(names, folder / "names", key="product", unique=True), on="product"),
        ss.Lookup(
            build(prices, folder / "prices", key="product", history="since"), on="product",
            how="left", select=["price"], as_of="t",
        ),
        ss.Lookup(
            build(tariffs, folder / "tariffs", key="product"), on="product", how="left",
            select=["tariff"], where=ss.Between("amount", "low", "high"),
        ),
    ]  # fmt: skip
    first = naive.join(stream, names, "product")
    one = pa.Table.from_pylist(
        [dict(zip([*stream.column_names, "name"], row, strict=True)) for row in first],
        stream.schema.append(pa.field("name", pa.string())),
    )
    was_valid = naive.as_of(prices, "product", "t", "since")
    second = naive.join(one, prices, "product", "left", ["price"], was_valid)
    two = pa.Table.from_pylist(
        [dict(zip([*one.column_names, "price"], row, strict=True)) for row in second],
        one.schema.append(pa.field("price", pa.int64())),
    )
    within = lambda row, other: other["low"] <= row["amount"] <= other["high"]  # noqa: E731
    return lookups, naive.join(two, tariffs, "product", "left", ["tariff"], within), stream


def _without_zone(rows: naive.Rows) -> naive.Rows:
    """Times in UTC: some versions of Spark return them in the session's time zone."""

    def plain(value: Any) -> Any:
        if not isinstance(value, datetime) or value.tzinfo is None:
            return value
        return value.astimezone(timezone.utc).replace(tzinfo=None)

    return [tuple(map(plain, row)) for row in rows]


def test_a_star_of_equality_as_of_and_range(spark: Any, tmp_path: Path) -> None:
    lookups, expected, stream = _tables(tmp_path)
    df = spark.createDataFrame(stream)
    found = rows_of(ss.enrich(df, lookups, memory="24MB"))
    naive.same_rows(_without_zone(found), _without_zone(expected))


def test_a_predicate_travels_to_the_workers(spark: Any, tmp_path: Path) -> None:
    _, _, stream = _tables(tmp_path)
    limit = 40

    def cheap(stream: pa.RecordBatch, master: pa.RecordBatch) -> Any:
        return pc.less(pc.add(stream.column("amount"), master.column("price")), limit)

    where = ss.Predicate(cheap, stream=["amount"], master=["price"])
    prices = ss.MasterTable.open(tmp_path / "prices")
    df = spark.createDataFrame(stream)
    found = rows_of(ss.enrich(df, prices, on="product", how="left_semi", memory="8MB", where=where))
    expected = naive.join(
        stream, prices.to_table(), "product", "left_semi",
        where=lambda row, other: row["amount"] + other["price"] < limit,
    )  # fmt: skip
    naive.same_rows(_without_zone(found), _without_zone(expected))


def test_conditions_survive_the_options_of_a_sink(tmp_path: Path) -> None:
    from semistream.spark.sink_options import options_of, plan_of

    lookups, _, _ = _tables(tmp_path)
    texts = options_of(lookups, output="parquet", path=str(tmp_path / "out"))
    opened = [one.open() for one in plan_of(texts).lookups]
    assert [one.as_of for one in opened] == [None, "t", None]
    assert opened[2].where == (ss.Between("amount", "low", "high"),)
    with pytest.raises(ss.ConfigError, match="a function cannot be written down"):
        options_of([ss.Lookup(lookups[0].master, on="product", where=ss.Predicate(len))])


def test_rows_of_a_partition_keep_their_order(spark: Any, tmp_path: Path) -> None:
    lookups, expected, stream = _tables(tmp_path)
    df = spark.createDataFrame(stream).coalesce(1)
    found = rows_of(ss.enrich(df, lookups, memory="24MB", order="stream"))
    assert [row[0] for row in found] == [row[0] for row in expected]
    naive.same_rows(_without_zone(found), _without_zone(expected))
    with pytest.raises(ss.ConfigError, match="order='time' is unknown; choose stream"):
        ss.enrich(df, lookups, order="time")


def test_old_data_fails_a_task(spark: Any, tmp_path: Path) -> None:
    lookups, _, stream = _tables(tmp_path)
    names = lookups[0].master  # it was never synced
    df = spark.createDataFrame(stream)
    too_old = ss.enrich(df, names, on="product", memory="8MB", max_age="1h", too_old="raise")
    with pytest.raises(Exception, match="of unknown age: it was never synced, and max_age is 1h"):
        too_old.collect()
    with pytest.raises(ss.ConfigError, match="is not a duration"):
        ss.enrich(df, names, on="product", max_age="soon")
    with pytest.raises(ss.ConfigError, match="max_age cannot be combined with a list"):
        ss.enrich(df, lookups, max_age="1h")


def test_a_limit_of_age_survives_the_options_of_a_sink(tmp_path: Path) -> None:
    from semistream.spark.sink_options import options_of, plan_of

    lookups, _, _ = _tables(tmp_path)
    given = ss.Lookup(lookups[0].master, on="product", max_age="1h", too_old="raise")
    texts = options_of([given], output="parquet", path=str(tmp_path / "out"))
    (opened,) = [one.open() for one in plan_of(texts).lookups]
    assert (opened.max_age, opened.too_old) == ("1h", "raise")
