"""``format("semistream-workload")``: the sales of :mod:`semistream.workload` as a Spark source.

A tuple is a function of the seed and its position, so an offset is just a position: a replayed
batch has the same bytes. The clock determines how far the stream has advanced: ``rowsPerSecond``
tuples arrive every second since the query first started, also while it is down.
``maxRowsPerBatch`` limits how much of a backlog one micro-batch reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from semistream.errors import ConfigError, existing
from semistream.spark.enrich import task_slots
from semistream.spark.versions import (
    BATCH_SOURCE,
    STREAM_SOURCE,
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    require,
)
from semistream.workload.checks import integer, number
from semistream.workload.stream import sales

FORMAT = "semistream-workload"
UNPACED_BATCH = 1_000_000  # rows of a micro-batch when neither a rate nor a limit is given
_SPARK_OPTIONS = ("path",)  # options that Spark itself may add


@dataclass(frozen=True)
class WorkloadOptions:
    """The parsed options. All but the last five are those of ``workload.sales``."""

    products: int
    exponent: float
    seed: int
    scattered: bool
    unmatched: float
    nulls: float
    stride: int
    batch_rows: int
    offset: int
    tuples: int | None
    rate: float | None
    most: int | None
    partitions: int | None

    @property
    def end(self) -> int | None:
        """Position after the last tuple; None if the stream is endless."""
        return None if self.tuples is None else self.offset + self.tuples

    def batches(self, start: int, count: int) -> Iterator[pa.RecordBatch]:
        """The tuples at these positions."""
        return sales(
            count,
            self.products,
            self.exponent,
            self.seed,
            self.scattered,
            self.batch_rows,
            self.unmatched,
            self.nulls,
            stride=self.stride,
            offset=start,
        )


def parse_options(options: Mapping[str, str]) -> WorkloadOptions:
    """Parse and check every option; names are case-insensitive, as everywhere in Spark."""
    given = {name.lower(): value for name, value in options.items()}
    known = {*(name.lower() for name in _KNOWN), *_SPARK_OPTIONS}
    wrong = next((name for name in given if name not in known), None)
    if wrong is not None:
        hint = existing(wrong, _KNOWN, "valid options are")
        raise ConfigError(f"{FORMAT}: unknown option {wrong!r}; {hint}")

    def take(name: str, convert: Callable[[str, str], Any], default: Any = None) -> Any:
        text = given.get(name.lower())
        return default if text is None else convert(name, text)

    if "products" not in given:
        raise ConfigError(f"{FORMAT} needs the option products: the number of keys in the table")
    found = WorkloadOptions(
        products=take("products", _integer(1)),
        exponent=take("exponent", _number, 1.0),
        seed=take("seed", _integer(0), 0),
        scattered=take("scattered", _flag, False),
        unmatched=take("unmatched", _number, 0.0),
        nulls=take("nulls", _number, 0.0),
        stride=take("stride", _integer(1), 1),
        batch_rows=take("batchRows", _integer(1), 50_000),
        offset=take("offset", _integer(0), 0),
        tuples=take("tuples", _integer(0)),
        rate=take("rowsPerSecond", _rate),
        most=take("maxRowsPerBatch", _integer(1)),
        partitions=take("partitions", _integer(1)),
    )
    found.batches(0, 0)  # raises for options that exclude each other
    return found


_KNOWN = (
    "products",
    "exponent",
    "seed",
    "scattered",
    "unmatched",
    "nulls",
    "stride",
    "batchRows",
    "offset",
    "tuples",
    "rowsPerSecond",
    "maxRowsPerBatch",
    "partitions",
)


def _integer(least: int) -> Callable[[str, str], int]:
    def convert(name: str, text: str) -> int:
        try:
            value: Any = int(text)
        except ValueError:
            value = text
        return integer(name, value, least)

    return convert


def _number(name: str, text: str) -> float:
    return number(name, text, 0.0)  # type: ignore[arg-type]


def _rate(name: str, text: str) -> float:
    return number(name, text, 0.0, open_low=True)  # type: ignore[arg-type]


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"{name}={text!r} is not a boolean; use true or false")
    return text.lower() == "true"


def register_workload(spark: SparkSession) -> None:
    """Register the source with a session; ``ss.register`` does it, too."""
    require(BATCH_SOURCE)
    # A class of __main__ is pickled by value, including the number of slots.
    values = {"slots": task_slots(spark), "__module__": "__main__"}
    spark.dataSource.register(type("RegisteredWorkload", (WorkloadSource,), values))


class WorkloadSource(DataSource):
    """The entry point for Spark, which creates a new instance whenever it needs one."""

    slots: ClassVar[int | None] = None

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        parse_options(self.options)  # raise for a bad option when the stream is created
        return StructType(
            [
                StructField("sale_id", LongType(), False),
                StructField("product_id", LongType()),
                StructField("quantity", IntegerType(), False),
            ]
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        require(STREAM_SOURCE)  # an older Spark neither limits a batch nor says where it begins
        return WorkloadStream(parse_options(self.options), self.slots or 1)

    def reader(self, schema: StructType) -> DataSourceReader:
        return WorkloadTable(parse_options(self.options), self.slots or 1)


class Part(InputPartition):
    """Positions for one task."""

    def __init__(self, start: int, count: int) -> None:
        super().__init__((start, count))


def parts(start: int, end: int, most: int) -> list[Part]:
    """Contiguous parts of nearly equal size, none of them empty."""
    count = min(most, end - start)
    cuts = [start + (end - start) * i // count for i in range(count + 1)] if count > 0 else []
    return [Part(low, high - low) for low, high in pairwise(cuts)]


class WorkloadStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are ``{"tuple": position, "origin": milliseconds}``; the origin never changes."""

    def __init__(self, options: WorkloadOptions, slots: int) -> None:
        self.options = options
        self.partition_count = options.partitions or slots
        self._available_now = False
        self._stop_at: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"tuple": self.options.offset, "origin": _now()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self.options.most) if self.options.most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        if self.options.end is None and self.options.rate is None:
            raise ConfigError(
                "availableNow reads what has arrived, but this stream has neither an end nor a "
                "rate; set tuples or rowsPerSecond"
            )
        self._available_now = True

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        arrived = self._arrived(start)
        if self._available_now:
            if self._stop_at is None:
                self._stop_at = arrived
            arrived = self._stop_at
        if isinstance(limit, ReadMaxRows):
            arrived = min(arrived, start["tuple"] + limit.max_rows)
        return {**start, "tuple": max(start["tuple"], arrived)}

    def _arrived(self, start: dict[str, int]) -> int:
        """Position after the last tuple that has arrived by now."""
        end, rate = self.options.end, self.options.rate
        if rate is not None:
            seconds = max(0, _now() - start["origin"]) / 1000
            arrived = self.options.offset + int(rate * seconds)
        elif end is not None:
            arrived = end
        else:
            arrived = start["tuple"] + (self.options.most or UNPACED_BATCH)
        return arrived if end is None else min(arrived, end)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Part]:
        return parts(start["tuple"], end["tuple"], self.partition_count)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.options.batches(*partition.value)


class WorkloadTable(DataSourceReader):
    """The same tuples as a batch table, for ``spark.read``."""

    def __init__(self, options: WorkloadOptions, slots: int) -> None:
        if options.tuples is None:
            raise ConfigError(f"spark.read needs a finite stream; set {FORMAT}'s option tuples")
        self.options = options
        self.partition_count = options.partitions or slots

    def partitions(self) -> list[Part]:
        start = self.options.offset
        return parts(start, self.options.end or start, self.partition_count)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.options.batches(*partition.value)


def _now() -> int:
    return time.time_ns() // 1_000_000
