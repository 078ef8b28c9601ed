"""The transformations of the papers, as small functions on DataFrames.

Each takes a DataFrame, batch or streaming, and returns one; most are ``enrich`` plus a few
columns. They chain: ``orders.transform(surrogate_key, keys, ...).transform(new_tuples, ...)``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from semistream.engine.binding import On, Select, key_pairs
from semistream.errors import ConfigError, SchemaError
from semistream.joins import open_source
from semistream.spark.enrich import Lookup, enrich

REASON = "dead_letter_reason"
_SOURCE = "__semistream_source"
_MATCH = "__semistream_match_"


def surrogate_key(
    df: DataFrame,
    mapping: Any,
    *,
    source: str,
    key: str,
    to: str,
    keep: bool = False,
    **options: Any,
) -> DataFrame:
    """Replace a source's own key by the warehouse's key.

    Two sources may use the same key for different things, and different keys for the same thing.
    ``mapping`` is a master table whose key is (source, key of the source) and which has the
    column ``to``. ``source`` names this DataFrame's source. A key without an entry becomes null;
    ``keep`` also keeps the source's key.
    """
    table = open_source(mapping)
    if len(table.key) != 2:
        raise SchemaError(
            f"mapping: its key is {list(table.key)}; it must be two columns: source and key"
        )
    of_source, of_key = table.key
    pairs = {_SOURCE: of_source, key: of_key}
    named = df.withColumn(_SOURCE, f.lit(source))
    found = enrich(named, mapping, on=pairs, how="left", select={to: to}, **options)
    return found.drop(_SOURCE) if keep else found.drop(_SOURCE, key)


def add_content(
    df: DataFrame,
    master: Any,
    on: On,
    compute: Mapping[str, str],
    select: Select | None = None,
    **options: Any,
) -> DataFrame:
    """Enrich, then add columns computed by SQL: ``compute={"amount": "quantity * price"}``."""
    return computed(enrich(df, master, on=on, select=select, **options), compute)


def computed(df: DataFrame, compute: Mapping[str, str]) -> DataFrame:
    """Columns by SQL expressions; a later one may use an earlier one."""
    for name, expression in compute.items():
        df = df.withColumn(name, f.expr(expression))
    return df


def new_tuples(df: DataFrame, master: Any, on: On, **options: Any) -> DataFrame:
    """Rows whose key is not in the master table: newly inserted at the source."""
    return enrich(df, master, on=on, how="left_anti", **options)


def known_tuples(df: DataFrame, master: Any, on: On, **options: Any) -> DataFrame:
    """Rows whose key is already in the master table: updates, or duplicates of loaded rows."""
    return enrich(df, master, on=on, how="left_semi", **options)


def without_duplicates(
    df: DataFrame, key: str | Sequence[str], time: str | None = None, within: str | None = None
) -> DataFrame:
    """One row for each key.

    In a stream, give ``time`` (a timestamp column) and ``within`` ("10 minutes"): Spark then
    keeps a key in its state for that long. Without them it keeps every key forever.
    """
    names = [key] if isinstance(key, str) else list(key)
    absent = [name for name in names if name not in df.columns]
    if absent:
        raise SchemaError(f"no column {absent[0]!r}; the columns are {', '.join(df.columns)}")
    if (time is None) != (within is None):
        raise ConfigError("time and within belong together: a time column and an interval")
    if time is None or within is None:
        return df.dropDuplicates(names)
    if not df.isStreaming:
        return df.dropDuplicates(names)
    return df.withWatermark(time, within).dropDuplicatesWithinWatermark(names)


def with_reason(df: DataFrame, lookups: Lookup | Sequence[Lookup], **options: Any) -> DataFrame:
    """Enrich, keep rows without a match, and add a column with the reason.

    The column ``dead_letter_reason`` is null where every look-up found a row.
    :func:`matched` and :func:`dead_letters` filter the two kinds. To write them to two sinks of a
    stream, use master tables: a :class:`SqlMaster` has no versions, so a batch that is replayed
    between the two writes may send a row to the other sink.
    """
    chosen = [lookups] if isinstance(lookups, Lookup) else list(lookups)
    columns = list(df.columns)
    left, conditions = [], []
    for number, lookup in enumerate(chosen):
        if lookup.how != "inner":
            raise ConfigError(f"how={lookup.how!r}: with_reason needs look-ups with how='inner'")
        pairs = key_pairs(lookup.on)
        select = _with_marker(lookup, columns, number)
        marker = select[next(iter(pairs.values()))]
        columns += [name for name in select.values() if name not in columns]
        left.append(replace(lookup, how="left", select=select))
        conditions.append((marker, list(pairs), _name(lookup.master)))
    rows = enrich(df, left, **options)
    reason = f.lit(None).cast("string")
    for marker, keys, name in reversed(conditions):
        missing = f.lit(None).cast("string")
        text = f.concat(
            f.lit(f"no row of {name} for {', '.join(keys)} = "),
            f.concat_ws(", ", *(f.col(_quoted(key)).cast("string") for key in keys)),
        )
        for key in reversed(keys):
            missing = f.when(f.col(_quoted(key)).isNull(), f.lit(f"{key} is null")).otherwise(
                missing
            )
        reason = f.when(f.col(_quoted(marker)).isNull(), f.coalesce(missing, text)).otherwise(
            reason
        )
    rows = rows.withColumn(REASON, reason)
    return rows.drop(*(name for name in rows.columns if name.startswith(_MATCH)))


def matched(df: DataFrame) -> DataFrame:
    """Rows of :func:`with_reason` that matched every look-up."""
    return df.where(f.col(REASON).isNull()).drop(REASON)


def dead_letters(df: DataFrame) -> DataFrame:
    """Rows of :func:`with_reason` without a match, with the reason."""
    return df.where(f.col(REASON).isNotNull())


def _with_marker(lookup: Lookup, taken: Sequence[str], number: int) -> dict[str, str]:
    """The selection as a mapping, plus the first key column, which is null iff unmatched."""
    table = open_source(lookup.master)
    pairs = key_pairs(lookup.on)
    shared = {master for stream, master in pairs.items() if stream == master}
    if isinstance(lookup.select, Mapping):
        select = dict(lookup.select)
    else:
        names = lookup.select
        if names is None:
            names = [name for name in table.schema.names if name not in shared]
        select = {name: f"{name}_master" if name in taken else name for name in names}
    select.setdefault(next(iter(pairs.values())), f"{_MATCH}{number}")
    return select


def _name(master: Any) -> str:
    path = getattr(master, "path", master)
    if isinstance(path, (str, os.PathLike)):
        return os.path.basename(os.path.abspath(path))
    return ".".join(getattr(master, "table", ("the master table",)))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
