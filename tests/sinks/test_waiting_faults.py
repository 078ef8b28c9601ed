"""Drivers that are killed while rows are deferred and parked; every row ends up somewhere, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from semistream.overload.keeper import Keeper, Waiting
from semistream.spark.waiting import drain, query_of
from servers import execute
from sinks.job import waiting_options
from sinks.jobs import CHANGED, MASTER, Job
from sinks.test_faults import died

pytest.importorskip("psutil")
LONG = (pytest.mark.slow, pytest.mark.long)


@pytest.fixture
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    if request.param != "postgresql":
        return Job(tmp_path, request.param, way="waiting")
    url = request.getfixturevalue("postgres").get_uri()
    execute(url, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    return Job(tmp_path, request.param, url, way="waiting")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("job", "accidents"),
    [
        pytest.param("parquet", ["before:1", "dead:0"], marks=pytest.mark.slow),
        pytest.param("parquet", ["after:1", "before:2", "after:3"], marks=LONG),
        pytest.param("delta", ["before:1", "after:2", "dead:0"], marks=LONG),
        pytest.param("postgresql", ["before:1", "after:2", "dead:0"], marks=LONG),
    ],
    indirect=["job"],
)
def test_drivers_killed_while_rows_wait(job: Job, accidents: list[str], spark: Any) -> None:
    for accident in accidents:
        died(job, accident)
    job.upsert_from(0)
    small = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(small)
    try:
        job.start(spark).awaitTermination()
    finally:
        spark.conf.set(small, before)
    check_everywhere(job, has_deferred=True)
    options = waiting_options(job.folder, job.output, job.url)
    del options["unmatched"]
    import semistream as ss

    left = drain(
        job.folder / "checkpoint", ss.Lookup(str(job.folder / "master"), on="k"), **options
    )
    assert left["deferred"] == 0
    check_everywhere(job, has_deferred=False)


def check_everywhere(job: Job, has_deferred: bool) -> None:
    """In the warehouse with the right values, among the dead letters, or waiting."""
    values = [dict(zip(*t.to_pydict().values(), strict=True)) for t in (MASTER, CHANGED)]
    keys = dict(zip(*job.stream.to_pydict().values(), strict=True))
    found = []
    for n, k, v in job.read():
        assert k == keys[n]
        assert v in (values[0][k], values[1].get(k))
        found.append(n)
    dead = pq.read_table(job.folder / "dead")["n"].to_pylist()
    from semistream.spark.sink_options import plan_of

    options = waiting_options(job.folder, job.output, job.url)
    texts = {n: str(options[n]) for n in ("output", "path", "url", "table") if n in options}
    sink = plan_of(texts).sink
    keeper = Keeper(Waiting(job.folder / "parked"), sink, query_of(job.folder / "checkpoint"))
    state = keeper.backlog.state(sink.mark(keeper.backlog.query))
    waiting = {"deferred": [], "parked": []}
    for kind, numbers in waiting.items():
        for file in getattr(state, kind):
            rows = pa.Table.from_batches(keeper.backlog.read(file))
            numbers += rows.take(pa.array(file.gone_rows.others()))["n"].to_pylist()
    assert sorted([*found, *dead, *waiting["deferred"], *waiting["parked"]]) == sorted(keys)
    assert all(not 0 <= keys[n] < 1000 for n in [*dead, *waiting["parked"]])
    assert bool(waiting["deferred"]) is has_deferred
