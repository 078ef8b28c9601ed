"""A join is checked when it is described, and its master when it is opened."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from engine.kit import MemoryPages, pages_of
from harness import build
from semistream.joins.base import CachedJoin, Join, open_source
from semistream.master import ParquetPages
from semistream.testing import FakeClock, RecordingObserver

TABLE = pa.table({"k": [1, 2, 3], "v": ["a", "b", "c"]})
BATCH = pa.record_batch({"k": [1, 9]})


def next_version(source: MemoryPages) -> MemoryPages:
    return source.publish([pa.record_batch({"k": [1], "v": ["new"]})])


def test_memory_is_kept_in_bytes() -> None:
    assert ss.MeshJoin(memory="50MB").memory == 50_000_000
    assert ss.MeshJoin(memory="50MB") == ss.MeshJoin(memory=50_000_000)
    with pytest.raises(FrozenInstanceError):
        ss.MeshJoin().memory = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"memory": "much"}, "memory='much' is not a size"),
        ({"memory": 0}, "memory=0 is out of range"),
        (
            {"how": "outer"},
            "how='outer' is unknown; choose one of inner, left, left_semi, left_anti",
        ),
        ({"disk_buffer_pages": 0}, "disk_buffer_pages=0: give a whole number of at least 1"),
        ({"disk_buffer_pages": 1.5}, "disk_buffer_pages=1.5: give a whole number"),
    ],
    ids=str,
)
def test_options_that_cannot_be(options: dict[str, Any], problem: str) -> None:
    for kind in (ss.MeshJoin, ss.CachedMeshJoin, ss.SweepJoin):
        with pytest.raises(ss.ConfigError, match=problem):
            kind(**options)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"front_stage": 1.0}, "front_stage=1.0: give a fraction"),
        ({"front_stage": "some"}, "front_stage='some' is not a size"),
        ({"threshold": 0}, "threshold=0: must be at least 1"),
        ({"cache": "lru"}, "cache='lru' is unknown; choose one of recorder, counting"),
    ],
    ids=str,
)
def test_front_stages_that_cannot_be(options: dict[str, Any], problem: str) -> None:
    cached = [kind for kind in ss.ALGORITHMS.values() if issubclass(kind, CachedJoin)]
    assert len(cached) == 3
    for kind in cached:
        with pytest.raises(ss.ConfigError, match=problem):
            kind(**options)


def test_a_master_by_its_path_or_as_it_is(tmp_path: Path) -> None:
    table = build(tmp_path / "table", TABLE, ["k"])
    (tmp_path / "files").mkdir()
    pq.write_table(TABLE, tmp_path / "files" / "a.parquet")
    assert open_source(table) is table
    for path in (tmp_path / "table", str(tmp_path / "table")):
        opened = open_source(path)
        assert (type(opened), opened.num_rows) == (ss.MasterTable, 3)
        assert not opened.pinned
    opened = open_source(tmp_path / "files")
    assert (type(opened), opened.num_rows) == (ParquetPages, 3)


@pytest.mark.parametrize("thing", [None, 5, TABLE], ids=lambda thing: type(thing).__name__)
def test_what_is_no_master(thing: Any) -> None:
    with pytest.raises(ss.ConfigError, match="give a MasterTable, the path of one"):
        open_source(thing)


@pytest.mark.parametrize("kind", ss.ALGORITHMS.values(), ids=lambda kind: kind.name)
def test_a_master_without_order_is_for_joins_that_need_none(kind: type[Join]) -> None:
    source = pages_of([[1, 2], [3]])
    kind().check_source(source)
    source.ordered = False
    if kind.name in ("meshjoin", "r-meshjoin"):
        kind().check_source(source)
        return
    with pytest.raises(ss.ConfigError, match=f"{kind.name} needs a page index.*use meshjoin"):
        kind().open(source, on="k")
    assert not source.readers, "nothing was opened"


@pytest.mark.parametrize(
    ("pinned", "follow", "version"),
    [
        (False, None, 2),
        (True, None, 1),
        (False, False, 1),
        (True, True, 2),
    ],
)
def test_a_run_follows_its_table_unless_the_version_was_chosen(
    pinned: bool, follow: bool | None, version: int
) -> None:
    source = pages_of([[1, 2], [3]])
    source.pinned = pinned
    with ss.MeshJoin(memory="1MB").open(source, on="k", follow=follow) as run:
        next_version(source)
        list(run.push(BATCH))
        assert run.version == version


def test_a_run_has_the_options_it_was_opened_with() -> None:
    source, observer = pages_of([[1, 2], [3]]), RecordingObserver()
    join = ss.MeshJoin(memory="1MB", how="left")
    options: dict[str, Any] = {"select": {"v": "w"}, "observer": observer}
    with join.open(source, on="k", clock=FakeClock(tick=1.0), **options) as run:
        rows = [
            row for out in (run.push(BATCH), run.flush()) for one in out for row in one.to_pylist()
        ]
    assert sorted(rows, key=lambda row: row["k"]) == [{"k": 1, "w": "1/0"}, {"k": 9, "w": None}]
    assert run.join is join
    assert observer.named("pushed") == [(2,)]
    assert [seconds for *_, seconds in observer.named("page_read")] == [1.0]


def test_two_runs_of_a_join_share_nothing() -> None:
    source, join = pages_of([[1, 2], [3]]), ss.MeshJoin(memory="1MB")
    with join.open(source, on="k") as one, join.open(source, on="k") as other:
        list(one.push(BATCH))
        assert (one.stats.waiting, other.stats.waiting) == (2, 0)
        assert other.schema is None
