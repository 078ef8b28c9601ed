"""Speculation, executors that come and go, a second query, a stop in mid-commit, a cut file.

All in one session on two hosts. The warehouse ends up with exactly the naive join.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import naive
from servers import execute
from sinks.inject.sitecustomize import mend
from sinks.jobs import CHANGED, Job, make_job, until

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def job(
    request: pytest.FixtureRequest, tmp_path: Path, two_hosts: Any, sessions: Any
) -> Iterator[Job]:
    """A job in the shared session, into a separate warehouse."""
    warehouse, url = request.param, "-"
    if warehouse in ("postgresql", "foreach"):
        url = request.getfixturevalue("postgres").get_uri()
        execute(url, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    job = make_job(tmp_path, warehouse, url, files=3)
    job.in_session(sessions.faults)
    yield job
    job.go()
    for query in two_hosts.streams.active:
        query.stop()


def into(*warehouses: str, long: Sequence[str] = ()) -> pytest.MarkDecorator:
    """A test for each warehouse; those in ``long`` are marked long."""
    further = [pytest.param(name, marks=pytest.mark.long) for name in long]
    return pytest.mark.parametrize("job", [*warehouses, *further], indirect=True)


@into("parquet", "foreach", long=["delta"])
def test_a_task_overtaken_by_a_speculative_attempt(job: Job, two_hosts: Any) -> None:
    """With spark.speculation, two attempts of one task stage their rows at once."""
    query = job.start(two_hosts, "straggle:1")
    until(lambda: job.happened("straggle:1"))
    query.awaitTermination()
    assert not (job.markers / "go").exists(), "the straggler was not overtaken"
    job.check()
    job.go()  # the straggler may end now
    job.feed(1)
    job.start(two_hosts).awaitTermination()
    job.check()


@into("parquet", "postgresql")
def test_executors_that_come_and_go(job: Job, two_hosts: Any) -> None:
    """With dynamic allocation: the ones that hold a batch's tasks are decommissioned."""
    context = two_hosts.sparkContext._jsc.sc()
    query = job.start(two_hosts, "hold:1")
    until(lambda: job.happened("hold:1"))
    before = executors(context)
    info = two_hosts._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo
    backend = context.schedulerBackend()
    for one in before:
        backend.decommissionExecutor(
            one, info("the host is needed elsewhere", two_hosts._jvm.scala.Option.empty()), False,
            False,
        )  # fmt: skip
    job.go()
    query.awaitTermination()
    job.check()
    assert not before & executors(context), "no executor was decommissioned"


def executors(context: Any) -> set[str]:
    ids = context.getExecutorIds()
    return {ids.apply(i) for i in range(ids.size())}


@into("delta", "postgresql", long=["parquet"])
def test_two_queries_with_one_master_table_and_one_warehouse(
    job: Job, two_hosts: Any, sessions: Any
) -> None:
    (job.folder / "second").mkdir()
    other = Job(job.folder / "second", job.output, job.url, job.way, files=3, first=10_000)
    other.markers = job.markers
    job.move("out", job.folder / "both")
    other.move("out", job.folder / "both")
    other.share("master", job)
    queries = [one.start(two_hosts) for one in (job, other)]
    for query in queries:
        query.awaitTermination()
    naive.same_rows(job.read(), job.expected() + other.expected())
    for one in (job, other):
        one.feed(1)
        one.start(two_hosts).awaitTermination()
    naive.same_rows(job.read(), job.expected() + other.expected())


STOPS = [  # PostgreSQL commits in one step
    ("parquet", "inside"),
    ("delta", "between"),
    ("postgresql", "wait"),
    pytest.param("parquet", "wait", marks=pytest.mark.long),
    pytest.param("parquet", "between", marks=pytest.mark.long),
    pytest.param("delta", "inside", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("job", "moment"), STOPS, indirect=["job"])
def test_a_query_stopped_in_the_middle_of_a_commit(job: Job, two_hosts: Any, moment: str) -> None:
    """Spark does not wait for the commit: it may succeed at any time, during the next run."""
    query = job.start(two_hosts, f"{moment}:1")
    until(lambda: job.happened(f"{moment}:1"))
    stop = threading.Thread(target=query.stop)
    stop.start()
    stop.join(timeout=10)
    if not stop.is_alive():  # start a successor, then let the pending commit continue
        successor = job.start(two_hosts, keep=True)
        successor.awaitTermination()
        job.check()
    job.go()
    stop.join(timeout=60)
    assert not stop.is_alive()
    until(lambda: not alive(job.markers / f"{moment}-1"))
    job.start(two_hosts).awaitTermination()
    job.check()
    job.feed(1)
    job.start(two_hosts).awaitTermination()
    job.check()


def alive(marker: Path) -> bool:
    return Path(f"/proc/{marker.read_text()}").exists()


@pytest.mark.parametrize("mended", ["before the retry", "after the query has failed"])
@into("parquet")
def test_a_file_cut_short_while_its_pages_are_mapped(job: Job, two_hosts: Any, mended: str) -> None:
    """Accessing a truncated page kills the worker (SIGBUS); no error can be raised."""
    from pyspark.errors import StreamingQueryException

    job.master.upsert(CHANGED).compact()  # a new file, which no worker has open
    job.changes_from(0)
    at_once = mended == "before the retry"
    query = job.start(two_hosts, "cut:1", *(["mend:1"] if at_once else []))
    if at_once:
        query.awaitTermination()
        assert job.happened("mend:1")
    else:
        with pytest.raises(
            StreamingQueryException, match=r"MasterTableError: page .* is truncated"
        ):
            query.awaitTermination()
        job.check(batches=1)
        mend(job.markers)
        job.start(two_hosts).awaitTermination()
    assert job.happened("cut:1")
    job.check()
