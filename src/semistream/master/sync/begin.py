"""Building a table from a source that it then follows: its first version has the position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from semistream.master.manifest import SyncInfo
from semistream.master.sync.contract import is_source
from semistream.master.sync.freshness import timestamp

Follow = Callable[[int], SyncInfo | None]


def start_following(data: Any, key: Sequence[str]) -> tuple[Any, Follow]:
    """The data to build from, and what the manifest says about its source, given the rows."""
    if not is_source(data):
        return data, lambda rows: None
    began = timestamp()
    snapshot = data.snapshot(key, None)
    reader = pa.RecordBatchReader.from_batches(snapshot.schema, snapshot.batches())

    def follow(rows: int) -> SyncInfo:
        return SyncInfo(data.name, snapshot.position, began, inserted=rows, rows_read=rows)

    return reader, follow
