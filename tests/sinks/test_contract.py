"""One suite for all warehouses, without Spark: staged rows are invisible, committed ones unique."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import naive
import semistream as ss
from semistream.sinks import Batch, Mark, open_sink
from semistream.sinks.parquet import ParquetSink
from servers import execute, postgres_server, query

pytestmark = pytest.mark.xdist_group("postgres")

TABLE = 'fact"s; DROP TABLE x; --'
SCHEMA = pa.schema([("n", pa.int64()), ('te"xt;', pa.string())])


@pytest.fixture(scope="module")
def postgres() -> Iterator[Any]:
    with postgres_server() as server:
        yield server


class Warehouse:
    """A sink and how its readers see it."""

    def __init__(self, make: Callable[[], Any], read: Callable[[], naive.Rows]) -> None:
        self.make, self.read = make, read


@pytest.fixture(params=["parquet", "delta", "postgresql"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    if request.param == "postgresql":
        uri = request.getfixturevalue("postgres").get_uri()
        execute(uri, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
        quoted = '"' + TABLE.replace('"', '""') + '"'

        def rows() -> naive.Rows:
            exists = query(uri, "select count(*) from pg_class where relname like 'fact%'")[0][0]
            return query(uri, f"select * from {quoted}") if exists else []

        return Warehouse(lambda: open_sink("postgresql", uri=uri, table=TABLE, patience=5), rows)
    folder = tmp_path / "ware house"
    return Warehouse(
        lambda: open_sink(request.param, path=folder), lambda: read(request.param, folder)
    )


def read(kind: str, folder: Path) -> naive.Rows:
    """As a generic reader would."""
    if kind == "delta":
        from deltalake import DeltaTable

        if not (folder / "_delta_log").exists():
            return []
        return naive.rows_of([DeltaTable(folder).to_pyarrow_table()])
    if not folder.exists():
        return []
    return naive.rows_of([pq.read_table(folder)]) if any(folder.glob("*.parquet")) else []


def rows(first: int, count: int) -> list[pa.RecordBatch]:
    numbers = range(first, first + count)
    data = {"n": numbers, 'te"xt;': [f"text {n}" for n in numbers]}
    batch = pa.table(data, schema=SCHEMA).to_batches()[0]
    return [batch.slice(0, count // 2), batch.slice(0, 0), batch.slice(count // 2)]


def expected(*spans: tuple[int, int]) -> naive.Rows:
    return [(n, f"text {n}") for first, count in spans for n in range(first, first + count)]


def test_committed_rows_are_stored_once(warehouse: Warehouse) -> None:
    sink = pickle.loads(pickle.dumps(warehouse.make()))
    sink.check(SCHEMA)
    batch = Batch("query-1", 0)
    staged = [
        sink.stage(rows(0, 10), SCHEMA, batch, 0),
        sink.stage(rows(10, 5), SCHEMA, batch, 1),
        sink.stage([], SCHEMA, batch, 2),
    ]
    assert [part.rows for part in staged] == [10, 5, 0]
    assert warehouse.read() == []
    staged = pickle.loads(pickle.dumps(staged))
    assert warehouse.make().commit(staged, batch) is True
    naive.same_rows(warehouse.read(), expected((0, 15)))
    assert warehouse.make().commit(staged, batch) is False
    naive.same_rows(warehouse.read(), expected((0, 15)))


def test_a_replayed_batch_adds_nothing(warehouse: Warehouse) -> None:
    """Even if it was partitioned differently, and other tasks crashed before."""
    sink = warehouse.make()
    for number in range(3):
        batch = Batch("query-1", number)
        sink.stage(rows(number * 10, 4), SCHEMA, batch, 0)  # a crashed task
        staged = [sink.stage(rows(number * 10, 10), SCHEMA, batch, 0)]
        assert sink.commit(staged, batch)
        again = [
            sink.stage(rows(number * 10, 7), SCHEMA, batch, 0),
            sink.stage(rows(number * 10 + 7, 3), SCHEMA, batch, 1),
        ]
        assert not warehouse.make().commit(again, batch)
    naive.same_rows(warehouse.read(), expected((0, 30)))


def test_an_aborted_batch_leaves_nothing(warehouse: Warehouse) -> None:
    sink = warehouse.make()
    batch = Batch("query-1", 0)
    sink.abort([sink.stage(rows(0, 10), SCHEMA, batch, 0)], batch)
    assert warehouse.read() == []
    assert sink.commit([sink.stage(rows(0, 3), SCHEMA, batch, 0)], batch)
    naive.same_rows(warehouse.read(), expected((0, 3)))


def test_an_abort_after_the_commit_removes_nothing(warehouse: Warehouse) -> None:
    """The driver may have lost the reply of a successful commit."""
    sink = warehouse.make()
    batch = Batch("query-1", 0)
    staged = [sink.stage(rows(0, 10), SCHEMA, batch, 0)]
    sink.commit(staged, batch)
    sink.abort(staged, batch)
    naive.same_rows(warehouse.read(), expected((0, 10)))


def test_a_crashed_first_batch_does_not_block_the_next(warehouse: Warehouse) -> None:
    batch = Batch("query-1", 0)
    warehouse.make().stage(rows(0, 4), SCHEMA, batch, 0)
    sink = warehouse.make()
    sink.check(SCHEMA)
    assert sink.commit([sink.stage(rows(0, 6), SCHEMA, batch, 0)], batch)
    naive.same_rows(warehouse.read(), expected((0, 6)))


def test_a_checkpoint_that_is_older_than_the_sink(warehouse: Warehouse) -> None:
    """Restored from a backup, it reuses old numbers for other rows, which must not be lost."""
    for number in range(4):
        batch = Batch("query-1", number)
        sink = warehouse.make()
        assert sink.commit([sink.stage(rows(10 * number, 10), SCHEMA, batch, 0)], batch)
    sink, old = warehouse.make(), Batch("query-1", 1)
    staged = [sink.stage(rows(900, 5), SCHEMA, old, 0)]
    with pytest.raises(
        ss.SemistreamError, match=r"checkpoint is older than the sink.*batch 1,.*batch 3"
    ):
        sink.commit(staged, old)
    sink.abort(staged, old)
    naive.same_rows(warehouse.read(), expected((0, 40)))
    for number, is_new in ((3, False), (4, True)):  # Spark may replay the newest batch
        batch = Batch("query-1", number)
        staged = [sink.stage(rows(10 * number, 10), SCHEMA, batch, 0)]
        assert sink.commit(staged, batch) is is_new
    naive.same_rows(warehouse.read(), expected((0, 50)))


def test_queries_are_independent(warehouse: Warehouse) -> None:
    sink = warehouse.make()
    for name in ("query-1", "another/query; with '\"signs"):
        batch = Batch(name, 0)
        assert sink.commit([sink.stage(rows(0, 5), SCHEMA, batch, 0)], batch)
    naive.same_rows(warehouse.read(), expected((0, 5), (0, 5)))


def test_a_row_iterator_that_fails(warehouse: Warehouse) -> None:
    class BrokenError(Exception):
        pass

    def half() -> Iterator[pa.RecordBatch]:
        yield rows(0, 100)[0]
        raise BrokenError

    sink = warehouse.make()
    batch = Batch("query-1", 0)
    with pytest.raises(BrokenError):
        sink.stage(half(), SCHEMA, batch, 0)
    assert sink.commit([sink.stage(rows(0, 6), SCHEMA, batch, 0)], batch)
    naive.same_rows(warehouse.read(), expected((0, 6)))


def test_a_batch_without_rows(warehouse: Warehouse) -> None:
    sink = warehouse.make()
    for number in range(2):
        batch = Batch("query-1", number)
        assert sink.commit([sink.stage([], None, batch, 0)], batch)
    assert sink.commit([sink.stage(rows(0, 6), None, Batch("query-1", 2), 0)], Batch("query-1", 2))
    naive.same_rows(warehouse.read(), expected((0, 6)))


def test_other_columns_are_refused(warehouse: Warehouse) -> None:
    sink = warehouse.make()
    batch = Batch("query-1", 0)
    sink.commit([sink.stage(rows(0, 5), SCHEMA, batch, 0)], batch)
    other = pa.table({"n": [1], "extra": [2]})
    if isinstance(sink, ParquetSink):
        return  # a folder has no schema
    with pytest.raises(ss.SchemaError, match="extra"):
        sink.check(other.schema)
    later = Batch("query-1", 1)
    with pytest.raises(ss.SchemaError, match="extra"):
        sink.commit([sink.stage(other.to_batches(), None, later, 0)], later)
    naive.same_rows(warehouse.read(), expected((0, 5)))


def test_nothing_is_left_behind(warehouse: Warehouse, tmp_path: Path, postgres: Any) -> None:
    execute(postgres.get_uri(), "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    sink = warehouse.make()
    for number in range(3):
        batch = Batch("query-1", number)
        sink.stage(rows(0, 4), SCHEMA, batch, 1)
        sink.commit([sink.stage(rows(0, 4), SCHEMA, batch, 0)], batch)
    assert query(postgres.get_uri(), "select relname from pg_class where relname ~ 'stage'") == []
    files = [f for f in tmp_path.rglob("*.parquet") if f.is_file()]
    assert len(files) in (0, 3)


def test_a_server_that_crashed_between_stage_and_commit(postgres: Any) -> None:
    """Unlogged tables are empty after a crash; the commit must detect that."""
    uri = postgres.get_uri()
    sink = open_sink("postgresql", uri=uri, table="crashed", patience=2)
    batch = Batch("query-1", 0)
    staged = [sink.stage(rows(0, 10), SCHEMA, batch, 0)]
    execute(uri, f"TRUNCATE {staged[0].name}")
    with pytest.raises(ss.SemistreamError, match=r"10 rows .* only 0 are left"):
        sink.commit(staged, batch)
    assert sink.commit([sink.stage(rows(0, 10), SCHEMA, batch, 0)], batch)
    assert query(uri, "select count(*) from crashed") == [(10,)]


@pytest.mark.parametrize(
    ("output", "options", "says"),
    [
        ("avro", {}, "'avro'.*parquet, delta, postgresql"),
        ("parquet", {}, "path"),
        ("parquet", {"path": ""}, "path=''"),
        ("parquet", {"path": "s3://bucket/x"}, "s3://bucket/x"),
        ("parquet", {"path": "x", "compression": "zip"}, "zip"),
        ("parquet", {"path": "x", "speed": 1}, "speed"),
        ("delta", {"path": "s3://bucket/x"}, "s3://bucket/x"),
        ("postgresql", {"uri": "mysql://u:secret@x/y", "table": "t"}, "postgresql://"),
        ("postgresql", {"uri": "postgresql://x/y", "table": ""}, "''"),
        ("postgresql", {"uri": "postgresql://x/y", "table": "t", "patience": "long"}, "'long'"),
    ],
)
def test_invalid_options(output: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ss.ConfigError, match=says) as caught:
        open_sink(output, **options)
    assert "secret" not in str(caught.value)


def test_targets_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for output in ("parquet", "delta"):
        with pytest.raises(ss.ConfigError, match="is a file"):
            open_sink(output, path=tmp_path / "file").check()
    with pytest.raises(ss.ConfigError, match="not a Delta table"):
        open_sink("delta", path=tmp_path).check()
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(ss.ConfigError, match="output='delta'"):
        open_sink("parquet", path=tmp_path).check()
    server = open_sink("postgresql", uri="postgresql://127.0.0.1:1/x", table="t", patience=0)
    with pytest.raises(ss.SemistreamError, match="cannot be written"):
        server.check()


def test_a_mark_is_committed_with_its_batch(warehouse: Warehouse) -> None:
    first, second = Batch("query-1", 0), Batch("query-1", 1)
    sink = warehouse.make()
    assert sink.mark("query-1") is None
    waiting, drained = Mark("query-1", 1, 5), Mark("query-1", 2, 0)
    assert sink.commit([sink.stage([], SCHEMA, first, 0)], first, waiting)
    assert warehouse.make().mark("query-1") == waiting
    assert not sink.commit([sink.stage(rows(0, 4), SCHEMA, first, 0)], first, drained)
    assert warehouse.make().mark("query-1") == waiting, "a replay changes nothing"
    with pytest.raises(ss.ConfigError, match=r"5 rows of query query-1 .* still wait"):
        sink.commit([sink.stage(rows(0, 4), SCHEMA, second, 0)], second)
    end = Batch(waiting.drains, waiting.number)
    assert sink.commit([sink.stage(rows(0, 5), SCHEMA, end, 0)], end, drained)
    assert warehouse.make().mark("query-1") == drained
    assert warehouse.make().mark("query-2") is None
    assert sink.commit([sink.stage(rows(5, 4), SCHEMA, second, 0)], second)
    assert warehouse.make().mark("query-1") == drained, "a commit without a mark leaves it"
    naive.same_rows(warehouse.read(), expected((0, 9)))
