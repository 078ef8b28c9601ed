"""Tables of real databases, followed by a version column; deletes found by ranges of key hashes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import semistream as ss
from master.sync.worlds import rows_of
from semistream.errors import MasterTableError
from semistream.master.sync import key_digests
from servers import execute, mariadb_server, postgres_server

pytestmark = pytest.mark.xdist_group("postgres")

COLUMNS = {
    "number": ("id bigint primary key", pa.int64(), lambda i: i - 300),
    "text": ("id varchar(40) primary key", pa.string(), lambda i: f"k'{i}ä"),
    "date": ("id date primary key", pa.date32(), None),
}
Execute = Callable[..., None]


@pytest.fixture(scope="module")
def postgres() -> Iterator[tuple[str, Execute]]:
    with postgres_server() as server:
        uri = server.get_uri()
        yield uri, lambda *statements: execute(uri, *statements)


def follow(uri: str, run: Execute, kind: str, folder: Path, quote: str) -> None:
    """Inserts, updates and deletes; the table equals the database after each."""
    declared, arrow, key = COLUMNS[kind]
    q = quote
    name = f"{q}pro duct {kind}{q}"

    def literal(i: int) -> str:
        text = f"{1990 + i // 12}-{i % 12 + 1:02d}-01" if key is None else str(key(i))
        return text if kind == "number" else "'" + text.replace("'", "''") + "'"

    run(f"create table {name} ({declared}, note varchar(40), changed bigint)")
    values = ", ".join(f"({literal(i)}, 'n{i}', {i})" for i in range(600))
    run(f"insert into {name} values {values}")
    source = ss.SqlSource(uri, f"pro duct {kind}", version="changed")
    table = ss.MasterTable.build(source, folder / kind, key="id", unique=True)
    assert table.schema.field("id").type == arrow
    assert table.num_rows == 600
    run(
        f"update {name} set note = 'x', changed = 601 where id = {literal(5)}",
        f"insert into {name} values ({literal(700)}, 'new', 602)",
        f"delete from {name} where id in ({literal(9)}, {literal(10)})",
    )
    with mock.patch.object(key_digests, "_RANGE_ROWS", 20):
        table = table.sync(source)
    info = table.synced
    assert info is not None
    assert (info.inserted, info.updated, info.deleted) == (1, 1, 2)
    if kind != "date":  # its keys are compared one by one
        assert info.rows_read < 150, "at most two ranges of about twenty rows, and the new ones"
    assert rows_of(table) == rows_of(
        ss.MasterTable.build(source, folder / f"{kind}-again", key="id", unique=True)
    )
    assert table.sync(source).version == table.version


@pytest.mark.parametrize("kind", COLUMNS)
def test_postgresql(kind: str, postgres: tuple[str, Execute], tmp_path: Path) -> None:
    follow(*postgres, kind, tmp_path, '"')


@pytest.mark.skipif(shutil.which("mariadbd") is None, reason="no mariadbd on this machine")
@pytest.mark.slow
def test_mariadb(tmp_path: Path) -> None:
    with mariadb_server() as (uri, connection):

        def run(*statements: str) -> None:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
            connection.commit()

        for kind in COLUMNS:
            follow(uri, run, kind, tmp_path, "`")


def test_timestamps_overlap(postgres: tuple[str, Execute], tmp_path: Path) -> None:
    """A transaction that commits late has an older timestamp than rows that were read before."""
    uri, run = postgres
    run("create table late (id int primary key, note text, changed timestamptz)")
    run("insert into late values (1, 'a', '2024-05-01 10:00:00+00')")
    source = ss.SqlSource(uri, "late", version="changed", find_deletes="never")
    table = ss.MasterTable.build(source, tmp_path / "t", key="id", unique=True)
    run("insert into late values (2, 'b', '2024-05-01 09:59:55+00')")
    run("insert into late values (3, 'c', '2024-05-01 09:00:00+00')")
    table = table.sync(source)
    assert rows_of(table).keys() == {1, 2}
    every = ss.SqlSource(uri, "late", version="changed", overlap="2h", find_deletes="never")
    assert rows_of(table.sync(every)).keys() == {1, 2, 3}
    run("delete from late where id = 1")
    assert rows_of(table.sync(every)).keys() == {1, 2, 3}, "deletes are not looked for"
    always = ss.SqlSource(uri, "late", version="changed", find_deletes="always")
    assert rows_of(table.sync(always)).keys() == {2, 3}


def test_deletes_are_looked_for_at_most_every_hour(
    postgres: tuple[str, Execute], tmp_path: Path
) -> None:
    uri, run = postgres
    run("create table hourly (id int primary key, changed int)")
    run("insert into hourly values (1, 1), (2, 2)")
    source = ss.SqlSource(uri, "hourly", version="changed", find_deletes="1h")
    table = ss.MasterTable.build(source, tmp_path / "t", key="id", unique=True)
    run("delete from hourly where id = 1")
    assert table.sync(source).version == 1, "compared when it was built"
    with mock.patch.object(source, "_every", 1e-9):
        assert table.sync(source).num_rows == 1


def test_a_range_is_read_in_full_even_if_its_version_is_old(
    postgres: tuple[str, Execute], tmp_path: Path
) -> None:
    """A key that the database has and the table has not: found by the hashes of the keys."""
    uri, run = postgres
    run("create table old_version (id int primary key, changed int)")
    run("insert into old_version values (1, 10), (2, 20)")
    source = ss.SqlSource(uri, "old_version", version="changed")
    table = ss.MasterTable.build(source, tmp_path / "t", key="id", unique=True)
    run("insert into old_version values (3, 5)")
    assert table.sync(source).num_rows == 3


def test_a_password_is_not_shown(tmp_path: Path) -> None:
    table = ss.MasterTable.build(pa.table({"id": [1]}), tmp_path / "t", key="id", unique=True)
    source: Any = ss.SqlSource("postgresql://me:s3cret@127.0.0.1:1/shop", "product", version="v")
    assert "s3cret" not in source.name
    with pytest.raises(MasterTableError, match=r"table 'product' of postgresql://me") as error:
        table.sync(source)
    assert "s3cret" not in str(error.value)
    assert "s3cret" not in repr(error.value.__cause__)
