"""Messages of a topic of changes as rows.

The value is a JSON object with the columns of the row, or an Arrow IPC stream; no value is a
tombstone. The key has the values of the key columns: a JSON object, a JSON list, or the value of a
single key column as JSON or as plain text. It may be left out where the value has them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from semistream.errors import MasterTableError


class Messages:
    """Collects messages in order, and converts them to batches of rows and of deleted keys."""

    def __init__(self, schema: pa.Schema, key: Sequence[str], form: str, topic: str) -> None:
        self._schema = schema
        self._key = list(key)
        self._key_schema = pa.schema([schema.field(name) for name in key])
        self._form = form
        self._topic = topic
        self._rows: list[dict[str, Any]] = []
        self._places: list[str] = []

    def row(self, key: bytes | None, value: bytes, place: str) -> pa.RecordBatch | None:
        """A row in JSON is collected until :meth:`rows`; Arrow rows are returned at once."""
        if self._form == "arrow":
            return self._arrow(value, place)
        try:
            found = json.loads(value)
        except ValueError as error:
            raise self._bad(place, f"its value is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise self._bad(place, f"its value is a JSON {type(found).__name__}, not an object")
        if any(name not in found for name in self._key):
            found = {**self._key_of(key, place), **found}
        unknown = [name for name in self._schema.names if name not in found]
        if unknown:
            raise self._bad(place, f"its row has no column {unknown[0]!r}; it has {list(found)}")
        self._rows.append(found)
        self._places.append(place)
        return None

    def rows(self) -> pa.RecordBatch:
        """The rows collected since the last call."""
        rows, places, self._rows, self._places = self._rows, self._places, [], []
        try:
            return _batch(rows, self._schema)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            for row, place in zip(rows, places, strict=True):
                try:
                    _batch([row], self._schema)
                except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                    raise self._bad(place, f"its row does not fit the table: {error}") from None
            raise

    def tombstone(self, key: bytes | None, place: str) -> pa.RecordBatch:
        found = self._key_of(key, place)
        try:
            return _batch([found], self._key_schema)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise self._bad(place, f"its key does not fit the table: {error}") from None

    def _key_of(self, key: bytes | None, place: str) -> dict[str, Any]:
        if key is None:
            raise self._bad(place, "it has no key")
        try:
            found = json.loads(key)
        except ValueError:
            found = key.decode(errors="replace")
        if isinstance(found, dict) and all(name in found for name in self._key):
            return {name: found[name] for name in self._key}
        if isinstance(found, list) and len(found) == len(self._key):
            return dict(zip(self._key, found, strict=True))
        if len(self._key) == 1 and not isinstance(found, (dict, list)):
            kind = self._key_schema.field(0).type
            is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
            if is_text and not isinstance(found, str):
                found = key.decode(errors="replace")  # a text of digits is valid JSON
            return {self._key[0]: found}
        raise self._bad(place, f"its key does not have the columns {', '.join(self._key)}")

    def _arrow(self, value: bytes, place: str) -> pa.RecordBatch:
        try:
            table = pa.ipc.open_stream(io.BytesIO(value)).read_all().combine_chunks()
            missing = [name for name in self._schema.names if name not in table.schema.names]
            if missing:
                raise self._bad(place, f"its rows have no column {missing[0]!r}")
            (batch,) = table.select(self._schema.names).to_batches() or [
                pa.RecordBatch.from_pylist([], schema=self._schema)
            ]
            return batch
        except (pa.ArrowException, OSError) as error:
            raise self._bad(place, f"its value is not an Arrow IPC stream: {error}") from None

    def _bad(self, place: str, why: str) -> MasterTableError:
        return MasterTableError(
            f"{self._topic}, {place}: {why}. Nothing was changed; correct the producer, or move "
            "past the message by building the table again"
        )


def _batch(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [_column([row[field.name] for row in rows], field.type) for field in schema],
        schema=pa.schema([field.with_nullable(True) for field in schema]),
    )


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """JSON has neither dates nor decimals: they are text, and are parsed."""
    types = pa.types
    if types.is_binary(kind) or types.is_large_binary(kind):
        import base64

        return pa.array([v if v is None else base64.b64decode(v, validate=True) for v in values],
                        kind)  # fmt: skip
    is_plain = types.is_nested(kind) or types.is_string(kind) or types.is_large_string(kind)
    if not is_plain and any(isinstance(value, str) for value in values):
        return pa.array([v if v is None else str(v) for v in values], pa.string()).cast(kind)
    if types.is_decimal(kind):
        return pa.array([v if v is None else str(v) for v in values], pa.string()).cast(kind)
    return pa.array(values, kind)
