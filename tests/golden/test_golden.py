"""Tables that an earlier build of this format version wrote can be read, changed and joined."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import semistream as ss
from golden.make_tables import HERE, KEYS, contents, rows
from semistream.errors import MasterTableError
from semistream.master import MasterTable, verify
from semistream.master.manifest import FORMAT_VERSION

kinds = pytest.mark.parametrize("kind", list(KEYS))


def found(data: pa.Table, kind: str) -> dict[tuple[object, ...], str]:
    keys = zip(*(data[name].to_pylist() for name in KEYS[kind]), strict=True)
    return dict(zip(keys, data["text"].to_pylist(), strict=True))


@kinds
def test_the_format_has_not_changed(kind: str) -> None:
    (manifest,) = (HERE / kind / "manifests").iterdir()
    assert json.loads(manifest.read_text())["format_version"] == FORMAT_VERSION == 2
    assert verify(HERE / kind) == []
    table = MasterTable.open(HERE / kind)
    assert len(table.manifest.deltas) > 0
    assert table.num_pages > 3
    assert (table.unique, table.distinct) == (True, True)
    assert found(table.to_table(), kind) == contents(kind)


@kinds
@pytest.mark.parametrize("algorithm", ["sweepjoin", "hybridjoin", "meshjoin", "inlj"])
def test_it_can_be_joined(kind: str, algorithm: str) -> None:
    table = MasterTable.open(HERE / kind)
    stream = rows(kind, range(-5, 60), "").select(KEYS[kind]).to_batches()[0]
    with ss.join(algorithm, memory="1MB").open(table, on=KEYS[kind]) as run:
        joined = pa.Table.from_batches([*run.push(stream), *run.flush()])
    assert found(joined, kind) == contents(kind)


@kinds
def test_it_can_be_changed(kind: str, tmp_path: Path) -> None:
    path = tmp_path / kind
    shutil.copytree(HERE / kind, path)
    table = MasterTable.open(path).upsert(rows(kind, range(50, 52), "later"))
    expected = contents(kind) | found(rows(kind, range(50, 52), "later"), kind)
    assert found(table.to_table(), kind) == expected
    assert found(table.compact().to_table(), kind) == expected
    assert verify(path) == []


def test_a_table_of_format_version_1_is_refused() -> None:
    with pytest.raises(MasterTableError, match=r"format version 1: an earlier release.*overwrite"):
        MasterTable.open(HERE / "version-1")
