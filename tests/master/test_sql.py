"""A master table that stays in its database: every join, real servers, hostile names."""

from __future__ import annotations

import pickle
import shutil
import sqlite3
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import naive
import semistream as ss
from conformance.suite import every_algorithm, every_how
from harness import cut, drive
from servers import execute, postgres_server, query

pytestmark = pytest.mark.xdist_group("postgres")

HOSTILE = 'pro"duct; DROP TABLE x; -- `'
MASTER = pa.table(
    {
        "k": [i * 7 % 900 - 20 for i in range(1000)],
        "name": [None if i % 11 == 0 else f"product {i} {'ä' * (i % 30)}" for i in range(1000)],
        'pri"ce;': [i / 4 for i in range(1000)],
    }
)
STREAM = pa.table({"n": range(400), "k": np.random.default_rng(1).zipf(1.3, 400) % 1000 - 50})


@pytest.fixture(scope="module")
def postgres() -> Iterator[Any]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="module")
def sqlite_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("sqlite") / "shop.db"
    with sqlite3.connect(file) as database:
        fill_sqlite(database, HOSTILE)
    return f"sqlite:///{file}"


def fill_sqlite(database: sqlite3.Connection, table: str) -> None:
    name = '"' + table.replace('"', '""') + '"'
    database.execute(f'create table {name} (k integer, name text, "pri""ce;" real)')
    rows = [tuple(row.values()) for row in MASTER.to_pylist()] + [(None, "no key", 0.0)]
    database.executemany(f"insert into {name} values (?, ?, ?)", rows)


@pytest.fixture(scope="module")
def postgres_uri(postgres: Any) -> str:
    uri: str = postgres.get_uri()
    name = '"' + HOSTILE.replace('"', '""') + '"'
    execute(uri, f'create table {name} (k bigint, name text, "pri""ce;" double precision)')
    import adbc_driver_postgresql.dbapi as driver

    with driver.connect(uri) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest(HOSTILE, MASTER, mode="append")
        cursor.execute(f"insert into {name} values (null, 'no key', 0)")
        connection.commit()
    return uri


@pytest.fixture(params=["sqlite", "postgres"])
def uri(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(f"{request.param}_uri")
    return found


@every_algorithm
def test_every_join_on_sqlite(algorithm: str, sqlite_uri: str) -> None:
    master = ss.SqlMaster(sqlite_uri, HOSTILE, key="k", page_bytes=2048)
    assert master.num_rows == 1000
    assert master.num_pages > 20
    with ss.join(algorithm, memory="300KB", how="left").open(master, on="k") as run:
        out = naive.rows_of(drive(run, cut(STREAM, 57)))
    naive.same_rows(out, naive.join(STREAM, MASTER, "k", "left"))


@every_how
def test_every_how_on_postgres(how: str, postgres_uri: str) -> None:
    master = ss.SqlMaster(postgres_uri, HOSTILE, key="k", page_bytes=2048)
    with ss.join("chybridjoin", memory="300KB", how=how).open(master, on="k") as run:
        out = naive.rows_of(drive(run, cut(STREAM, 57)))
    naive.same_rows(out, naive.join(STREAM, MASTER, "k", how))


def test_pages_contain_all_rows(uri: str) -> None:
    master = ss.SqlMaster(uri, HOSTILE, key="k", page_bytes=1024)
    rows = master.to_table()
    assert rows["k"].to_pylist() == sorted(MASTER["k"].to_pylist())
    naive.same_rows(naive.rows_of([rows]), naive.rows_of([MASTER]))
    reader = master.reader(3)
    assert max(page.nbytes for page in reader.read(4, 3)) <= master.max_page_bytes
    assert reader.bytes_read > 0


def test_a_worker_does_not_recompute_the_cut_points(uri: str) -> None:
    master = ss.SqlMaster(uri, HOSTILE, key="k", page_bytes=1024)
    copy = pickle.loads(pickle.dumps(master))
    assert copy.num_pages == master.num_pages
    assert copy.to_table().equals(master.to_table())


def test_rows_inserted_later_are_found(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    database = sqlite3.connect(file)
    fill_sqlite(database, "product")
    database.commit()
    master = ss.SqlMaster(f"sqlite:///{file}", "product", key="k", page_bytes=1024)
    database.execute("insert into product values (-999, 'below', 1), (99999, 'above', 2)")
    database.commit()
    stream = pa.table({"k": [-999, 99999]})
    with ss.join("hybridjoin", memory="300KB").open(master, on="k", select=["name"]) as run:
        out = naive.rows_of(drive(run, cut(stream, 10)))
    assert out == [(-999, "below"), (99999, "above")]
    database.executemany("insert into product values (5, ?, 1)", [("x" * 100,)] * 500)
    database.commit()
    with pytest.raises(ss.MasterTableError, match="has grown"):
        master.to_table()
    assert master.refresh().num_rows == 1502
    database.close()


def test_text_keys_in_byte_order_whatever_the_collation(postgres: Any, tmp_path: Path) -> None:
    words = ["a", "B", "b", "A", "ä", "Z", "z", "_", "é", "aa", "a b", "\U0001f600", "ﬀ", "", " "]
    uri = postgres.get_uri()
    others = query(uri, "select collname::text from pg_collation where collname like 'en%'")
    collate = f'collate "{others[0][0]}"' if others else ""
    execute(
        uri,
        f"create table words (w text {collate}, n int)",
        *(f"insert into words values ('{word}', {i})" for i, word in enumerate(words)),
    )
    file = tmp_path / "words.db"
    with sqlite3.connect(file) as database:
        database.execute("create table words (w text collate nocase, n integer)")
        database.executemany(
            "insert into words values (?, ?)", list(zip(words, range(15), strict=True))
        )
    stream = pa.table({"w": [*words, "c", "ZZ"]})
    for place in (uri, f"sqlite:///{file}"):
        master = ss.SqlMaster(place, "words", key="w", page_bytes=40)
        assert master.num_pages > 3
        assert master.to_table()["w"].to_pylist() == sorted(words, key=str.encode)
        with ss.join("chybridjoin", memory="100KB").open(master, on="w") as run:
            out = naive.rows_of(drive(run, cut(stream, 5)))
        naive.same_rows(out, [(word, i) for i, word in enumerate(words)])


def test_a_key_of_several_columns(uri: str) -> None:
    master = ss.SqlMaster(uri, HOSTILE, key=["k", "name"], page_bytes=1024)
    stream = pa.table({"k": MASTER["k"], "name": MASTER["name"]}).slice(100, 300)
    with ss.join("hybridjoin", memory="300KB").open(master, on=["k", "name"]) as run:
        out = naive.rows_of(drive(run, cut(stream, 50)))
    naive.same_rows(out, naive.join(stream, MASTER, ["k", "name"]))


def test_types_of_postgres(postgres: Any) -> None:
    uri = postgres.get_uri()
    execute(
        uri,
        "create table kinds (k numeric(10,2), i2 smallint, f4 real, t timestamptz, p timestamp, "
        "d date, tm time, b bytea, yes boolean, u uuid, j jsonb, n numeric, a int[], c char(4))",
        "insert into kinds values (1.25, 7, 1.5, '2020-01-01 12:00+02', '2020-01-01', "
        "'2020-02-02', '10:00', 'ab', true, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', "
        "'{\"x\": 1}', 1.23456789, array[1,2], 'ab')",
        "insert into kinds (k) values (2.50), (-3.75)",
    )
    types = {"n": pa.decimal128(20, 8)}
    master = ss.SqlMaster(uri, "kinds", key="k", types=types, page_bytes=100, unique=True)
    assert master.num_pages == 3
    low, full, empty = master.to_table().to_pylist()
    assert low["k"] == Decimal("-3.75")
    assert full["n"] == Decimal("1.23456789")
    assert (full["i2"], full["yes"], full["b"], full["j"]) == (7, True, b"ab", '{"x": 1}')
    assert (full["a"], full["t"].hour, str(full["d"])) == ("{1,2}", 10, "2020-02-02")
    assert set(empty.values()) == {Decimal("2.50"), None}
    stream = pa.table({"k": pa.array([Decimal("2.50"), Decimal("9.99")], pa.decimal128(10, 2))})
    with ss.join("hybridjoin", memory="100KB", how="left_semi").open(master, on="k") as run:
        assert naive.rows_of(drive(run, cut(stream, 5))) == [(Decimal("2.50"),)]


def test_an_import_into_a_master_table(uri: str, tmp_path: Path) -> None:
    source = ss.SqlMaster(uri, HOSTILE, key="k")
    table = ss.MasterTable.build(source.batches(), tmp_path / "table", key="k")
    naive.same_rows(naive.rows_of([table.to_table()]), naive.rows_of([MASTER]))


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"table": "absent"}, ss.MasterTableError, "absent"),
        ({"key": "nokey"}, ss.SchemaError, "'nokey'; its columns are k, name"),
        ({"columns": ["nocol"]}, ss.SchemaError, "columns: .*'nocol'"),
        ({"types": {"k": pa.int32()}}, ss.ConfigError, "a key column keeps"),
        ({"types": {"name": pa.list_(pa.int8())}}, ss.ConfigError, "non-nested type"),
        ({"types": {"name": pa.date32()}}, ss.SchemaError, "'name'"),
        ({"unique": True}, ss.MasterTableError, "duplicate keys"),
        ({"table": "a\0b"}, ss.ConfigError, "NUL"),
        ({"page_bytes": "many"}, ss.ConfigError, "page_bytes='many'"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_tables_that_cannot_be_read(
    options: dict[str, Any], error: type[Exception], says: str, sqlite_uri: str
) -> None:
    given = {"table": HOSTILE, "key": "k", **options}
    with pytest.raises(error, match=says):
        ss.SqlMaster(sqlite_uri, **given).to_table()


def test_a_password_is_never_shown(tmp_path: Path) -> None:
    for uri in (
        "postgresql://me:hunter2@127.0.0.1:1/db",
        "postgresql:///db?host=127.0.0.1&port=1&password=hunter2",
        "oracle://me:hunter2@x/y",
    ):
        with pytest.raises(ss.SemistreamError) as caught:
            ss.SqlMaster(uri, "t", key="k")
        assert "hunter2" not in str(caught.value)
    with pytest.raises(ss.MasterTableError, match="does not exist"):
        ss.SqlMaster(f"sqlite:///{tmp_path}/absent.db", "t", key="k")


def test_a_server_that_goes_away_and_comes_back() -> None:
    """The page read raises, nothing is lost, and the run continues when the server is back."""
    pgserver = pytest.importorskip("pgserver")
    with postgres_server() as server:
        uri = server.get_uri()
        execute(uri, "create table t as select i as k, i * 2 as v from generate_series(0, 999) i")
        master = ss.SqlMaster(uri, "t", key="k", page_bytes=2048)
        stream = pa.table({"k": pa.array(range(0, 1200, 3), pa.int32())})
        expected = naive.join(stream, master.to_table(), "k", "left")
        folder = server.pgdata
        with ss.join("hybridjoin", memory="100KB", how="left").open(master, on="k") as run:
            first, second = cut(stream, 200)
            out = list(run.push(first))
            server.cleanup()
            with pytest.raises(ss.MasterTableError, match="cannot be read"):
                out += run.push(second)
                out += run.flush()
            again = pgserver.get_server(folder)
            try:
                out += run.flush()
            finally:
                again.cleanup()
        naive.same_rows(naive.rows_of(out), expected)


@pytest.mark.skipif(not shutil.which("mariadbd"), reason="this system has no MariaDB (mariadbd)")
def test_mariadb(tmp_path: Path) -> None:
    from servers import mariadb_server

    with mariadb_server() as (uri, connection):
        name = "`" + HOSTILE.replace("`", "``") + "`"
        with connection.cursor() as cursor:
            cursor.execute(f'create table {name} (k bigint, name text, `pri"ce;` double)')
            cursor.executemany(
                f"insert into {name} values (%s, %s, %s)",
                [tuple(row.values()) for row in MASTER.to_pylist()],
            )
        connection.commit()
        for key in (["k"], ["name"], ["k", "name"]):
            master = ss.SqlMaster(uri, HOSTILE, key=key, page_bytes=1024)
            stream = pa.table({"k": MASTER["k"], "name": MASTER["name"]}).slice(100, 300)
            with ss.join("hybridjoin", memory="300KB").open(master, on=key) as run:
                out = naive.rows_of(drive(run, cut(stream, 50)))
            naive.same_rows(out, naive.join(stream, MASTER, key))
