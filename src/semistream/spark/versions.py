"""What differs between the versions of Spark that are supported; no other file asks for a version.

``FEATURES`` says which version a feature needs; :func:`require` raises for an older one. Classes
that an older pyspark lacks are replaced by empty ones, so that modules that derive from them can
be imported; whoever would hand them to Spark calls :func:`require` first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import types as spark_types
from pyspark.sql.pandas import types as conversion
from pyspark.sql.types import DataType, StringType, UserDefinedType, YearMonthIntervalType

from semistream.errors import ConfigError

VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
SUPPORTED = ((3, 5), (4, 0), (4, 1), (4, 2), (4, 3))


@dataclass(frozen=True)
class Feature:
    """Something that needs an API of Spark: the version that has it, and what older ones do."""

    name: str  # as in an error
    described: str  # as in the docs
    since: tuple[int, int]
    instead: str


BATCH_SOURCE = Feature(
    "ss.register",
    '`ss.register`; `spark.read.format("semistream-workload")`',
    (4, 0),
    "use to_warehouse, and files of semistream generate",
)
STREAM_SOURCE = Feature(
    'spark.readStream.format("semistream-workload")',
    '`spark.readStream.format("semistream-workload")`',
    (4, 2),
    "stream files of semistream generate",
)
SINK = Feature(
    'writeStream.format("semistream")',
    '`writeStream.format("semistream")`; elsewhere `to_warehouse` writes by `foreachBatch`',
    (4, 1),
    "use to_warehouse, which then writes by foreachBatch",
)
TIME = Feature(
    "a column of type time", "columns of type `time`", (4, 1), "leave it out with select"
)
COLLATIONS = Feature(
    "a collation", "keys with a collation are refused by name", (4, 0), "compare bytes"
)
CALENDAR = Feature(
    "a column of calendar intervals",
    "calendar intervals are refused by name; elsewhere by Spark",
    (4, 0),
    "drop it",
)
FEATURES = (BATCH_SOURCE, STREAM_SOURCE, SINK, TIME, COLLATIONS, CALENDAR)


def has(feature: Feature) -> bool:
    return feature.since <= VERSION


def require(feature: Feature) -> None:
    """Raise if this pyspark is too old for a feature."""
    if not has(feature):
        needed = ".".join(map(str, feature.since))
        raise ConfigError(
            f"{feature.name} needs pyspark {needed} or newer, and this is {pyspark.__version__}; "
            f"upgrade, or {feature.instead}"
        )


# Spark 3.5 is built with Scala 2.12, and its pip package says so nowhere.
SCALA = "2.12" if VERSION < (4, 0) else "2.13"
KAFKA = f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{pyspark.__version__}"

# Types that mapInArrow does not pass to Python. Before 4.0 a calendar interval has no class.
UNFIT: tuple[type[DataType], ...] = tuple(
    kind
    for kind in (
        YearMonthIntervalType,
        UserDefinedType,
        getattr(spark_types, "CalendarIntervalType", None),
    )
    if kind is not None
)


def arrow_type(kind: DataType, zone: str, large: bool) -> pa.DataType:
    """The Arrow type in which ``mapInArrow`` passes values of a type."""
    if VERSION >= (4, 2):
        return conversion.to_arrow_type(
            kind,
            error_on_duplicated_field_names_in_struct=True,
            timezone=zone,
            prefers_large_types=large,
        )
    convert: Any = conversion.to_arrow_type
    if VERSION >= (4, 0):
        found = convert(
            kind, error_on_duplicated_field_names_in_struct=True, prefers_large_types=large
        )
    else:
        found = convert(kind)
        _refuse_duplicates(found)
    return _in_zone(found, zone)


def _refuse_duplicates(kind: pa.DataType) -> None:
    """Newer versions refuse a struct with two fields of one name themselves."""
    fields = [kind.field(i) for i in range(kind.num_fields)]
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        raise PySparkException(f"a struct has two fields of one name: {', '.join(names)}")
    for field in fields:
        _refuse_duplicates(field.type)


def _in_zone(kind: pa.DataType, zone: str) -> pa.DataType:
    """Before 4.2 pyspark says UTC, while the JVM sends the session's time zone."""

    def field(one: pa.Field) -> pa.Field:
        return one.with_type(_in_zone(one.type, zone))

    types = pa.types
    if types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, zone)
    if types.is_struct(kind):
        return pa.struct([field(kind.field(i)) for i in range(kind.num_fields)])
    if types.is_map(kind):
        return pa.map_(field(kind.key_field), field(kind.item_field))
    if types.is_list(kind):
        return pa.list_(field(kind.value_field))
    return kind


def spark_type(kind: pa.DataType) -> DataType:
    """The Spark type of an Arrow type; a timestamp without a zone has none in Spark, either."""
    return conversion.from_arrow_type(kind, prefer_timestamp_ntz=True)


def is_binary_collation(kind: StringType) -> bool:
    return not has(COLLATIONS) or kind.isUTF8BinaryCollation()


if TYPE_CHECKING or has(BATCH_SOURCE):
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        InputPartition,
        WriterCommitMessage,
    )
else:

    class DataSource:
        def __init__(self, options: Any) -> None:
            self.options = options

    class DataSourceReader: ...

    class DataSourceStreamReader: ...

    class InputPartition:
        def __init__(self, value: Any) -> None:
            self.value = value

    class WriterCommitMessage: ...


if TYPE_CHECKING or has(SINK):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter: ...


if TYPE_CHECKING or has(STREAM_SOURCE):
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit: ...

    class ReadAllAvailable(ReadLimit): ...

    @dataclass(frozen=True)
    class ReadMaxRows(ReadLimit):
        max_rows: int

    class SupportsTriggerAvailableNow: ...


__all__ = [
    "BATCH_SOURCE",
    "CALENDAR",
    "COLLATIONS",
    "FEATURES",
    "KAFKA",
    "SINK",
    "STREAM_SOURCE",
    "SUPPORTED",
    "TIME",
    "UNFIT",
    "VERSION",
    "DataSource",
    "DataSourceReader",
    "DataSourceStreamArrowWriter",
    "DataSourceStreamReader",
    "Feature",
    "InputPartition",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "WriterCommitMessage",
    "arrow_type",
    "has",
    "is_binary_collation",
    "require",
    "spark_type",
]
