"""Tables whose base has several files, as a parallel build writes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import semistream as ss
from semistream.master.build import publish
from semistream.master.manifest import now
from semistream.master.segment import SegmentWriter
from semistream.master.workspace import Workspace


def rows(first: int, last: int) -> pa.Table:
    keys = list(range(first, last))
    return pa.table({"k": keys, "text": [f"row {key} " + "x" * (key % 90) for key in keys]})


def split(path: Path, table: pa.Table, cuts: Sequence[int]) -> Any:
    """A table whose base is cut into files at these rows."""
    whole = ss.MasterTable.build(table.slice(0, 0), path, key="k", page_bytes=2048)
    with Workspace(whole.store) as workspace:
        infos = []
        for number, (start, end) in enumerate(zip([0, *cuts], [*cuts, len(table)], strict=True)):
            name = f"{workspace.token}.{number}"
            with SegmentWriter(whole.store, name, "base", whole.schema, whole.key, 2048) as writer:
                for batch in table.slice(start, end - start).to_batches():
                    writer.write(batch)
            infos.append(writer.info)
        child = dataclasses.replace(
            whole.manifest, version=2, parent=1, kind="build", created=now(),
            num_rows=len(table), segments=tuple(infos),
        )  # fmt: skip
        publish(whole.store, workspace, child, infos)
    return ss.MasterTable.open(path)
