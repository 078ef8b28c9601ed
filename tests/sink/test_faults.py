"""Whoever dies, the warehouse ends up with exactly the naive join: killed for real."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import naive
import semistream as ss
from servers import execute, postgres_server, query

pytest.importorskip("pyspark")
pytest.importorskip("psutil")

HERE = Path(__file__).parent
FILES, ROWS = 5, 400
MASTER = pa.table({"k": range(1000), "v": [f"value {i}" for i in range(1000)]})
CHANGED = MASTER.slice(0, 500).set_column(1, "v", [[f"new {i}" for i in range(500)]])


class Job:
    """A folder with input and master table, and the job that runs on it."""

    def __init__(self, folder: Path, output: str, url: str = "-", way: str = "sink") -> None:
        self.folder, self.output, self.url, self.way = folder, output, url, way
        random = np.random.default_rng(7)
        (folder / "in").mkdir()
        self.stream = pa.table(
            {"n": range(FILES * ROWS), "k": random.integers(-50, 1100, FILES * ROWS)}
        )
        for i in range(FILES):
            file = folder / "in" / f"{i}.parquet"
            pq.write_table(self.stream.slice(i * ROWS, ROWS), file)
            os.utime(file, (i, i))  # Spark takes the oldest first
        self.master = ss.MasterTable.build(MASTER, folder / "master", key="k")
        self.seen = [MASTER] * FILES  # the master table as each batch must see it

    def run(self, *accidents: str, master: str = "local[2]") -> tuple[int, str]:
        paths = [str(HERE / "inject"), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(p for p in paths if p),
            "SEMISTREAM_MARKERS": str(self.folder),
            "SEMISTREAM_ACCIDENTS": ",".join(accidents),
        }
        arguments = [str(self.folder), self.output, self.url, self.way, master]
        # Into a file: orphaned workers would hold a pipe open for a minute after their driver.
        with open(self.folder / "stderr", "w+") as errors:
            code = subprocess.run(
                [sys.executable, str(HERE / "job.py"), *arguments],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                timeout=180,
                check=False,
            ).returncode
            errors.seek(0)
            return code, errors.read()

    def upsert_from(self, batch: int) -> None:
        """Change many rows; batches before this one have begun, and must not see it."""
        self.master = self.master.upsert(CHANGED)
        self.changes_from(batch)

    def changes_from(self, batch: int) -> None:
        self.seen[batch:] = [pa.concat_tables([CHANGED, MASTER.slice(500)])] * (FILES - batch)

    def expected(self) -> naive.Rows:
        rows: naive.Rows = []
        for i, master in enumerate(self.seen):
            rows += naive.join(self.stream.slice(i * ROWS, ROWS), master, "k", "left")
        return rows

    def read(self) -> naive.Rows:
        if self.url != "-":
            return query(self.url, "select * from facts")
        if self.output == "delta":
            from deltalake import DeltaTable

            return naive.rows_of([DeltaTable(self.folder / "out").to_pyarrow_table()])
        return naive.rows_of([pq.read_table(self.folder / "out")])


def died(job: Job, accident: str) -> str:
    """Run until the accident; the rows that a reader saw then are some of the right ones."""
    code, errors = job.run(accident)
    assert code != 0, f"{accident} did not happen:\n{errors}"
    assert (job.folder / accident.replace(":", "-")).exists(), errors
    return errors


def ends_well(job: Job, *accidents: str, master: str = "local[2]") -> None:
    code, errors = job.run(*accidents, master=master)
    assert code == 0, errors[-5000:]
    for accident in accidents:
        assert (job.folder / accident.replace(":", "-")).exists(), f"{accident} did not happen"
    naive.same_rows(job.read(), job.expected())


@pytest.fixture(scope="module")
def postgres() -> Iterator[Any]:
    with postgres_server() as server:
        yield server


@pytest.mark.timeout(200)
def test_a_driver_killed_in_mid_batch(tmp_path: Path) -> None:
    job = Job(tmp_path, "parquet")
    died(job, "before:2")
    assert len(job.read()) == 2 * ROWS
    ends_well(job)


@pytest.fixture(params=["parquet", "delta", "postgresql", "foreach"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    """A job into each warehouse; PostgreSQL by the sink and from ``foreachBatch``."""
    if request.param not in ("postgresql", "foreach"):
        return Job(tmp_path, request.param)
    url = request.getfixturevalue("postgres").get_uri()
    execute(url, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    return Job(tmp_path, "postgresql", url, "foreach" if request.param == "foreach" else "sink")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_drivers_that_die_one_after_the_other(job: Job) -> None:
    died(job, "before:1")
    assert len(job.read()) == ROWS
    job.upsert_from(2)  # between an attempt of batch 1 and its replay
    died(job, "after:2")
    assert len(job.read()) == 3 * ROWS
    message = died(job, "half:3")
    assert "the disk is full, says the test" in message
    assert len(job.read()) == 3 * ROWS
    ends_well(job)
    ends_well(job)  # nothing new: nothing more


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_workers_and_executors_that_die(job: Job) -> None:
    """One query on two executors: it lives through all of it, and nobody starts it again."""
    pq.write_table(CHANGED, job.folder / "changed.parquet")
    job.changes_from(4)
    accidents = ("worker:1", "executor:2", "upsert:3", "half:4")
    ends_well(job, *accidents, master="local-cluster[2,1,1024]")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_postgres_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    pgserver = pytest.importorskip("pgserver")
    with postgres_server() as server:
        url, folder = server.get_uri(), server.pgdata
        job = Job(tmp_path, "postgresql", url)
        died(job, "before:2")
        server.cleanup()
        code, errors = job.run()
        assert code != 0
        assert "cannot be written" in errors
        again = pgserver.get_server(folder)
        try:
            ends_well(job)
        finally:
            again.cleanup()
