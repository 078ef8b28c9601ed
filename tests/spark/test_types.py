"""Every Spark type on either side: it passes through unchanged, or is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import naive
import semistream as ss
from semistream.spark.versions import CALENDAR, COLLATIONS, VERSION
from spark.streams import rows_of

TYPES = {
    "boolean": "id % 2 = 0",
    "byte": "cast(id % 100 as tinyint)",
    "short": "cast(id as smallint)",
    "int": "cast(id as int)",
    "float": "cast(id / 3 as float)",
    "double": "id / 7",
    "decimal": "cast(id + 0.25 as decimal(10,2))",
    "wide_decimal": "cast(id + 0.125 as decimal(38,10))",
    "text": "concat('text ', id, ' äöü')",
    "collated": "collate(concat('Text ', id), 'UTF8_LCASE')",
    "chars": "cast('ab' as char(3))",
    "binary": "cast(concat('bytes', id) as binary)",
    "date": "date_add(date'1960-01-01', cast(id as int))",
    "timestamp": "timestamp'1969-12-31 23:59:59.123456' + make_dt_interval(0, id)",
    "timestamp_ntz": "timestamp_ntz'2020-02-29 12:00:00.5' + make_dt_interval(0, id)",
    "time": "time'01:02:03.000004'",
    "interval": "make_dt_interval(id, 1, 2, 3.5)",
    "days": "interval '3' day",
    "array": "array(id, null, 7)",
    "array_of_arrays": "array(array(id), array())",
    "map": "map(concat('k', id), id, 'other', null)",
    "struct": "named_struct('a', id, 'b', named_struct('c', array(concat('x', id))))",
    "deep": "array(named_struct('m', map(id, timestamp'2020-01-01 00:00:00')))",
    "variant": 'parse_json(concat(\'{"a": \', id, "}"))',
    "geometry": "st_geomfromwkb(x'0101000000000000000000F03F0000000000000040')",
}
SINCE = {"collated": (4, 0), "variant": (4, 0), "time": (4, 1), "geometry": (4, 2)}
TYPES = {name: sql for name, sql in TYPES.items() if SINCE.get(name, VERSION) <= VERSION}
VALUES = [*TYPES, "nothing"]


def slow(*values: str) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


def all_types(spark: Any, rows: int) -> Any:
    """Every type, each null in every fifth row, and a column of the void type."""
    df = spark.range(rows).selectExpr(
        "id as k", *(f"if(id % 5 = 3, null, {sql}) as {name}" for name, sql in TYPES.items())
    )
    return df.selectExpr("*", "null as nothing")


def comparable(df: Any) -> naive.Rows:
    """Variants and geometries cannot be compared; their text and bytes can."""
    shown = df
    for field in df.schema:
        if field.name.startswith("variant"):
            shown = shown.withColumn(field.name, shown[field.name].cast("string"))
        if field.name.startswith("geometry"):
            shown = shown.selectExpr(
                *(f"st_asbinary({n}) as {n}" if n == field.name else n for n in shown.columns)
            )
    return [tuple(map(plain, row)) for row in shown.collect()]


def plain(value: Any) -> Any:
    """Hashable all the way down. (toArrow fails on a null struct whose fields cannot be null.)"""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dict):
        return tuple(sorted(((plain(k), plain(v)) for k, v in value.items()), key=repr))
    if isinstance(value, (list, tuple)):
        return tuple(map(plain, value))
    return value


@pytest.mark.parametrize("algorithm", ["chybridjoin", slow("meshjoin")])
def test_every_type_passes_through_the_stream(spark: Any, tmp_path: Path, algorithm: str) -> None:
    keys = pa.table({"k": pa.array(range(0, 60, 2), pa.int64()), "here": [True] * 30})
    table = ss.MasterTable.build(keys, tmp_path / "keys", key="k", page_bytes=1024)
    stream = all_types(spark, 60).repartition(2)
    enriched = ss.enrich(stream, table, on="k", how="left", memory="16MB", using=algorithm)
    assert enriched.schema.fields[:-1] == stream.schema.fields
    expected = [(*row, row[0] % 2 == 0 or None) for row in comparable(stream)]
    naive.same_rows(comparable(enriched), expected)


@pytest.mark.parametrize("algorithm", ["cinlj", slow("chybridjoin")])
def test_every_type_passes_through_the_master(spark: Any, tmp_path: Path, algorithm: str) -> None:
    rows = all_types(spark, 40)
    table = ss.build_master(rows, tmp_path / "types", key="k", unique=True, page_bytes=4096)
    stream = spark.range(0, 60, numPartitions=2).selectExpr("id % 50 as k", "id")
    enriched = ss.enrich(stream, table, on="k", memory="16MB", using=algorithm)
    for field in enriched.schema.fields[2:]:
        assert same_kind(field.dataType, rows.schema[field.name].dataType), field.name
    expected = stream.join(rows, "k").select("k", "id", *VALUES)
    naive.same_rows(comparable(enriched), comparable(expected))


def same_kind(found: Any, given: Any) -> bool:
    """Arrow drops the collation of text and the units of an interval; nothing else."""
    known = {"string collate UTF8_LCASE": "string", "interval day": "interval day to second"}
    text = given.simpleString()
    return bool(found.simpleString() == known.get(text, text))


@pytest.mark.parametrize(
    ("key", "sql"),
    [
        slow("byte", "cast(id as tinyint)"),
        ("text", "concat('k', id)"),
        slow("binary", "cast(concat('k', id) as binary)"),
        slow("date", "date_add(date'1960-01-01', cast(id as int))"),
        ("timestamp", "timestamp'1969-12-31 23:00:00' + make_dt_interval(0, id)"),
        slow("timestamp_ntz", "timestamp_ntz'1969-12-31 23:00:00' + make_dt_interval(0, id)"),
        slow("decimal", "cast(id - 20.5 as decimal(12,2))"),
        ("wide_decimal", "cast(id - 20.5 as decimal(38,5))"),
    ],
)
def test_every_type_of_key(spark: Any, tmp_path: Path, key: str, sql: str) -> None:
    rows = spark.range(0, 60, 2).selectExpr(f"{sql} as k", "id as v")
    table = ss.build_master(rows, tmp_path / key, key="k", unique=True, partitions=2)
    stream = spark.range(0, 80, numPartitions=2).selectExpr(f"{sql} as k", "id")
    enriched = ss.enrich(stream, table, on="k", memory="8MB")
    naive.same_rows(rows_of(enriched), rows_of(stream.join(rows, "k").select("k", "id", "v")))


@pytest.mark.parametrize(
    ("name", "sql"),
    [
        ("years", "interval '1' year"),
        pytest.param("calendar", "make_interval(1, 2)", marks=pytest.mark.needs_spark(CALENDAR)),
        ("inside", "named_struct('a', array(interval '1' month))"),
        ("twice", "named_struct('a', 1, 'a', 2)"),
    ],
)
def test_unsupported_types_are_refused_by_name(
    spark: Any, tmp_path: Path, name: str, sql: str
) -> None:
    keys = pa.table({"k": pa.array(range(3), pa.int64())})
    table = ss.MasterTable.build(keys, tmp_path / "keys", key="k")
    stream = spark.range(3).selectExpr("id as k", f"{sql} as {name}")
    with pytest.raises(ss.SchemaError, match=f"column '{name}'"):
        ss.enrich(stream, table, on="k")
    with pytest.raises(ss.SchemaError, match=f"column '{name}'"):
        ss.build_master(stream, tmp_path / "refused", key="k")
    assert not (tmp_path / "refused").exists()


def test_arrow_types_that_spark_lacks_are_widened_or_refused(spark: Any, tmp_path: Path) -> None:
    columns = {
        "k": pa.array([1, 2], pa.uint16()),
        "u8": pa.array([255, None], pa.uint8()),
        "u64": pa.array([2**64 - 1, None], pa.uint64()),
        "half": pa.array([1.5, None], pa.float16()),
        "large": pa.array(["a", None], pa.large_string()),
        "seconds": pa.array([1, None], pa.timestamp("s")),
        "fixed": pa.array([b"ab", None], pa.binary(2)),
        "pair": pa.array([[1, 2], None], pa.list_(pa.int32(), 2)),
        "dictionary": pa.array(["x", None]).dictionary_encode(),
        "day": pa.array([86_400_000, None], pa.date64()),
    }
    table = ss.MasterTable.build(pa.table(columns), tmp_path / "arrow", key="k")
    stream = spark.range(1, 4).selectExpr("cast(id as int) as k")
    enriched = ss.enrich(stream, table, on="k", how="left", memory="8MB")
    kinds = [field.dataType.simpleString() for field in enriched.schema.fields[1:]]
    assert kinds[:5] == ["smallint", "decimal(20,0)", "float", "string", "timestamp_ntz"]
    assert kinds[5:] == ["binary", "array<int>", "string", "date"]
    rows = {row.k: row for row in enriched.collect()}
    assert (rows[1].u8, int(rows[1].u64), rows[1].half, rows[1].large) == (255, 2**64 - 1, 1.5, "a")
    assert (bytes(rows[1].fixed), rows[1].pair, rows[1].dictionary) == (b"ab", [1, 2], "x")
    assert all(value is None for value in rows[2][1:])
    assert all(value is None for value in rows[3][1:])
    fine = pa.table({"k": [1], "nanos": pa.array([1], pa.timestamp("ns"))})
    table = ss.MasterTable.build(fine, tmp_path / "nanos", key="k")
    with pytest.raises(ss.SchemaError, match=r"'nanos' is timestamp\[ns\]"):
        ss.enrich(stream, table, on="k")
    assert ss.enrich(stream, table, on="k", select=[], memory="8MB").columns == ["k"]


@pytest.mark.needs_spark(COLLATIONS)
def test_a_key_with_a_collation_is_refused(spark: Any, tmp_path: Path) -> None:
    table = ss.MasterTable.build(pa.table({"k": ["a"]}), tmp_path / "text", key="k")
    stream = spark.range(1).selectExpr("collate('A', 'UTF8_LCASE') as k")
    with pytest.raises(ss.SchemaError, match="compared by their bytes"):
        ss.enrich(stream, table, on="k")
