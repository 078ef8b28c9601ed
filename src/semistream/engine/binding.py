"""The binding of a stream to a master table: key columns, output columns, ``how``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from semistream.engine.compared_types import check_types
from semistream.engine.conditions import (
    AsOf,
    Condition,
    Predicate,
    Where,
    conditions_of,
    master_columns,
    stream_columns,
)
from semistream.errors import ConfigError, SchemaError, existing
from semistream.keys import Codes, KeyCodec, Mask, int64_view
from semistream.master.history import END_COLUMN

if TYPE_CHECKING:
    from semistream.engine.pair_filter import PairFilter

HOWS = ("inner", "left", "left_semi", "left_anti")
On = str | Sequence[str] | Mapping[str, str]
Select = Sequence[str] | Mapping[str, str]


class HasKey(Protocol):
    @property
    def schema(self) -> pa.Schema: ...
    @property
    def key(self) -> tuple[str, ...]: ...
    @property
    def code_column(self) -> str | None: ...


class HasVersion(HasKey, Protocol):
    @property
    def version(self) -> int: ...


def key_pairs(on: On) -> dict[str, str]:
    """Stream column -> master column, from any of the forms that ``on`` may take."""
    if isinstance(on, str):
        return {on: on}
    if isinstance(on, Mapping):
        pairs = dict(on)
    elif isinstance(on, Sequence):
        pairs = {name: name for name in on}
        if len(pairs) != len(on):
            raise ConfigError(f"on={list(on)!r} names a column twice; name each key column once")
    else:
        raise ConfigError(f"on={on!r}: give a column name, a list of names, or a mapping")
    if not pairs or not all(isinstance(n, str) for kv in pairs.items() for n in kv):
        raise ConfigError(f"on={on!r}: give at least one column, each by its name")
    return pairs


class Binding:
    """The master's side is checked when a run opens, the stream's when its first batch arrives."""

    def __init__(
        self,
        master: HasKey,
        on: On | None,
        select: Select | None,
        how: str,
        where: Where | None = None,
        as_of: str | None = None,
    ) -> None:
        self.how = how
        self.conditions: tuple[Condition, ...] = conditions_of(where)
        if as_of is not None:
            self.conditions = (_as_of(master, as_of), *self.conditions)
        self.has_key = on is not None
        pairs = {} if on is None else key_pairs(on)
        if on is None and not self.conditions:
            raise ConfigError("give on=, the column to join on, or where=, a condition, or both")
        if master.key and on is not None:
            if set(pairs.values()) != set(master.key) or len(pairs) != len(master.key):
                raise SchemaError(
                    f"the master table's key is {list(master.key)} but on={on!r} joins "
                    f"{list(pairs.values())}; join on exactly the key columns"
                )
            pairs = {s: m for k in master.key for s, m in pairs.items() if m == k}
        self.stream_key = tuple(pairs)
        self.master_key = tuple(pairs.values())
        self._master_schema = master.schema
        types = [_field(master.schema, name, "master table").type for name in self.master_key]
        self.codec = KeyCodec.for_types(types or [pa.int64()], self.master_key or ["(no key)"])
        self._code_column = master.code_column
        self._same_name = {m for s, m in pairs.items() if s == m}
        self._select = self._selection(select)
        self.keeps_master = how in ("inner", "left")
        self.master_columns = [name for name, _ in self._select] if self.keeps_master else []
        self.condition_columns = master_columns(self.conditions, master.schema)
        self._stored_schema = _stored_schema(master, self.conditions)
        for name in self.condition_columns:
            _field(self._stored_schema, name, "master table")
        self.stream_schema: pa.Schema | None = None
        self.schema: pa.Schema | None = None

    def _selection(self, select: Select | None) -> list[tuple[str, str | None]]:
        """(master column, output name or None for the same name) in output order."""
        schema = self._master_schema
        if select is None:
            return [(n, None) for n in schema.names if n not in self._same_name]
        if isinstance(select, str) or not isinstance(select, (Sequence, Mapping)):
            raise ConfigError(f"select={select!r}: give a list of columns or a mapping")
        chosen: list[tuple[str, str | None]] = (
            list(select.items()) if isinstance(select, Mapping) else [(n, None) for n in select]
        )
        for name, _ in chosen:
            _field(schema, name, "master table")
        return chosen

    def bind(self, stream: pa.Schema) -> None:
        """Set the stream's schema, which all later batches must have."""
        repeated = sorted({n for n in stream.names if stream.names.count(n) > 1})
        if repeated:
            raise SchemaError(f"the stream has more than one column {repeated[0]!r}; rename one")
        for field in stream:
            _check_copied(field)
        types = [_field(stream, name, "stream").type for name in self.stream_key]
        if self.has_key:
            self.codec.check(types, self.stream_key)
        for name in stream_columns(self.conditions):
            _field(stream, name, "stream")
        check_types(self.conditions, stream, self._stored_schema)
        fields = list(stream)
        taken = set(stream.names)
        if self.keeps_master:
            for name, renamed in self._select:
                output = renamed or (f"{name}_master" if name in stream.names else name)
                if output in taken:
                    raise SchemaError(
                        f"the output would have two columns {output!r}; rename the master's "
                        f"column with select={{{name!r}: 'another name'}}"
                    )
                taken.add(output)
                field = self._master_schema.field(name).with_name(output)
                fields.append(field.with_nullable(True) if self.how == "left" else field)
        self.stream_schema = stream
        self.schema = pa.schema(fields)

    def needed_of_stream(self) -> list[str]:
        """The stream's columns that decide which rows a tuple meets."""
        assert self.stream_schema is not None
        if any(isinstance(one, Predicate) and one.stream is None for one in self.conditions):
            return list(self.stream_schema.names)
        return list(dict.fromkeys([*self.stream_key, *stream_columns(self.conditions)]))

    def unbind(self) -> None:
        """Undo ``bind``: the first batch was rejected, and the next one sets the schema."""
        self.stream_schema = self.schema = None

    def check_batch(self, batch: Any) -> None:
        if not isinstance(batch, pa.RecordBatch):
            raise SchemaError(
                f"push expects a pyarrow.RecordBatch, not {type(batch).__name__}; "
                "split a pyarrow.Table with .to_batches()"
            )
        if self.stream_schema is None:
            self.bind(batch.schema)
        elif not batch.schema.equals(self.stream_schema):
            raise SchemaError(
                f"this batch's schema differs from the first one's: "
                f"{_difference(self.stream_schema, batch.schema)}; cast it to the first schema"
            )

    def check_version(self, master: HasVersion, opened: int) -> None:
        """Raise SchemaError for a version whose key or output columns have changed.

        Columns are matched by name: any order will do, and other columns may be added or removed.
        """
        changes = list(self._changes(master))
        if changes:
            raise SchemaError(
                f"version {master.version} of the master table is incompatible with this run, "
                f"which was opened with version {opened}: {'; '.join(changes)}. "
                f"Open the join again, or keep the old version with use({opened})"
            )

    def _changes(self, master: HasKey) -> Iterator[str]:
        if self.has_key and master.key != self.master_key:
            yield f"its key is {list(master.key)} instead of {list(self.master_key)}"
        for one in self.conditions:
            if isinstance(one, AsOf) and one.begin != getattr(master, "history", None):
                yield f"rows are not valid from the column {one.begin!r} on any more"
        needed = (*self.master_key, *self.master_columns, *self.condition_columns)
        schema = _stored_schema(master, self.conditions)
        for name in dict.fromkeys(needed):
            if name not in schema.names:
                yield f"column {name!r} is missing"
                continue
            was, now = self._stored_schema.field(name), schema.field(name)
            if now.type != was.type:
                yield f"column {name!r} is {now.type} instead of {was.type}"
            elif (
                now.nullable
                and not was.nullable
                and self.how == "inner"
                and name not in self.further_columns
            ):
                yield f"column {name!r} is nullable now"

    def nulls(self, count: int) -> list[pa.Array]:
        """Null values of the master's columns, for unmatched tuples."""
        return [pa.nulls(count, self._master_schema.field(n).type) for n in self.master_columns]

    @property
    def cached_columns(self) -> list[str]:
        """Columns that a front stage caches: output columns; if codes are hashes, the key; and
        others that conditions read."""
        return [*self.master_columns, *self.compared_keys, *self.further_columns]

    @property
    def compared_keys(self) -> list[str]:
        """The key columns, if equal codes do not mean equal keys."""
        return [] if self.codec.exact else list(self.master_key)

    @property
    def further_columns(self) -> list[str]:
        """Columns that only conditions read."""
        others = {*self.master_columns, *self.compared_keys}
        return [name for name in self.condition_columns if name not in others]

    @property
    def exact(self) -> bool:
        """Whether a tuple and a row with equal codes match, without any further check."""
        return self.codec.exact and not self.conditions

    @property
    def takes_one_row(self) -> bool:
        """Whether any row of its key decides about a tuple: no column of it is needed."""
        return not self.keeps_master and not self.conditions

    def pair_filter(self) -> PairFilter | None:
        """Evaluates the conditions; None: there are none. The stream's schema must be known."""
        if not self.conditions:
            return None
        from semistream.engine.pair_filter import PairFilter

        return PairFilter(self, self._stored_schema)

    def type_of(self, name: str) -> pa.DataType:
        """The type of a column of the master."""
        return self._stored_schema.field(name).type

    def stream_codes(self, batch: pa.RecordBatch) -> tuple[Codes, Mask | None]:
        if not self.has_key:
            return np.zeros(batch.num_rows, np.int64), None
        return self.codec.codes([batch.column(name) for name in self.stream_key])

    def master_codes(self, page: pa.RecordBatch) -> tuple[Codes, Mask | None]:
        """The codes of a page's rows: those that it stores, or else computed from its keys."""
        if self._code_column is not None:
            return int64_view(page.column(self._code_column)), None
        if not self.has_key:
            return np.zeros(page.num_rows, np.int64), None
        return self.codec.codes([page.column(name) for name in self.master_key])


def _as_of(master: HasKey, time: str) -> AsOf:
    begin = getattr(master, "history", None)
    if begin is None:
        raise ConfigError(
            f"as_of={time!r}: the master table has no history; build it with "
            "MasterTable.build(..., history='the column with the begin of validity')"
        )
    if not isinstance(time, str):
        raise ConfigError(f"as_of={time!r}: give the name of a column of the stream")
    return AsOf(time, begin, END_COLUMN)


def _stored_schema(master: HasKey, conditions: Sequence[Condition]) -> pa.Schema:
    """The master's columns, with the end of validity where a condition reads it."""
    if not any(isinstance(one, AsOf) for one in conditions):
        return master.schema
    schema: pa.Schema = master.page_schema  # type: ignore[attr-defined]
    return schema if END_COLUMN in schema.names else master.schema


def _field(schema: pa.Schema, name: str, side: str) -> pa.Field:
    places = schema.get_all_field_indices(name)
    if len(places) == 1:
        return schema.field(places[0])
    problem = "has no column" if not places else "has more than one column"
    raise SchemaError(f"the {side} {problem} {name!r}; {existing(name, schema.names, 'it has')}")


def _check_copied(field: pa.Field) -> None:
    """Raise SchemaError for a type whose values Arrow cannot copy row by row: views of text."""
    try:
        none = pa.nulls(0, field.type)
    except pa.ArrowException:  # a type without an empty array, such as some unions
        return
    try:
        none.take(pa.array([], pa.int64()))
    except pa.ArrowNotImplementedError:
        raise SchemaError(
            f"the stream's column {field.name!r} has the type {field.type}, whose rows cannot be "
            "copied; cast it, string_view to string for example"
        ) from None


def _difference(first: pa.Schema, other: pa.Schema) -> str:
    missing = [n for n in first.names if n not in other.names]
    extra = [n for n in other.names if n not in first.names]
    if missing or extra:
        return f"missing {missing}, unexpected {extra}"
    changed = [
        f"{n} is {other.field(n).type} instead of {first.field(n).type}"
        for n in first.names
        if not other.field(n).equals(first.field(n))
    ]
    return ", ".join(changed) or f"column order is {other.names} instead of {first.names}"
