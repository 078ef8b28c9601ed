"""A table that follows its source: equal to it after every sync, with the fewest rows read."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from master.sync.worlds import (
    DeltaWorld,
    ParquetWorld,
    Row,
    Rows,
    SqliteWorld,
    World,
    rows_of,
    table_of,
)
from semistream.errors import ConfigError, MasterTableError, SchemaError
from semistream.master import verify
from semistream.master.files import Files

WORLDS: dict[str, Callable[[Path, Rows], World]] = {
    "parquet": ParquetWorld,
    "delta feed": DeltaWorld,
    "delta files": lambda folder, rows: DeltaWorld(folder, rows, feed=False),
    "sqlite": SqliteWorld,
}
every_world = pytest.mark.parametrize("kind", WORLDS)


def rows(*ids: int, word: str = "a") -> Rows:
    return {i: (i, None if i % 7 == 0 else f"{word}{i}", i / 4) for i in ids}


def start(kind: str, folder: Path, first: Rows) -> tuple[World, ss.MasterTable]:
    world = WORLDS[kind](folder, first)
    return world, ss.MasterTable.build(
        table_of(first), folder / "t", key="id", unique=True, page_bytes=4096
    )


@every_world
def test_a_table_equals_its_source_after_every_sync(kind: str, tmp_path: Path) -> None:
    chance = random.Random(7)
    state = rows(*range(400))
    world, table = start(kind, tmp_path, state)
    table = table.sync(world.source)
    first = table.version
    assert table.synced is not None
    assert table.synced.changes == 0
    for turn in range(5):
        change: dict[int, Row | None] = {}
        change |= rows(*(chance.randrange(500) for _ in range(20)), word=f"t{turn}-")
        change |= dict.fromkeys(chance.sample(sorted(state), 10))
        world.change(change)
        before = state
        state = {k: r for k, r in {**state, **change}.items() if r is not None}
        info = table.pending(world.source)
        table = table.sync(world.source)
        assert table.version == first + turn + 1
        assert rows_of(table) == state
        assert table.num_rows == len(state)
        assert table.synced is not None
        found = table.synced.inserted, table.synced.updated, table.synced.deleted
        assert found == (info.inserted, info.updated, info.deleted)
        assert found == (
            len(state.keys() - before.keys()),
            sum(before[k] != state[k] for k in state.keys() & before.keys()),
            len(before.keys() - state.keys()),
        )
        again = table.sync(world.source)
        assert again.version == table.version, "nothing has changed: no version"
    assert verify(tmp_path / "t") == []


@every_world
def test_only_what_changed_is_read(kind: str, tmp_path: Path) -> None:
    world, table = start(kind, tmp_path, rows(*range(1, 2001)))
    table = table.sync(world.source)
    world.change(rows(4, 8, 3000, word="new"))
    table = table.sync(world.source)
    assert table.synced is not None
    # Parquet and Delta read whole files; without deletes the keys of other files are not needed.
    most = {"parquet": 2001, "delta feed": 5, "delta files": 4003, "sqlite": 4}[kind]
    assert 3 <= table.synced.rows_read <= most
    assert table.manifest.deltas[-1].rows == 3, "unchanged rows are not written again"
    before = table.version
    assert table.sync(world.source).version == before


@every_world
def test_a_table_built_from_a_source_follows_it(kind: str, tmp_path: Path) -> None:
    world = WORLDS[kind](tmp_path, rows(*range(50)))
    table = ss.MasterTable.build(world.source, tmp_path / "t", key="id", unique=True)
    assert table.synced is not None
    assert table.age is not None
    assert table.age < 60
    world.change({3: None, 900: (900, "x", 1.0)})
    if kind == "sqlite":  # its version column is a column of the table, too
        assert table.sync(world.source).num_rows == 50
    else:
        assert rows_of(table.sync(world.source)).keys() == {*range(50), 900} - {3}


def test_rows_that_differ_are_found_by_the_first_sync(tmp_path: Path) -> None:
    world = SqliteWorld(tmp_path, rows(*range(100)))
    stale = rows(*range(50)) | rows(10, word="old") | rows(1000)
    table = ss.MasterTable.build(table_of(stale), tmp_path / "t", key="id", unique=True)
    table = table.sync(world.source)
    assert rows_of(table) == rows(*range(100))
    info = table.synced
    assert info is not None
    assert (info.inserted, info.updated, info.deleted) == (50, 1, 1)


def test_a_position_without_changes_is_published_once(tmp_path: Path) -> None:
    """Messages that change nothing, a Delta table that is optimized: not read again."""
    from deltalake import DeltaTable, write_deltalake

    world = DeltaWorld(tmp_path, rows(*range(100)), feed=False)
    table = ss.MasterTable.build(world.source, tmp_path / "t", key="id", unique=True)
    write_deltalake(world.path, table_of(rows(300)), mode="append")
    table = table.sync(world.source)
    DeltaTable(world.path).optimize.compact()
    moved = table.sync(world.source)
    assert moved.version == table.version + 1
    assert moved.num_rows == table.num_rows
    changed = moved.changed_codes(table.version)
    assert changed is not None
    assert sum(len(codes) for codes in changed) == 0, "a join keeps all that it has cached"
    assert moved.sync(world.source).version == moved.version


def test_a_vacuumed_delta_table_is_compared_in_full(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    world = DeltaWorld(tmp_path, rows(*range(100)), feed=False)
    table = ss.MasterTable.build(world.source, tmp_path / "t", key="id", unique=True)
    world.change({5: None, **rows(6, word="x")})
    DeltaTable(world.path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    table = table.sync(world.source)
    assert rows_of(table) == {
        k: r for k, r in (rows(*range(100)) | rows(6, word="x")).items() if k != 5
    }


def test_a_key_that_an_update_changes_is_deleted(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    world = DeltaWorld(tmp_path, rows(*range(20)))
    table = ss.MasterTable.build(world.source, tmp_path / "t", key="id", unique=True)
    DeltaTable(world.path).update(updates={"id": "id + 100"}, predicate="id = 4")
    assert rows_of(table.sync(world.source)).keys() == {*range(20), 104} - {4}


def test_a_feed_that_was_off_for_a_while(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    world = DeltaWorld(tmp_path, rows(*range(20)))
    table = ss.MasterTable.build(world.source, tmp_path / "t", key="id", unique=True)
    for setting in ("false", "true"):
        alter = DeltaTable(world.path).alter
        alter.set_table_properties({"delta.enableChangeDataFeed": setting})
        world.change(rows(4, word=setting) | {7: None})
    assert rows_of(table.sync(world.source)) == {
        k: r for k, r in (rows(*range(20)) | rows(4, word="true")).items() if k != 7
    }


def test_partitions_of_a_delta_table(tmp_path: Path) -> None:
    from deltalake import DeltaTable, write_deltalake

    data = pa.table({"id": range(30), "part": [f"p{i % 3}" for i in range(30)]})
    write_deltalake(tmp_path / "d", data, partition_by=["part"])
    table = ss.MasterTable.build(ss.DeltaSource(tmp_path / "d"), tmp_path / "t", "id", unique=True)
    assert table.to_table().sort_by("id")["part"].to_pylist() == data["part"].to_pylist()
    DeltaTable(tmp_path / "d").delete("id = 4")
    more = pa.table({"id": [40], "part": ["p9"]})
    write_deltalake(tmp_path / "d", more, mode="append")
    table = table.sync(tmp_path / "d")
    assert dict(zip(*table.to_table().to_pydict().values(), strict=True)) == {
        **{i: f"p{i % 3}" for i in range(30) if i != 4},
        40: "p9",
    }


@pytest.mark.parametrize("is_weak", [False, True], ids=["hashes", "equal hashes"])
def test_keys_of_text(is_weak: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if many keys have the same code."""
    from semistream.keys import codec
    from semistream.master.page_spec import PageSpec

    if is_weak:
        strong = codec.hash_columns
        monkeypatch.setattr(codec, "hash_columns", lambda columns: strong(columns) & np.uint64(7))
        monkeypatch.setattr(PageSpec, "checkable", False)  # compiled checks have the strong hash
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    state: Rows = {f"k{i}": (f"k{i}", i) for i in range(60)}
    world = ParquetWorld(tmp_path, state, schema)
    table = ss.MasterTable.build(table_of(state, schema), tmp_path / "t", "id", unique=True)
    table = table.sync(world.source)
    for turn in range(4):
        change: dict[Any, Row | None] = {f"k{turn * 20}x": (f"k{turn * 20}x", -turn)}
        change |= {f"k{turn + 1}": (f"k{turn + 1}", 100 + turn), f"k{turn * 7}": None}
        world.change(change)
        state = {k: r for k, r in {**state, **change}.items() if r is not None}
        table = table.sync(world.source)
        assert rows_of(table) == state
        assert table.num_rows == len(state)
    twice = table_of({1: ("k59", 1), 2: ("new", 2), 3: ("new", 3)}, schema)
    pq.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(MasterTableError, match="more than one row with id='new'"):
        table.sync(tmp_path / "twice.parquet", full=True)


def test_composite_keys_and_nested_columns(tmp_path: Path) -> None:
    kind = pa.list_(pa.struct([("x", pa.float64())]))
    schema = pa.schema([("a", pa.string()), ("b", pa.int32()), ("tags", kind)])

    def data(shift: float) -> pa.Table:
        tags = [[{"x": i + (shift if i == 3 else 0)}] if i % 2 else None for i in range(10)]
        return pa.table({"a": ["x"] * 10, "b": range(10), "tags": tags}, schema=schema)

    file = tmp_path / "data.parquet"
    pq.write_table(data(0), file)
    table = ss.MasterTable.build(ss.ParquetSource(file), tmp_path / "t", ["a", "b"], unique=True)
    pq.write_table(data(0.5).slice(0, 9), file)
    table = table.sync(file)
    info = table.synced
    assert info is not None
    assert (info.inserted, info.updated, info.deleted) == (0, 1, 1)
    assert table.to_table().sort_by("b").equals(data(0.5).slice(0, 9))


def test_not_a_number_equals_itself(tmp_path: Path) -> None:
    file = tmp_path / "data.parquet"
    data = table_of({1: (1, None, float("nan")), 2: (2, "b", None)})
    pq.write_table(data, file)
    table = ss.MasterTable.build(data, tmp_path / "t", key="id", unique=True)
    assert table.pending(file).changes == 0


def test_changes_by_hand_stay_until_a_full_sync(tmp_path: Path) -> None:
    world = SqliteWorld(tmp_path, rows(*range(10)))
    table = ss.MasterTable.build(table_of(rows(*range(10))), tmp_path / "t", "id", unique=True)
    table = table.sync(world.source).upsert(table_of(rows(3, word="by hand"))).compact()
    assert table.synced is not None, "the position survives"
    world.change(rows(4, word="new"))
    table = table.sync(world.source)
    assert rows_of(table)[3][1] == "by hand3"
    assert rows_of(table.sync(world.source, full=True))[3][1] == "a3"


def test_age_is_reset_by_a_sync_without_changes(tmp_path: Path) -> None:
    world = SqliteWorld(tmp_path, rows(*range(10)))
    table = ss.MasterTable.build(table_of(rows(*range(10))), tmp_path / "t", "id", unique=True)
    assert table.age is None
    old = "2020-01-01T00:00:00+00:00"
    with mock.patch("semistream.master.sync.apply.timestamp", return_value=old):
        table = table.sync(world.source)
    assert table.age is not None
    assert table.age > 1e7
    assert table.sync(world.source).version == table.version
    assert table.age < 100
    assert ss.MasterTable.open(tmp_path / "t").age < 100  # type: ignore[operator]


def test_a_check_that_cannot_be_noted_leaves_no_file(tmp_path: Path) -> None:
    world = SqliteWorld(tmp_path, rows(1))
    table = ss.MasterTable.build(world.source, tmp_path / "t", key="id", unique=True)
    names = sorted(path.name for path in (tmp_path / "t" / "manifests").iterdir())
    with (
        mock.patch.object(Files, "rename", side_effect=OSError(5, "Input/output error")),
        pytest.raises(MasterTableError, match="Input/output error"),
    ):
        table.sync(world.source)
    assert sorted(path.name for path in (tmp_path / "t" / "manifests").iterdir()) == names


def test_a_file_that_is_being_written_is_not_a_wrong_option(tmp_path: Path) -> None:
    """A wrong option ends a pipeline; this one is tried again."""
    table = ss.MasterTable.build(table_of(rows(1)), tmp_path / "t", key="id", unique=True)
    (tmp_path / "half.parquet").write_bytes(b"PAR1")
    with pytest.raises(MasterTableError, match=r"half\.parquet cannot be read as Parquet"):
        table.sync(tmp_path / "half.parquet")


def test_progress_is_reported(tmp_path: Path) -> None:
    world = ParquetWorld(tmp_path, rows(*range(100)))
    table = ss.MasterTable.build(table_of(rows(*range(100))), tmp_path / "t", "id", unique=True)
    seen: list[tuple[str, int, int | None]] = []
    table.sync(world.source, progress=lambda *report: seen.append(report))
    assert ("read", 100, 100) in seen
    assert ("compare", 100, 100) in seen


def test_little_memory_spills(tmp_path: Path) -> None:
    world = ParquetWorld(tmp_path, rows(*range(20_000)))
    table = ss.MasterTable.build(table_of(rows(5)), tmp_path / "t", key="id", unique=True)
    table = table.sync(world.source, memory="400KB")
    assert rows_of(table) == rows(*range(20_000))


# -- errors ---------------------------------------------------------------------------------


def test_another_source_is_refused(tmp_path: Path) -> None:
    world = SqliteWorld(tmp_path, rows(1, 2))
    table = ss.MasterTable.build(table_of(rows(1)), tmp_path / "t", key="id", unique=True)
    table = table.sync(world.source)
    pq.write_table(table_of(rows(5)), tmp_path / "new.parquet")
    with pytest.raises(ConfigError, match=r"follows table 'product'.* not Parquet files.*--full"):
        table.sync(tmp_path / "new.parquet")
    assert rows_of(table.sync(tmp_path / "new.parquet", full=True)) == rows(5)


def test_duplicate_keys_in_the_source_are_refused(tmp_path: Path) -> None:
    table = ss.MasterTable.build(table_of(rows(1)), tmp_path / "t", key="id", unique=True)
    for number in range(2):
        pq.write_table(table_of(rows(1, 2)), tmp_path / f"{number}.parquet")
    with pytest.raises(MasterTableError, match="more than one row with id=1"):
        table.sync(
            [*tmp_path.glob("*.parquet")] and ss.ParquetSource([*tmp_path.glob("*.parquet")])
        )
    several = pa.concat_tables([table_of(rows(1)), table_of(rows(1))])
    table = ss.MasterTable.build(several, tmp_path / "m", key="id")
    with pytest.raises(MasterTableError, match="unique=True"):
        table.sync(tmp_path / "0.parquet")


def test_missing_columns_files_and_tables_are_named(tmp_path: Path) -> None:
    table = ss.MasterTable.build(table_of(rows(1)), tmp_path / "t", key="id", unique=True)
    pq.write_table(table_of(rows(1)).drop(["price"]), tmp_path / "less.parquet")
    with pytest.raises(SchemaError, match=r"less\.parquet has no column 'price'"):
        table.sync(tmp_path / "less.parquet")
    with pytest.raises(ConfigError, match=r"nothing\.parquet' does not exist"):
        table.sync(tmp_path / "nothing.parquet")
    with pytest.raises(MasterTableError, match=r"Delta table .*/none cannot be read"):
        table.sync(ss.DeltaSource(tmp_path / "none"))
    with pytest.raises(ConfigError, match="dict cannot be followed"):
        table.sync({})
    world = SqliteWorld(tmp_path, rows(1))
    uri = f"sqlite:///{world.file}"
    with pytest.raises(ConfigError, match=r"version='v2': table 'product' .* id, name, price, v"):
        table.sync(ss.SqlSource(uri, "product", version="v2"))
    with pytest.raises(ConfigError, match="version='price' is double"):
        table.sync(ss.SqlSource(uri, "product", version="price"))
    with pytest.raises(MasterTableError, match=r"table 'absent' of sqlite.*does not exist"):
        table.sync(ss.SqlSource(uri, "absent"))
    assert table.newest_version() == 1


def test_another_writer_meanwhile(tmp_path: Path) -> None:
    world = SqliteWorld(tmp_path, rows(*range(10)))
    table = ss.MasterTable.build(table_of(rows(1)), tmp_path / "t", key="id", unique=True)
    read = ss.SqlSource.read_first

    def slow(source: Any, *args: Any) -> Any:
        table.upsert(table_of(rows(77)))
        return read(source, *args)

    with (
        mock.patch.object(ss.SqlSource, "read_first", slow),
        pytest.raises(MasterTableError, match="another writer"),
    ):
        table.sync(world.source)
    assert rows_of(table.sync(world.source)) == rows(*range(10)), "starts from the newest version"
