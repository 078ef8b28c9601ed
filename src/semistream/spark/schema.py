"""Schema conversion between Spark and Arrow, and the cast of output rows to Spark's types.

All checks run on the driver before a query starts: the error names the unsupported column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from semistream.errors import SchemaError
from semistream.spark.versions import UNFIT, arrow_type, is_binary_collation, spark_type

# Arrow types that Spark has under another name, or in a wider type that holds every value.
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.time32("s"): pa.time64("ns"),
    pa.time32("ms"): pa.time64("ns"),
    pa.time64("us"): pa.time64("ns"),
}


def stream_schema(schema: StructType, session: SparkSession) -> pa.Schema:
    """The Arrow schema in which Spark passes these columns to Python."""
    zone = str(session.conf.get("spark.sql.session.timeZone"))
    setting = session.conf.get("spark.sql.execution.arrow.useLargeVarTypes", "false")
    return pa.schema([_to_arrow(field, zone, setting == "true") for field in schema])


def _to_arrow(field: StructField, zone: str, large: bool) -> pa.Field:
    unfit = _unfit(field.dataType)
    if unfit is not None:
        raise SchemaError(
            f"the stream's column {field.name!r} is {field.dataType.simpleString()}; {unfit} "
            "cannot be passed to Python: cast or drop it before enrich"
        )
    try:
        kind = arrow_type(field.dataType, zone, large)
    except PySparkException as error:
        raise SchemaError(
            f"the stream's column {field.name!r} of type {field.dataType.simpleString()} cannot "
            f"be passed to Python: {error}; cast or drop it before enrich"
        ) from error
    return pa.field(field.name, kind, field.nullable)


def _unfit(kind: DataType) -> str | None:
    """The part of a type that mapInArrow does not support; None if there is none."""
    if isinstance(kind, UNFIT):
        return str(kind.simpleString())
    inner: Sequence[DataType] = ()
    if isinstance(kind, StructType):
        inner = [field.dataType for field in kind]
    elif isinstance(kind, ArrayType):
        inner = [kind.elementType]
    elif isinstance(kind, MapType):
        inner = [kind.keyType, kind.valueType]
    return next((unfit for unfit in map(_unfit, inner) if unfit is not None), None)


def check_key_collations(schema: StructType, keys: Sequence[str]) -> None:
    """Keys are compared by their bytes, so a collation on a key would be ignored."""
    for name in keys:
        for field in schema:
            kind = field.dataType
            if (
                field.name == name
                and isinstance(kind, StringType)
                and not is_binary_collation(kind)
            ):
                raise SchemaError(
                    f"the stream's key column {name!r} is {kind.simpleString()}; keys are compared "
                    "by their bytes: cast it with collate(..., 'UTF8_BINARY') first"
                )


def master_field(field: pa.Field) -> StructField:
    """The Spark field of a master column; raises SchemaError if Spark has no such type."""
    try:
        kind = spark_type(spark_arrow_type(field.type))
    except (PySparkException, TypeError) as error:
        raise SchemaError(
            f"the master table's column {field.name!r} is {field.type}, which has no Spark "
            "equivalent; leave it out with select, or build the table with another type"
        ) from error
    return StructField(field.name, kind, field.nullable)


def spark_arrow_type(kind: pa.DataType) -> pa.DataType:
    """The Arrow type that Spark uses for values of this type; TypeError if there is none."""
    types = pa.types
    if kind in _WIDER:
        return _WIDER[kind]
    if types.is_date64(kind):
        return pa.date32()
    if types.is_timestamp(kind) or types.is_duration(kind):
        if kind.unit == "ns":
            raise TypeError("nanoseconds")
        return pa.timestamp("us", kind.tz) if types.is_timestamp(kind) else pa.duration("us")
    if types.is_decimal(kind):
        if kind.precision > 38:
            raise TypeError("more than 38 digits")
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_struct(kind):
        return pa.struct([_field(kind.field(i)) for i in range(kind.num_fields)])
    if types.is_map(kind):
        return pa.map_(_field(kind.key_field), _field(kind.item_field))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(_field(kind.value_field))
    return kind


def _field(field: pa.Field) -> pa.Field:
    return field.with_type(spark_arrow_type(field.type))


def output_schemas(
    stream: StructType, arrow: pa.Schema, joined: pa.Schema
) -> tuple[StructType, pa.Schema]:
    """The Spark schema and the Arrow schema of the output rows.

    The stream's columns keep their exact Spark types, including collations and metadata, which
    Arrow types do not carry.
    """
    added = [joined.field(i) for i in range(len(arrow), len(joined))]
    fields = [master_field(field) for field in added]
    arrow_added = [field.with_type(spark_arrow_type(field.type)) for field in added]
    return StructType([*stream.fields, *fields]), pa.schema([*arrow, *arrow_added])


def to_spark_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Select and cast a batch's columns to the schema that Spark expects, if it differs.

    Spark takes columns by position. A newer version of the master table may have more columns, or
    another order. Raises SchemaError if a column is missing, or its new type does not cast to the
    expected one without loss.
    """
    if batch.schema.names != schema.names:
        missing = [name for name in schema.names if name not in batch.schema.names]
        if missing:
            raise SchemaError(
                f"the master table no longer has column {missing[0]!r}, which it had when the "
                "query was built; build the query again"
            )
        batch = batch.select(schema.names)
    columns: list[Any] = []
    changed = False
    for i, field in enumerate(schema):
        column = batch.column(i)
        if column.type != field.type and not _same_to_spark(column.type, field.type):
            column = _cast(column, field)
            changed = True
        columns.append(column)
    if not changed:
        return batch
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _cast(column: Any, field: pa.Field) -> Any:
    """Lossless casts only: to Spark's type, or between types of one kind."""
    found, wanted = column.type, field.type
    try:
        alike = _kind(found) is not None and _kind(found) == _kind(wanted)
        if alike or spark_arrow_type(found) == wanted:
            return column.cast(wanted)
        problem = ""
    except (pa.ArrowException, TypeError) as error:
        problem = f" ({error})"
    raise SchemaError(
        f"the master table's column {field.name!r} is now {found}, but was {wanted} when the "
        f"query was built{problem}; build the query again, or rebuild the table with the old type"
    )


def _kind(kind: pa.DataType) -> str | None:
    """Types of one kind are cast to each other with a check of every value."""
    types = pa.types
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    if types.is_string(kind) or types.is_large_string(kind):
        return "text"
    if types.is_binary(kind) or types.is_large_binary(kind):
        return "bytes"
    return "nested" if types.is_nested(kind) else None


def _same_to_spark(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Spark ignores the zone of a timestamp, and accepts text with 32-bit or 64-bit offsets."""
    types = pa.types
    if types.is_timestamp(found) and types.is_timestamp(wanted):
        return bool(found.unit == wanted.unit and (found.tz is None) == (wanted.tz is None))
    return bool(types.is_large_string(found) or types.is_large_binary(found)) and bool(
        types.is_string(wanted) or types.is_binary(wanted)
    )
