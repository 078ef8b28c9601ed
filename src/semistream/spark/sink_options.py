"""The warehouse sink's options: Spark's options are strings, so look-ups are encoded as JSON.

Parsing them opens nothing. A task opens its look-ups; a commit, which needs none, must not fail
because a look-up's database is down.

Database URLs are separate options whose names contain ``url``, because Spark redacts those in its
plans and logs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from semistream.engine.binding import HOWS, On, Select
from semistream.engine.conditions import Given, from_description
from semistream.engine.conditions import described as described_conditions
from semistream.errors import ConfigError, existing, unknown
from semistream.joins import ALGORITHMS
from semistream.master import MasterTable
from semistream.master.mapped_reader import RESIDENT
from semistream.master.sql import SqlMaster
from semistream.memory import parse_size
from semistream.sinks import OUTPUTS, Sink, open_sink
from semistream.spark.enrich import Lookup

_PLAIN = ("master", "mapped", "on", "how", "select", "lookups", "memory", "using", "output")
_PLACES = {
    "parquet": ("path", "compression", "durable"),
    "delta": ("path", "compression", "durable"),
    "postgresql": ("url", "table", "schema", "patience"),
}
# Options that Spark itself adds to a stream writer.
_SPARK_OPTIONS = ("checkpointlocation", "queryname", "path")
_SQL = ("table", "key", "columns", "unique", "page_bytes")


@dataclass(frozen=True)
class DescribedLookup:
    """A look-up as parsed from the options, not opened."""

    on: On
    how: str
    select: Select | None
    master: str | None = None
    version: int | None = None
    mapped: bool | str = True
    sql: dict[str, Any] | None = None
    url: str = ""
    where: tuple[Given, ...] = ()
    as_of: str | None = None
    max_age: float | str | None = None
    too_old: str = "warn"

    def open(self) -> Lookup:
        """Open the table, if only its description was given."""
        master: Any = self.master
        if self.sql is not None:
            master = sql_master(self.url, self.sql)
        elif self.version is not None:
            master = MasterTable.open(master, self.version)
        return Lookup(
            master, self.on, self.how, self.select, self.where or None, self.as_of, self.max_age,
            self.too_old,
        )  # fmt: skip


@dataclass(frozen=True)
class SinkPlan:
    """The parsed options."""

    lookups: tuple[DescribedLookup, ...]
    memory: int
    using: str
    sink: Sink


def options_of(lookups: Sequence[Lookup] | Lookup, **options: Any) -> dict[str, str]:
    """Encode look-ups and settings as strings; :func:`plan_of` parses them."""
    lookups = [lookups] if isinstance(lookups, Lookup) else lookups
    texts = {name: _text(value) for name, value in options.items() if value is not None}
    described = []
    for number, lookup in enumerate(lookups):
        master = lookup.master
        one: dict[str, Any] = {"on": lookup.on, "how": lookup.how, "select": lookup.select}
        if lookup.where is not None:
            one["where"] = described_conditions(lookup.where)
        if lookup.as_of is not None:
            one["as_of"] = lookup.as_of
        if lookup.max_age is not None:
            one |= {"max_age": lookup.max_age, "too_old": lookup.too_old}
        if isinstance(master, (str, os.PathLike)):
            one["master"] = os.path.abspath(master)
        elif isinstance(master, MasterTable):
            one["master"] = os.path.abspath(master.path)
            if master.pinned:
                one["version"] = master.version
            if master.mapped == RESIDENT:
                one["mapped"] = RESIDENT
        elif isinstance(master, SqlMaster):
            one["sql"] = master.described()
            texts[f"url.{number}"] = master.uri
        else:
            raise ConfigError(f"master={master!r}: the sink takes a master table or a SqlMaster")
        described.append(one)
    if described:
        texts["lookups"] = json.dumps(described)
    return texts


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def plan_of(options: Mapping[str, str]) -> SinkPlan:
    """Parse and check every option; names are case-insensitive, as everywhere in Spark."""
    given = {name.lower(): value for name, value in options.items()}
    output = given.get("output", "parquet").lower()
    if output not in OUTPUTS:
        raise ConfigError(f"output={output!r} is unknown; choose one of {', '.join(OUTPUTS)}")
    known = {*_PLAIN, *_PLACES[output], *_SPARK_OPTIONS}
    wrong = [name for name in given if name not in known and not name.startswith("url.")]
    if wrong:
        valid = [*_PLAIN, *_PLACES[output]]
        hint = existing(wrong[0], valid, f"valid options with output={output!r} are")
        raise ConfigError(f"unknown option {wrong[0]!r}; {hint}")
    using = given.get("using", "auto")
    if using != "auto" and using not in ALGORITHMS:
        raise ConfigError(f"using={using!r}; choose auto or one of {', '.join(ALGORITHMS)}")
    place: dict[str, Any] = {n: given[n] for n in _PLACES[output] if n in given}
    if output == "postgresql":
        place["uri"] = place.pop("url", "")
    if "durable" in place:
        place["durable"] = _flag("durable", place["durable"])
    return SinkPlan(
        lookups=tuple(_lookups(given)),
        memory=parse_size(given.get("memory", "256MB")),
        using=using,
        sink=open_sink(output, **place),
    )


def _flag(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ConfigError(f"{name}={value!r} is not a boolean; use true or false")
    return value.lower() == "true"


def _lookups(given: dict[str, str]) -> list[DescribedLookup]:
    if "lookups" in given:
        try:
            items = json.loads(given["lookups"])
        except ValueError as error:
            raise ConfigError(f"lookups={given['lookups']!r} is not JSON: {error}") from error
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise ConfigError("lookups: give a JSON list of objects with master, on, how, select")
        return [_lookup(item, given.get(f"url.{n}")) for n, item in enumerate(items)]
    if "master" not in given:
        return []
    item = {
        "master": given["master"],
        "mapped": given.get("mapped", True),
        "on": _json_or_names(given.get("on")),
        "how": given.get("how", "inner"),
        "select": _json_or_names(given.get("select"), many=True),
    }
    return [_lookup(item, None)]


def _json_or_names(text: str | None, many: bool = False) -> Any:
    """``product_id``, ``a, b``, or a JSON list or object for names that need it."""
    if text is None:
        return None
    if text.lstrip().startswith(("[", "{")):
        try:
            return json.loads(text)
        except ValueError as error:
            raise ConfigError(f"{text!r} is not JSON: {error}") from error
    names = [name.strip() for name in text.split(",")]
    return names if many or len(names) > 1 else names[0]


def _lookup(item: dict[str, Any], url: str | None) -> DescribedLookup:
    known = ["master", "version", "mapped", "sql", "on", "how", "select", "where", "as_of",
             "max_age", "too_old"]  # fmt: skip
    for name in item:
        if name not in known:
            raise ConfigError(f"lookups: {unknown('field', name, known)}")
    how = item.get("how") or "inner"
    if how not in HOWS:
        raise ConfigError(f"how={how!r} is unknown; choose one of {', '.join(HOWS)}")
    if not item.get("on"):
        raise ConfigError("on is missing: name the column to join on")
    if "sql" not in item and not item.get("master"):
        raise ConfigError("master is missing: name the folder of the master table")
    mapped = item.get("mapped", True)
    if mapped not in (True, RESIDENT):
        raise ConfigError(f"mapped={mapped!r}; the only value is {RESIDENT!r}")
    return DescribedLookup(
        on=item["on"],
        how=how,
        select=item.get("select"),
        master=item.get("master"),
        version=item.get("version"),
        mapped=mapped,
        sql=item.get("sql"),
        url=url or "",
        where=from_description(item.get("where")),
        as_of=item.get("as_of"),
        max_age=item.get("max_age"),
        too_old=item.get("too_old", "warn"),
    )


_sql_masters: dict[str, Any] = {}


def sql_master(url: str, fields: dict[str, Any]) -> Any:
    """One per process and description: cut points are computed once, the connection is shared."""
    name = json.dumps([url, fields], sort_keys=True)
    if name not in _sql_masters:
        chosen = {n: fields[n] for n in _SQL if fields.get(n) is not None}
        _sql_masters[name] = SqlMaster(url, **chosen)
    return _sql_masters[name]
