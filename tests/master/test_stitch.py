"""A base in several files reads like a base in one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import naive
import semistream as ss
from semistream.master.build import publish
from semistream.master.manifest import now
from semistream.master.segment import SegmentWriter
from semistream.master.verify import verify
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


@pytest.mark.parametrize("cuts", [(500,), (1, 2, 700), (333, 333, 1999)])
@pytest.mark.parametrize("direct", [False, True])
def test_all_pages_are_there_in_order(tmp_path: Path, cuts: Sequence[int], direct: bool) -> None:
    data = rows(0, 2000)
    table = split(tmp_path / "t", data, cuts)
    assert table.num_rows == 2000
    for at_once in (1, 3, 7):
        reader = table.reader(at_once, direct=direct)
        found: list[Any] = []
        for first in range(0, table.num_pages, at_once):
            for page in reader.read(first, min(at_once, table.num_pages - first)):
                found += page.to_pylist()
        assert found == data.to_pylist()
    assert verify(table) == []


@pytest.mark.parametrize("direct", [False, True])
def test_deltas_are_merged(tmp_path: Path, direct: bool) -> None:
    data = rows(0, 1000)
    table = split(tmp_path / "t", data, (300, 301, 650))
    table = table.upsert(pa.table({"k": [299, 300, 5000], "text": ["a", "b", "c"]})).delete([651])
    expected = {row["k"]: row for row in data.to_pylist()}
    expected |= {k: {"k": k, "text": t} for k, t in [(299, "a"), (300, "b"), (5000, "c")]}
    del expected[651]
    reader = table.reader(5, direct=direct)
    found: list[Any] = []
    for first in range(0, table.num_pages, 5):
        for page in reader.read(first, min(5, table.num_pages - first)):
            found += page.to_pylist()
    assert found == [expected[k] for k in sorted(expected)]
    assert verify(table) == []
    compact = table.compact()
    assert len(compact.manifest.segments) == 1
    assert compact.to_table().to_pylist() == found


@pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))
def test_every_join_on_a_base_in_several_files(tmp_path: Path, algorithm: str) -> None:
    data = rows(0, 1000)
    table = split(tmp_path / "t", data, (300, 650))
    stream = pa.table({"k": pa.array([(i * i) % 1200 for i in range(500)], pa.int64())})
    with ss.join(algorithm, memory="2MB", how="left").open(table, on="k") as run:
        found = [r for b in stream.to_batches() for r in run.push(b)] + list(run.flush())
    naive.same_rows(naive.rows_of(found), naive.join(stream, data, "k", "left"))


def test_a_truncated_file_is_detected(tmp_path: Path) -> None:
    table = split(tmp_path / "t", rows(0, 1000), (300, 650))
    middle = table.store.path(table.manifest.segments[1].file)
    middle.write_bytes(middle.read_bytes()[:5000])
    with pytest.raises(ss.MasterTableError, match=r"truncated|damaged"):
        ss.MasterTable.open(table.path).to_table()


def test_segments_that_overlap_are_refused(tmp_path: Path) -> None:
    data = pa.concat_tables([rows(0, 100), rows(50, 150)])
    with pytest.raises(ss.MasterTableError, match="overlap"):
        split(tmp_path / "t", data, (100,))
