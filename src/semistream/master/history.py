"""Tables with history (slowly changing dimensions, type 2): when each row of a key was valid.

A row is valid from its ``valid_from`` until the next row of its key begins, or until its own
``valid_to`` if that is earlier. This end is computed when rows are written, and stored in a column
that only readers of pages see; null: it is still valid. So an as-of join is an ordinary join with
the condition ``valid_from <= time < end`` on pairs, and a key has at most one row for any time.

The identity of a row is its key and its ``valid_from``. An upsert carries over the other rows of
its keys and computes their ends again: it closes the row before, and a late correction between two
rows is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.errors import ConfigError, SchemaError
from semistream.keys import int64_of
from semistream.master.codes import KeyCodes
from semistream.master.merge import joined

END_COLUMN = "__valid_to"


@dataclass(frozen=True)
class History:
    """The columns that say when a row is valid."""

    valid_from: str
    valid_to: str | None = None

    @classmethod
    def of(cls, valid_from: str | None, valid_to: str | None) -> History | None:
        """None for a table without history."""
        if valid_from is not None:
            return cls(valid_from, valid_to)
        if valid_to is not None:
            raise ConfigError(f"valid_to={valid_to!r} needs history=: the column with the begin")
        return None

    def check(self, schema: pa.Schema, key: Iterable[str]) -> None:
        """Raise for columns that cannot be used."""
        if END_COLUMN in schema.names:
            raise SchemaError(
                f"column {END_COLUMN!r}: the name is reserved for the end of validity; rename it"
            )
        for what, name in (("history", self.valid_from), ("valid_to", self.valid_to)):
            if name is None:
                continue
            if not isinstance(name, str) or name not in schema.names:
                raise SchemaError(
                    f"{what}={name!r}: there is no such column; the columns are "
                    f"{', '.join(schema.names)}"
                )
            if name in key:
                raise SchemaError(f"{what}={name!r} is a key column; name another column")
        kind = schema.field(self.valid_from).type
        types = pa.types
        if not (
            types.is_timestamp(kind) or types.is_date(kind) or kind in (pa.int64(), pa.int32())
        ):
            raise SchemaError(
                f"history={self.valid_from!r} is {kind}; cast it to a timestamp, a date, int32 or "
                "int64"
            )
        if self.valid_to is not None and schema.field(self.valid_to).type != kind:
            raise SchemaError(
                f"valid_to={self.valid_to!r} is {schema.field(self.valid_to).type} and "
                f"{self.valid_from!r} is {kind}; cast them to the same type"
            )

    def stored(self, schema: pa.Schema) -> pa.Schema:
        """The schema on disk: with the end of validity."""
        return schema.append(pa.field(END_COLUMN, schema.field(self.valid_from).type))


class Validity:
    """Adds the end of validity to rows. ``codes`` are those of the rows without it."""

    def __init__(self, codes: KeyCodes, history: History) -> None:
        self._codes = codes
        self._history = history
        rows = history.stored(codes.rows_schema)
        self._schema = KeyCodes(rows, codes.key).schema

    def added(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows in code order, each with its end, and in the order of ``valid_from`` within a key.

        All rows of a code are held in memory together.
        """
        held: list[pa.RecordBatch] = []  # rows of one code, which may go on
        for batch in batches:
            if not batch.num_rows:
                continue
            codes = self._codes.stored(batch)
            start = int(np.searchsorted(codes, codes[-1], side="left"))
            if start == 0 and held and self._codes.stored(held[0])[0] == codes[-1]:
                held.append(batch)
                continue
            whole = [*held, batch.slice(0, start)] if start else held
            if whole:
                yield self._with_ends(joined(whole))
            held = [batch.slice(start)]
        if held:
            yield self._with_ends(joined(held))

    def _with_ends(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows that are all rows of their keys."""
        begins = self._begins(batch)
        codes = self._codes.stored(batch)
        order = np.lexsort((begins, codes))
        groups = self._groups(batch, codes, order)
        if groups is not None:
            order = np.lexsort((begins, groups, codes))
        batch, begins, codes = batch.take(pa.array(order)), begins[order], codes[order]
        follows = codes[1:] == codes[:-1]
        if groups is not None:
            follows &= groups[order][1:] == groups[order][:-1]
        self._refuse_repeated(batch, begins, follows)
        ends = np.concatenate([begins[1:], [0]])
        ended = np.concatenate([follows, [False]])
        if self._history.valid_to is not None:
            given = batch.column(self._history.valid_to)
            known = given.is_valid().to_numpy(zero_copy_only=False)
            own = int64_of(given)
            earlier = known & (~ended | (own < ends))
            ends, ended = np.where(earlier, own, ends), ended | known
        kind = self._schema.field(END_COLUMN).type
        numbers = ends.astype(np.int32 if kind.bit_width == 32 else np.int64)
        column = pa.array(numbers, mask=~ended).view(kind)
        place = len(self._codes.rows_schema)
        columns = [*batch.columns[:place], column, *batch.columns[place:]]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _begins(self, batch: pa.RecordBatch) -> Any:
        column = batch.column(self._history.valid_from)
        if column.null_count:
            raise SchemaError(
                f"history={self._history.valid_from!r} has a null; a row of a table with history "
                "needs the time from which on it is valid"
            )
        return int64_of(column)

    def _groups(self, batch: pa.RecordBatch, codes: Any, order: Any) -> Any:
        """Numbers that differ for different keys with the same code; None: there are none."""
        codec = self._codes.codec
        if codec.exact:
            return None
        keys = self._codes.keys(batch)
        same_code = np.flatnonzero(codes[order][1:] == codes[order][:-1])
        one, other = (
            [key.take(pa.array(order[same_code + step])) for key in keys] for step in (0, 1)
        )
        if not len(same_code) or codec.same(one, other).all():
            return None
        numbers: dict[Any, int] = {}
        return np.array([numbers.setdefault(key, len(numbers)) for key in codec.sortable(keys)])

    def _refuse_repeated(self, batch: pa.RecordBatch, begins: Any, follows: Any) -> None:
        again = np.flatnonzero(follows & (begins[1:] == begins[:-1]))
        if len(again):
            names = [*self._codes.key, self._history.valid_from]
            row = batch.select(names).slice(int(again[0]), 1).to_pylist()[0]
            raise ConfigError(
                f"two rows have the same key and {self._history.valid_from}: {row}; keep one of "
                "them, as a key has one row at any time"
            )
