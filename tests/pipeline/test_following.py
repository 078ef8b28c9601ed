"""Syncs in the driver: failures do not stop the query, data that is too old does if it should."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss

pytest.importorskip("pydantic")
pytest.importorskip("yaml")

from semistream.errors import ConfigError, MasterTableError, SchemaError
from semistream.pipeline import Following, check, describe, following, load

PIPELINE = """\
name: sales
source: {{format: parquet, path: "{folder}/in", schema: {{product_id: long}}}}
lookups:
  - master: {folder}/products
    on: product_id
    {options}
sink: {{output: parquet, path: "{folder}/out"}}
checkpoint: {folder}/checkpoint
"""


def write(folder: Path, *ids: int) -> None:
    rows = pa.table({"product_id": list(ids), "price": [float(i) for i in ids]})
    pq.write_table(rows, folder / "draft")
    (folder / "draft").rename(folder / "source.parquet")


@pytest.fixture
def pipeline(tmp_path: Path) -> Callable[[str], tuple[Any, Any]]:
    write(tmp_path, 1, 2, 3)
    (tmp_path / "in").mkdir()
    ss.MasterTable.build(
        pq.read_table(tmp_path / "source.parquet"), tmp_path / "products", "product_id", unique=True
    )

    def loaded(options: str) -> tuple[Any, Any]:
        text = PIPELINE.format(folder=tmp_path, options=options.format(folder=tmp_path))
        (tmp_path / "pipeline.yaml").write_text(text)
        return load(tmp_path / "pipeline.yaml")

    return loaded


def rows(folder: Path) -> int:
    return ss.MasterTable.open(folder / "products").num_rows


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_table_follows_its_source_while_a_query_runs(pipeline: Any, tmp_path: Path) -> None:
    found, document = pipeline("sync: {{parquet: '{folder}/source.parquet', every: 50ms}}")
    (master,) = check(found, document)
    plan = describe(found, document, [master])
    assert "sync        Parquet files in" in plan
    assert "every 50ms" in plan
    write(tmp_path, 1, 2, 3, 4)
    reported: list[str] = []
    with Following(found, reported.append) as follow:
        assert rows(tmp_path) == 4, "synced before the query starts"
        write(tmp_path, 1)
        wait_for(lambda: rows(tmp_path) == 1)
        (tmp_path / "source.parquet").rename(tmp_path / "gone")
        wait_for(lambda: len(reported) > 1)
        assert "products failed: data=" in reported[0]
        assert "trying again in 0" in reported[0]
        follow.check()  # no max_age: it does not matter
        write(tmp_path, 7, 8)
        wait_for(lambda: rows(tmp_path) == 2)
    count = ss.MasterTable.open(tmp_path / "products").version
    write(tmp_path, 9)
    time.sleep(0.2)
    assert ss.MasterTable.open(tmp_path / "products").version == count, "it has stopped"


def test_an_unexpected_error_does_not_end_the_syncs(pipeline: Any, tmp_path: Path) -> None:
    found, _ = pipeline("sync: {{parquet: '{folder}/source.parquet', every: 20ms}}")
    reported: list[str] = []
    with Following(found, reported.append):
        with mock.patch.object(ss.MasterTable, "sync", side_effect=KeyError("column")):
            wait_for(lambda: bool(reported))
        assert "products failed: KeyError: 'column'" in reported[0]
        write(tmp_path, 1)
        wait_for(lambda: rows(tmp_path) == 1)


def test_an_age_that_cannot_be_read_does_not_stop_a_query_that_is_only_warned(
    pipeline: Any,
) -> None:
    reported: list[str] = []
    options = "sync: {{parquet: '{folder}/source.parquet', every: 1h}}\n    max_age: 5m\n    "
    failing = mock.patch.object(following, "read_manifest", side_effect=MasterTableError("no"))
    with mock.patch.object(following, "_CHECK_SECONDS", 0.0):
        with Following(pipeline(options + "too_old: warn")[0], reported.append) as warns, failing:
            warns.check()
            warns.check()
        assert len(reported) == 1
        assert "is unknown: no" in reported[0]
        with (
            Following(pipeline(options + "too_old: raise")[0], reported.append) as raises,
            failing,
            pytest.raises(MasterTableError),
        ):
            raises.check()


def test_data_that_is_too_old(pipeline: Any, tmp_path: Path) -> None:
    sync = "sync: {{parquet: '{folder}/source.parquet', every: 1h}}\n    max_age: 5m\n    too_old: "
    reported: list[str] = []
    with (
        mock.patch.object(following, "_CHECK_SECONDS", 0.0),
        Following(pipeline(sync + "warn")[0], reported.append) as warns,
        Following(pipeline(sync + "raise")[0], reported.append) as raises,
    ):
        warns.check()
        raises.check()
        assert reported == []
        with mock.patch.object(following, "age_of", return_value=600.0):
            warns.check()
            warns.check()
            with pytest.raises(MasterTableError, match="is 10m old, and max_age is 5m"):
                raises.check()
        assert len(reported) == 1, "once, until it is fresh again"
        warns.check()
        with mock.patch.object(following, "age_of", return_value=600.0):
            warns.check()
        assert len(reported) == 2


def test_a_limit_without_a_sync_of_its_own(pipeline: Any, tmp_path: Path) -> None:
    """Another process syncs the table; if none does, that is reported."""
    reported: list[str] = []
    with Following(pipeline("max_age: 5m")[0], reported.append):
        pass
    assert "never been synced" in reported[0]
    with pytest.raises(MasterTableError, match="unknown age"):
        Following(pipeline("max_age: 5m\n    too_old: raise")[0], reported.append).__enter__()


def test_wrong_options_are_reported_at_once(pipeline: Any, tmp_path: Path) -> None:
    for options, says in (
        ("sync: {{every: 30s}}", "exactly one of parquet, delta, sql, kafka"),
        ("sync: {{delta: x, every: often}}", "not a duration"),
        ("max_age: soon", "not a duration"),
        ("mapped: always", "resident"),
        ("sync: {{delta: x, parquet: y}}", "exactly one of"),
    ):
        with pytest.raises(ConfigError, match=says):
            pipeline(options)
    pq.write_table(pa.table({"product_id": [1]}), tmp_path / "less.parquet")
    found, _ = pipeline("sync: {{parquet: '{folder}/less.parquet'}}")
    with pytest.raises(SchemaError, match="no column 'price'"):
        Following(found, print).__enter__()
    ss.MasterTable.open(tmp_path / "products").sync(tmp_path / "source.parquet")
    with pytest.raises(MasterTableError, match=r"pipeline\.yaml:6: .*follows Parquet files"):
        check(*pipeline("sync: {{parquet: '{folder}/less.parquet'}}"))


def test_a_table_that_stays_mapped(pipeline: Any) -> None:
    found, document = pipeline("mapped: resident")
    masters = check(found, document)
    assert masters[0].mapped == "resident"
    assert "its pages stay mapped" in describe(found, document, masters)


def test_a_password_is_not_shown(pipeline: Any, tmp_path: Path) -> None:
    url = "postgresql://me:s3cret@127.0.0.1:1/shop"
    found, document = pipeline(f"sync: {{{{sql: {{{{url: '{url}', table: t}}}}}}}}")
    masters = check(found, document)
    assert "s3cret" not in describe(found, document, masters)
    reported: list[str] = []
    with Following(found, reported.append):
        pass
    assert "cannot be read" in reported[0]
    assert "s3cret" not in reported[0]
