"""Specific to PostgreSQL: foreign locks, hanging drivers, leftover tables."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import semistream as ss
from semistream.sinks import Batch, open_sink
from servers import execute, postgres_server, query

pytestmark = pytest.mark.xdist_group("postgres")

ROWS = pa.table({"n": [1, 2, 3]}).to_batches()
BATCH = Batch("query-1", 0)


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def uri(server: Any) -> str:
    found = str(server.get_uri())
    execute(found, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    return found


def commit(sink: Any, batch: Batch = BATCH) -> bool:
    return bool(sink.commit([sink.stage(ROWS, None, batch, 0)], batch))


class Ghost:
    """A connection with an open transaction that never ends."""

    def __init__(self, uri: str, *statements: str) -> None:
        import adbc_driver_postgresql.dbapi as driver

        self.connection = driver.connect(uri)
        with self.connection.cursor() as cursor:
            for statement in ("SELECT pg_backend_pid()", *statements):
                cursor.execute(statement)
                if statement == "SELECT pg_backend_pid()":
                    (self.pid,) = cursor.fetchone()

    def __enter__(self) -> Ghost:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "lock",
    [
        "SELECT pg_advisory_xact_lock(hashtext('facts' || 'query-1'))",
        "LOCK TABLE facts IN ACCESS EXCLUSIVE MODE",
    ],
)
def test_a_lock_held_by_a_stale_connection_times_out(lock: str, uri: str) -> None:
    """An error with the holder and what to do, after ``patience``; then the sink works again."""
    sink = open_sink("postgresql", uri=uri, table="facts", patience=1)
    assert commit(sink)
    later = Batch("query-1", 1)
    staged = [sink.stage(ROWS, None, later, 0)]
    with Ghost(uri, lock) as ghost, pytest.raises(ss.SemistreamError) as caught:
        sink.commit(staged, later)
    assert re.search(
        rf"waited 1 s for a lock.* process {ghost.pid} .*idle in transaction.*"
        rf"pg_terminate_backend\({ghost.pid}\)",
        str(caught.value),
    )
    assert sink.commit(staged, later)
    assert query(uri, "SELECT count(*) FROM facts") == [(6,)]


@pytest.mark.timeout(60)
def test_the_server_disconnects_a_driver_that_hangs_in_its_commit(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its successor continues; the driver finds the batch committed when it resumes."""
    hanging = open_sink("postgresql", uri=uri, table="facts", patience=4)
    successor = open_sink("postgresql", uri=uri, table="facts", patience=10)
    assert commit(successor)
    stuck, wake = threading.Event(), threading.Event()
    original = type(hanging)._move

    def move(self: Any, *args: Any) -> None:
        if self is hanging and not stuck.is_set():
            stuck.set()
            wake.wait(40)
        original(self, *args)

    monkeypatch.setattr(type(hanging), "_move", move)
    later = Batch("query-1", 1)
    staged = [hanging.stage(ROWS, None, later, 0)]
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(hanging.commit(staged, later)))
    thread.start()
    try:
        assert stuck.wait(20)
        assert commit(successor, later)
    finally:
        wake.set()
        thread.join()
    assert results == [False]
    assert query(uri, "SELECT count(*) FROM facts") == [(6,)]


@pytest.mark.timeout(60)
def test_concurrent_queries_create_ledger_and_table(uri: str) -> None:
    for round_ in range(2):
        execute(uri, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
        sinks = [open_sink("postgresql", uri=uri, table="facts", patience=10) for _ in range(6)]
        batches = [Batch(f"query-{round_}-{i}", 0) for i in range(6)]
        staged = [[s.stage(ROWS, None, b, 0)] for s, b in zip(sinks, batches, strict=True)]
        together = threading.Barrier(6)
        errors: list[BaseException] = []

        def run(
            i: int,
            sinks: Any = sinks,
            staged: Any = staged,
            batches: Any = batches,
            together: threading.Barrier = together,
            errors: list[BaseException] = errors,
        ) -> None:
            together.wait()
            try:
                assert sinks[i].commit(staged[i], batches[i])
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert query(uri, "SELECT count(*) FROM facts") == [(18,)]


def staged_tables(uri: str) -> list[str]:
    return [name for (name,) in query(uri, "SELECT relname FROM pg_class WHERE relname ~ 'stage_'")]


def age(uri: str, table: str, days: int) -> str:
    """Make a table look as if it was staged days ago. Returns its new name."""
    stamp = re.search(r"_([0-9a-f]{8})_[0-9a-f]{6}$", table)
    assert stamp is not None, table
    renamed = table.replace(f"_{stamp[1]}_", f"_{int(stamp[1], 16) - days * 24 * 3600:x}_")
    execute(uri, f"ALTER TABLE {table} RENAME TO {renamed}")
    return renamed


def test_staged_data_of_abandoned_queries_is_removed(uri: str) -> None:
    """After a week of inactivity; never a live query's tables, however old."""
    sink = open_sink("postgresql", uri=uri, table="facts", patience=5)
    gone, slow = Batch("abandoned", 3), Batch("alive", 5)
    sink.stage(ROWS, None, gone, 0)
    (old,) = staged_tables(uri)
    live = [sink.stage(ROWS, None, slow, i) for i in range(2)]
    aged = [age(uri, name, days=8) for name in (old, live[0].name)]
    assert commit(sink, Batch("new", 0))
    assert sorted(staged_tables(uri)) == sorted([aged[1], live[1].name])
    assert sink.commit(live[1:], slow)
    assert staged_tables(uri) == []


@pytest.mark.timeout(60)
def test_a_backup_that_locks_staging_tables_does_not_block_the_query(uri: str) -> None:
    """pg_dump holds a lock on every table it found; dropping one waits for its end."""
    sink = open_sink("postgresql", uri=uri, table="facts", patience=3)
    staged = [sink.stage(ROWS, None, BATCH, 0)]
    with Ghost(uri, f"SELECT * FROM {staged[0].name}"):
        assert sink.commit(staged, BATCH)
        assert staged_tables(uri) == [staged[0].name]
    later = Batch("query-1", 1)
    assert commit(sink, later)
    assert staged_tables(uri) == []
    assert query(uri, "SELECT count(*) FROM facts") == [(6,)]


def test_a_ledger_of_another_format_is_refused(uri: str) -> None:
    sink = open_sink("postgresql", uri=uri, table="facts", patience=5)
    assert commit(sink)
    assert query(uri, "SELECT format FROM semistream_ledger") == [(1,)]
    execute(uri, "UPDATE semistream_ledger SET format = 2")
    for number in (0, 1):
        with pytest.raises(ss.SemistreamError, match="format version 2"):
            commit(sink, Batch("query-1", number))
    execute(uri, "ALTER TABLE semistream_ledger DROP COLUMN format")
    with pytest.raises(ss.SemistreamError, match=r"no column format.*ALTER TABLE"):
        commit(sink, Batch("query-1", 1))
    assert query(uri, "SELECT count(*) FROM facts") == [(3,)]


def test_a_commit_is_durable_despite_asynchronous_commits(uri: str) -> None:
    """A role may have synchronous_commit off; Spark never repeats a batch that it thinks done."""
    role = f"lax_{uuid.uuid4().hex[:8]}"
    execute(
        uri,
        f"CREATE ROLE {role} LOGIN SUPERUSER",
        f"ALTER ROLE {role} SET synchronous_commit = off",
        "CREATE TABLE facts (n bigint, waits text DEFAULT current_setting('synchronous_commit'))",
    )
    assert commit(
        open_sink("postgresql", uri=uri.replace("postgres:@", f"{role}:@"), table="facts")
    )
    assert query(uri, "SELECT DISTINCT waits FROM facts") == [("on",)]


def test_staging_table_names_are_not_truncated(uri: str) -> None:
    """A truncated name would never be found again."""
    sink = open_sink("postgresql", uri=uri, table="facts", patience=5)
    batch = Batch("query-1", 10**9)
    staged = sink.stage(ROWS, None, batch, 99_999)
    assert len(staged.name) <= 63
    assert sink.commit([staged], batch)
    assert staged_tables(uri) == []
    assert query(uri, "SELECT count(*) FROM facts") == [(3,)]
