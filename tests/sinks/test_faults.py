"""Processes are really killed; the warehouse ends up with exactly the naive join."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from servers import execute, postgres_server
from sinks.jobs import CHANGED, ROWS, Job, make_job, until

pytest.importorskip("pyspark")
psutil = pytest.importorskip("psutil")


@pytest.fixture
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    """A job into each warehouse; PostgreSQL by the sink and from ``foreachBatch``."""
    if request.param not in ("postgresql", "foreach"):
        return make_job(tmp_path, request.param)
    url = request.getfixturevalue("postgres").get_uri()
    execute(url, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    return make_job(tmp_path, request.param, url)


def into(*warehouses: str, long: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    """A test for each warehouse; those in ``long`` are marked long."""
    further = [pytest.param(name, marks=pytest.mark.long) for name in long]
    return pytest.mark.parametrize("job", [*warehouses, *further], indirect=True)


def died(job: Job, accident: str) -> str:
    """Run until the accident."""
    code, errors = job.run(accident)
    assert code != 0, f"{accident} did not happen:\n{errors}"
    assert job.happened(accident), errors
    return errors


@pytest.mark.slow
@pytest.mark.timeout(600)
@into("parquet", "postgresql", long=("delta", "foreach"))
def test_drivers_killed_one_after_another(job: Job, two_hosts: Any, sessions: Any) -> None:
    """The last driver is a session that tests share, because starting one is slow."""
    died(job, "before:1")
    assert len(job.read()) == ROWS
    job.upsert_from(2)  # between an attempt of batch 1 and its replay
    died(job, "after:2")
    assert len(job.read()) == 3 * ROWS
    job.in_session(sessions.faults)
    job.start(two_hosts).awaitTermination()
    job.check()
    job.start(two_hosts).awaitTermination()  # no new input: no new rows
    job.check()


@pytest.mark.slow
@pytest.mark.timeout(600)
@into("delta", "foreach", long=("parquet", "postgresql"))
def test_killed_workers_and_executors(job: Job, two_hosts: Any, sessions: Any) -> None:
    """One query on two executors: it survives all faults without a restart."""
    pq.write_table(CHANGED, job.folder / "changed.parquet")
    job.changes_from(4)
    job.in_session(sessions.faults)
    accidents = ("worker:1", "executor:2", "upsert:3", "half:4")
    job.start(two_hosts, *accidents).awaitTermination()
    for accident in accidents:
        assert job.happened(accident), f"{accident} did not happen"
    job.check()


@pytest.mark.slow
@pytest.mark.timeout(600)
@into("parquet", "postgresql", long=("delta",))
def test_a_paused_driver_resumes_beside_its_successor(
    job: Job, two_hosts: Any, sessions: Any
) -> None:
    """A paused machine: it resumes in the middle of a commit that its successor has completed."""
    with job.beside("freeze:1") as zombie:
        until(lambda: stopped(job, zombie))
        assert len(job.read()) == ROWS
        job.in_session(sessions.faults)
        job.start(two_hosts).awaitTermination()
        job.check()
        for pid in job.frozen():
            os.kill(pid, signal.SIGCONT)
        # Spark may or may not notice that another driver wrote the checkpoint
        zombie.wait(timeout=120)
        job.check()
    job.feed(1)
    job.start(two_hosts).awaitTermination()
    job.check()


def stopped(job: Job, zombie: Any) -> bool:
    assert zombie.poll() is None, (job.folder / "stderr").read_text()[-3000:]
    return job.happened("freeze:1") and all(
        psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in job.frozen()
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_postgres_that_restarts(tmp_path: Path, two_hosts: Any, sessions: Any) -> None:
    from pyspark.errors import StreamingQueryException

    pgserver = pytest.importorskip("pgserver")
    with postgres_server() as server:
        url, folder = server.get_uri(), server.pgdata
        job = Job(tmp_path, "postgresql", url)
        job.in_session(sessions.faults)
        query = job.start(two_hosts, "wait:2")
        until(lambda: job.happened("wait:2"))
        server.cleanup()
        job.go()
        with pytest.raises(StreamingQueryException, match="cannot be written"):
            query.awaitTermination()
        again = pgserver.get_server(folder)
        try:
            job.check(batches=2)
            job.start(two_hosts).awaitTermination()
            job.check()
        finally:
            again.cleanup()
