"""Delta tables of other writers: written as they require, or refused with the reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import semistream as ss
from semistream.sinks import Batch, open_sink

deltalake = pytest.importorskip("deltalake")

SCHEMA = pa.schema([("n", pa.int64()), ("day", pa.string())])
ROWS = pa.table({"n": [1, None, -3], "day": ["a", "b", "a"]}, schema=SCHEMA)
BATCH = Batch("query-1", 0)


def create(path: Path, fields: list[Any] | None = None, **options: Any) -> Any:
    schema = deltalake.Schema(fields or deltalake.Schema.from_arrow(SCHEMA).fields)
    return deltalake.DeltaTable.create(path, schema=schema, **options)


def with_metadata(path: Path, key: str, value: Any) -> None:
    day = deltalake.Field("day", "string", metadata={key: value})
    create(path, [deltalake.Field("n", "long"), day])


def with_feature(path: Path, name: str) -> None:
    create(path)
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [name]}
    entry = path / "_delta_log" / f"{1:020d}.json"
    entry.write_text(json.dumps({"protocol": protocol}) + "\n")


DEMANDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "partitions": (lambda path: create(path, partition_by=["day"]), "partition columns day"),
    "constraint": (
        lambda path: create(path).alter.add_constraint({"positive": "n > 0"}),
        r"constraint positive \(n > 0\)",
    ),
    "mapping": (
        lambda path: create(path, configuration={"delta.columnMapping.mode": "name"}),
        "column mapping by name",
    ),
    "generated": (
        lambda path: with_metadata(path, "delta.generationExpression", "cast(n as string)"),
        "generation expression for column day",
    ),
    "invariant": (
        lambda path: with_metadata(
            path, "delta.invariants", '{"expression":{"expression":"day > \'a\'"}}'
        ),
        "invariant for column day",
    ),
    "length": (
        lambda path: with_metadata(path, "__CHAR_VARCHAR_TYPE_STRING", "varchar(3)"),
        "maximal length for column day",
    ),
    "row tracking": (lambda path: with_feature(path, "rowTracking"), "feature rowTracking"),
    "unknown": (lambda path: with_feature(path, "timeTravel9000"), "feature timeTravel9000"),
}


@pytest.mark.parametrize("demand", DEMANDS)
def test_a_table_with_unsupported_requirements_is_refused(demand: str, tmp_path: Path) -> None:
    make, says = DEMANDS[demand]
    make(tmp_path / "table")
    sink = open_sink("delta", path=tmp_path / "table")
    before = sorted((tmp_path / "table/_delta_log").iterdir())
    with pytest.raises(ss.ConfigError, match=says):
        sink.check(SCHEMA)
    staged = [sink.stage(ROWS.to_batches(), None, BATCH, 0)]
    with pytest.raises(ss.ConfigError, match=says):
        sink.commit(staged, BATCH)
    sink.abort(staged, BATCH)
    assert sorted((tmp_path / "table/_delta_log").iterdir()) == before


def test_not_null_is_enforced(tmp_path: Path) -> None:
    fields = [deltalake.Field("n", "long", nullable=False), deltalake.Field("day", "string")]
    create(tmp_path / "table", fields)
    sink = open_sink("delta", path=tmp_path / "table")
    sink.check(SCHEMA)
    with pytest.raises(ss.SchemaError, match=r"'n' of the Delta table .* is NOT NULL"):
        sink.commit([sink.stage(ROWS.to_batches(), None, BATCH, 0)], BATCH)
    full = ROWS.filter(pa.compute.field("n").is_valid())
    assert sink.commit([sink.stage(full.to_batches(), None, BATCH, 0)], BATCH)
    assert deltalake.DeltaTable(tmp_path / "table").to_pyarrow_table().num_rows == 2


def test_a_new_table_allows_nulls_in_later_batches(tmp_path: Path) -> None:
    sink = open_sink("delta", path=tmp_path / "table")
    strict = pa.schema([field.with_nullable(False) for field in SCHEMA])
    full = ROWS.filter(pa.compute.field("n").is_valid()).cast(strict)
    assert sink.commit([sink.stage(full.to_batches(), None, BATCH, 0)], BATCH)
    later = Batch("query-1", 1)
    assert sink.commit([sink.stage(ROWS.to_batches(), None, later, 0)], later)
    table = deltalake.DeltaTable(tmp_path / "table")
    assert all(field.nullable for field in table.schema().fields)
    assert table.to_pyarrow_table()["n"].null_count == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"delta.appendOnly": "true"},
        {"delta.enableChangeDataFeed": "true"},
        {"delta.enableDeletionVectors": "true"},
    ],
)
def test_settings_that_do_not_affect_an_appending_writer(
    settings: dict[str, str], tmp_path: Path
) -> None:
    create(tmp_path / "table", configuration=settings)
    sink = open_sink("delta", path=tmp_path / "table")
    sink.check(SCHEMA)
    assert sink.commit([sink.stage(ROWS.to_batches(), None, BATCH, 0)], BATCH)
    assert deltalake.DeltaTable(tmp_path / "table").count() == 3


def test_two_drivers_commit_the_same_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One checked before the other committed: the log itself decides."""
    first, ghost = (open_sink("delta", path=tmp_path / "table") for _ in range(2))
    create(tmp_path / "table")
    late = [ghost.stage(ROWS.to_batches(), None, BATCH, 0)]
    original = deltalake.DeltaTable.create_write_transaction
    states: list[bool] = []

    def interrupted(self: Any, *args: Any, **options: Any) -> None:
        if not states:
            states.append(True)
            states.append(first.commit([first.stage(ROWS.to_batches(), None, BATCH, 0)], BATCH))
        original(self, *args, **options)

    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", interrupted)
    assert ghost.commit(late, BATCH) is False
    assert states == [True, True]
    assert deltalake.DeltaTable(tmp_path / "table").to_pyarrow_table().num_rows == 3
