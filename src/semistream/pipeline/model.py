"""The fields of a pipeline file. Every field is validated before Spark starts."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic import field_validator as validates
from pydantic import model_validator as validates_all

from semistream.durations import parse_duration
from semistream.engine.conditions import from_description
from semistream.errors import unknown
from semistream.joins import ALGORITHMS
from semistream.memory import parse_size

_INTERVAL = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?)\s*")
_TYPE = re.compile(
    r"(?i)\s*(tinyint|byte|smallint|short|int|integer|bigint|long|float|real|double|boolean|string|"
    r"binary|date|timestamp|timestamp_ntz|timestamp_ltz|decimal(\(\d+(,\s*\d+)?\))?|"
    r"(varchar|char)\(\d+\)|array<.*>|map<.*>|struct<.*>)\s*"
)


# The common ones, as an error lists them.
_TYPES = (
    *("byte", "short", "int", "long", "float", "double", "decimal(10,2)", "boolean", "string"),
    *("binary", "date", "timestamp", "timestamp_ntz", "array<int>", "map<string,int>"),
)


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Names = Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]
OneOrMore = Annotated[Names, BeforeValidator(_listed)]
Option = str | int | float | bool
Options = dict[str, Option]
Text = Annotated[str, Field(min_length=1)]
Seconds = Annotated[float, Field(ge=0)]


class Part(BaseModel):
    """Base class of all sections; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, hide_input_in_errors=True)


class Value(Part):
    """How to convert the value of a Kafka message to columns."""

    format: Literal["json", "text"] = "json"
    keep: list[Literal["key", "topic", "partition", "offset", "timestamp"]] = []


class Source(Part):
    """The input stream: files, Kafka, or any format that Spark can stream."""

    format: Text
    path: Text | None = None
    columns: dict[Text, Text] | Text | None = Field(None, alias="schema")
    servers: Text | None = None
    topic: Text | None = None
    value: Value = Value()
    options: Options = {}
    select: dict[Text, Text] | OneOrMore | None = None
    where: Text | None = None

    @validates("columns")
    @classmethod
    def _types(cls, columns: Any) -> Any:
        for name, kind in columns.items() if isinstance(columns, dict) else ():
            if not _TYPE.fullmatch(kind):
                raise ValueError(f"column {name!r}: {unknown('Spark type', kind, _TYPES)}")
        return columns

    @validates_all(mode="after")
    def _complete(self) -> Source:
        if self.format in ("parquet", "json", "csv", "orc", "text", "avro"):
            if self.path is None:
                raise ValueError(f"a source with format {self.format} needs path")
            if self.columns is None and self.format != "text":
                raise ValueError(f"a source with format {self.format} needs schema")
        if self.format == "kafka":
            if self.servers is None and "kafka.bootstrap.servers" not in self.options:
                raise ValueError("a kafka source needs servers, such as host:9092")
            named = {"subscribe", "subscribePattern", "assign"} & set(self.options)
            if self.topic is None and not named:
                raise ValueError("a kafka source needs topic")
            if self.value.format == "json" and self.columns is None:
                raise ValueError("a kafka source with json values needs schema")
        elif self.servers is not None or self.topic is not None:
            raise ValueError(f"servers and topic are only for format kafka, not {self.format}")
        return self


class Sql(Part):
    """A master table that is queried in its database."""

    url: Text
    table: OneOrMore
    key: OneOrMore
    columns: Names | None = None
    unique: bool = False
    page_bytes: int | str = "256KiB"


class SyncSql(Part):
    """A table in a database that the master table follows."""

    url: Text
    table: OneOrMore
    version: Text | None = None
    overlap: int | str | None = None
    find_deletes: Text = "always"


class SyncKafka(Part):
    """A topic of changes that the master table follows."""

    servers: Text
    topic: Text
    value: Literal["json", "arrow"] = "json"
    options: Options = {}


class Sync(Part):
    """The source of truth of a master table; the driver syncs at an interval."""

    parquet: OneOrMore | None = None
    delta: Text | None = None
    sql: SyncSql | None = None
    kafka: SyncKafka | None = None
    every: Text = "30s"

    @validates("every")
    @classmethod
    def _every(cls, every: str) -> str:
        return _duration(every)

    @validates_all(mode="after")
    def _one_source(self) -> Sync:
        given = [self.parquet, self.delta, self.sql, self.kafka]
        if sum(one is not None for one in given) != 1:
            raise ValueError("sync needs exactly one of parquet, delta, sql, kafka")
        return self


def _duration(text: str) -> str:
    parse_duration(text, "duration")
    return text


class Lookup(Part):
    """One master table and how it is joined."""

    master: Text | None = None
    sql: Sql | None = None
    mapped: Literal["resident"] | None = None
    on: dict[Text, Text] | OneOrMore
    how: Literal["inner", "left", "left_semi", "left_anti"] = "inner"
    select: dict[Text, Text] | list[Text] | None = None
    where: dict[Text, Any] | list[dict[Text, Any]] | None = None
    as_of: Text | None = None
    sync: Sync | None = None
    max_age: Text | None = None
    too_old: Literal["warn", "raise"] = "warn"

    @validates("where")
    @classmethod
    def _conditions(cls, where: Any) -> Any:
        from_description(where)  # raises
        return where

    @validates("max_age")
    @classmethod
    def _max_age(cls, age: str | None) -> str | None:
        return None if age is None else _duration(age)

    @validates_all(mode="after")
    def _one_place(self) -> Lookup:
        if self.sql is not None and (self.sync is not None or self.max_age is not None):
            raise ValueError("sync and max_age are for a master table, not for sql")
        if self.sql is not None and self.mapped is not None:
            raise ValueError("mapped is for a master table, not for sql")
        if (self.master is None) == (self.sql is None):
            raise ValueError("give either master (a folder) or sql (a table in a database)")
        return self


class SurrogateKey(Part):
    """Replace a source system's key by the warehouse's surrogate key."""

    mapping: Text
    source: Text
    key: Text
    to: Text
    keep: bool = False


class Duplicates(Part):
    """Drop rows whose key was seen before."""

    key: OneOrMore
    time: Text | None = None
    within: Text | None = None

    @validates_all(mode="after")
    def _both(self) -> Duplicates:
        if (self.time is None) != (self.within is None):
            raise ValueError("time (a column) and within (an interval) must be given together")
        return self


class NewOnly(Part):
    """Keep the rows whose key is not in the master table."""

    master: Text
    on: dict[Text, Text] | OneOrMore


class Step(Part):
    """One step; exactly one field is set."""

    compute: dict[Text, Text] | None = None
    where: Text | None = None
    select: OneOrMore | None = None
    drop: OneOrMore | None = None
    surrogate_key: SurrogateKey | None = None
    deduplicate: Duplicates | None = None
    new_only: NewOnly | None = None

    @validates_all(mode="after")
    def _one(self) -> Step:
        if len(self.model_fields_set) != 1 or getattr(self, self.kind) is None:
            raise ValueError(f"a step needs exactly one of {', '.join(type(self).model_fields)}")
        return self

    @property
    def kind(self) -> str:
        return next(iter(self.model_fields_set), "compute")

    @property
    def table(self) -> tuple[str, str] | None:
        """The field and folder of the step's master table; None if the step does not join."""
        if self.surrogate_key is not None:
            return "mapping", self.surrogate_key.mapping
        return None if self.new_only is None else ("master", self.new_only.master)


class Sink(Part):
    """The target: one of semistream's exactly-once sinks, or any Spark sink."""

    output: Literal["parquet", "delta", "postgresql", "spark"]
    path: Text | None = None
    url: Text | None = None
    table: Text | None = None
    db_schema: Text | None = Field(None, alias="schema")
    patience: Seconds | None = None
    compression: Literal["snappy", "zstd", "lz4", "gzip", "none"] | None = None
    durable: bool | None = None
    format: Text | None = None
    options: Options = {}

    @validates_all(mode="after")
    def _complete(self) -> Sink:
        allowed = {
            "parquet": ({"path"}, {"compression", "durable"}),
            "delta": ({"path"}, {"compression", "durable"}),
            "postgresql": ({"url", "table"}, {"db_schema", "patience"}),
            "spark": ({"format"}, {"path", "options"}),
        }
        needed, possible = allowed[self.output]
        given = {name for name in self.model_fields_set if getattr(self, name) is not None}
        given -= {"output"}
        if missing := sorted(needed - given):
            raise ValueError(f"output {self.output} needs {missing[0]}")
        if extra := sorted(given - needed - possible):
            raise ValueError(f"output {self.output} has no field {extra[0].removeprefix('db_')}")
        return self


class DeadLetter(Part):
    """The target of unmatched rows, with the reason."""

    output: Literal["parquet", "delta"] = "parquet"
    path: Text


class Park(Part):
    """Where unmatched rows wait for their key, and how long."""

    path: Text
    max_age: Text | None = None
    max_rows: Annotated[int, Field(ge=1)] | None = None

    @validates("max_age")
    @classmethod
    def _max_age(cls, age: str | None) -> str | None:
        return None if age is None else _duration(age)


class DeferredTopic(Part):
    """A Kafka topic for deferred rows."""

    servers: Text
    topic: Text
    options: Options = {}


class Pipeline(Part):
    """The top level of the file."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
    source: Source
    lookups: list[Lookup] = []
    steps: list[Step] = []
    sink: Sink
    dead_letter: DeadLetter | None = None
    parking: Park | None = None
    batch_time: Text | None = None
    backlog: Text | None = None
    deferred_topic: DeferredTopic | None = None
    checkpoint: Text
    trigger: Text = "now"
    memory: int | str = Field("256MB", validate_default=True)
    rate: Annotated[float, Field(gt=0, lt=1e12)] | None = None
    using: Text = "auto"
    spark: dict[Text, Option] = {}
    packages: list[Text] = []

    @validates("trigger")
    @classmethod
    def _trigger(cls, trigger: str) -> str:
        if trigger not in ("now", "once") and not _INTERVAL.fullmatch(trigger):
            raise ValueError("use now (as fast as possible), once, or an interval like 5 seconds")
        return trigger

    @validates("memory")
    @classmethod
    def _memory(cls, memory: Any) -> int | str:
        return "auto" if memory == "auto" else parse_size(memory)

    @validates("using")
    @classmethod
    def _using(cls, using: str) -> str:
        if using != "auto" and using not in ALGORITHMS:
            raise ValueError(unknown("join", using, ["auto", *ALGORITHMS]))
        return using

    @validates_all(mode="after")
    def _rate(self) -> Pipeline:
        if (self.rate is not None) != (self.memory == "auto"):
            raise ValueError("memory: auto and rate (tuples per second) must be given together")
        return self

    @validates_all(mode="after")
    def _dead_letter(self) -> Pipeline:
        if self.dead_letter is not None:
            if self.sink.output == "spark":
                raise ValueError("dead_letter needs a semistream sink, not output spark")
            if any(lookup.how != "inner" for lookup in self.lookups) or not self.lookups:
                raise ValueError("dead_letter needs at least one look-up, and how: inner in all")
            if any(step.deduplicate is not None for step in self.steps):
                raise ValueError("dead_letter cannot be combined with the step deduplicate")
        return self

    @validates("batch_time")
    @classmethod
    def _batch_time(cls, time: str | None) -> str | None:
        if time is not None and parse_duration(time, "batch_time") == 0:
            raise ValueError("give a time above zero, such as 5s")
        return time

    @property
    def waits(self) -> bool:
        """Whether rows may be deferred or parked."""
        return self.batch_time is not None or self.parking is not None

    @validates_all(mode="after")
    def _waiting(self) -> Pipeline:
        parking, dead = self.parking, self.dead_letter
        if self.backlog is not None and not self.waits:
            raise ValueError("backlog is for batch_time or parking")
        if self.deferred_topic is not None and self.batch_time is None:
            raise ValueError("deferred_topic needs batch_time")
        if not self.waits:
            return self
        if self.sink.output == "spark" or any(step.deduplicate for step in self.steps):
            raise ValueError("batch_time and parking need a semistream sink, and no deduplicate")
        if parking is None:
            if dead is not None:
                raise ValueError("batch_time with dead_letter needs parking: {path: ...}")
            if self.sink.output == "postgresql" and self.backlog is None:
                raise ValueError("batch_time with output postgresql needs backlog, a folder")
            return self
        if dead is None and (parking.max_age is not None or parking.max_rows is not None):
            raise ValueError("parking with max_age or max_rows needs dead_letter")
        if not self.lookups or any(one.sql or one.how == "left_anti" for one in self.lookups):
            raise ValueError("parking needs look-ups with master, and without how: left_anti")
        return self
