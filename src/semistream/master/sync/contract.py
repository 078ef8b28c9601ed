"""What a source of changes implements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from semistream.errors import ConfigError, SchemaError

if TYPE_CHECKING:
    from semistream.master.sync.entries import Entries
    from semistream.master.table import MasterTable

Position = dict[str, Any]
"""How far a source was read. JSON; only the source knows what it means."""


@dataclass(frozen=True)
class Snapshot:
    """All rows of a source, and the position from which its next changes are read."""

    schema: pa.Schema
    num_rows: int | None
    batches: Callable[[], Iterator[pa.RecordBatch]]
    position: Position


class ChangeSource(Protocol):
    @property
    def name(self) -> str:
        """Identifies the source, in messages and in the table. Without secrets."""

    def snapshot(self, key: Sequence[str], columns: Sequence[str] | None) -> Snapshot:
        """All rows; ``columns``: default all."""

    def read(self, table: MasterTable, position: Position, entries: Entries) -> Position:
        """Add all changes since ``position``; returns the new one."""

    def read_first(self, table: MasterTable, entries: Entries) -> Position:
        """The same without a position: compare everything."""


def is_source(data: Any) -> bool:
    return hasattr(data, "snapshot") and hasattr(data, "read_first")


def compare_all(source: ChangeSource, table: MasterTable, entries: Entries) -> Position:
    """Add all rows of a source; keys of the table that it does not have are deleted."""
    snapshot = source.snapshot(table.key, table.schema.names)
    check_columns(source.name, table.schema.names, snapshot.schema.names)
    entries.expect(snapshot.num_rows)
    entries.delete_others()
    for batch in snapshot.batches():
        entries.upsert(batch.select(table.schema.names))
    return snapshot.position


def check_columns(name: str, wanted: Sequence[str], found: Sequence[str]) -> None:
    missing = [column for column in wanted if column not in found]
    if missing:
        raise SchemaError(
            f"{name} has no column {missing[0]!r}, which the table has; its columns are "
            f"{', '.join(found)}. If the column is gone for good, build the table again with "
            "overwrite=True"
        )


def missing_package(name: str, package: str, extra: str) -> ConfigError:
    return ConfigError(
        f"{name} needs {package}, which is not installed; pip install 'semistream[{extra}]'"
    )
