"""What the tests use of Spark 4, added to Spark 3.5: DataFrames from and to Arrow tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa


def add_missing_methods() -> None:
    from pyspark.sql import DataFrame, SparkSession

    if hasattr(DataFrame, "toArrow"):
        return
    original: Any = SparkSession.createDataFrame

    def create(self: Any, data: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(data, pa.Table):
            return _from_arrow(self, data)
        return original(self, data, *arguments, **options)

    spark_class: Any = SparkSession
    frame_class: Any = DataFrame
    spark_class.createDataFrame = create
    frame_class.toArrow = _to_arrow


def _from_arrow(session: Any, table: pa.Table) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    slices = session.sparkContext.defaultParallelism

    # Nested, and so pickled by value: workers cannot import this module.
    def slice_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                begin, end = (table.num_rows * (number + i) // slices for i in (0, 1))
                yield from table.slice(begin, end - begin).to_batches()

    rows = session.range(0, slices, numPartitions=slices)
    frame = rows.mapInArrow(slice_of, from_arrow_schema(table.schema))
    return frame.localCheckpoint()  # so that plans show what a test maps, and not this


def _to_arrow(frame: Any) -> pa.Table:
    from pyspark.sql.pandas.types import to_arrow_schema

    batches = frame._collect_as_arrow()
    return pa.Table.from_batches(batches, None if batches else to_arrow_schema(frame.schema))
