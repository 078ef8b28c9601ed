"""The job of the fault tests: input, a master table, a warehouse, and its expected rows."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import naive
import semistream as ss
from servers import query
from sinks import job as streaming

HERE = Path(__file__).parent
FILES, ROWS = 5, 400
MASTER = pa.table({"k": range(1000), "v": [f"value {i}" for i in range(1000)]})
CHANGED = MASTER.slice(0, 500).set_column(1, "v", [[f"new {i}" for i in range(500)]])


class Job:
    """A folder with input and master table, and the job that runs on it.

    It runs in a separate process, which may be killed (:meth:`run`, :meth:`beside`), or in a
    session that tests share (:meth:`start`); faults are requested in the folder ``markers``.
    """

    def __init__(
        self,
        folder: Path,
        output: str,
        url: str = "-",
        way: str = "sink",
        files: int = FILES,
        first: int = 0,
    ) -> None:
        self.folder, self.output, self.url, self.way = folder, output, url, way
        self.markers = folder
        self.stream = pa.table({"n": pa.array([], pa.int64()), "k": pa.array([], pa.int64())})
        self.seen: list[pa.Table] = []  # the master table as each batch must see it
        self.first = first
        (folder / "in").mkdir()
        self.feed(files)
        self.master = ss.MasterTable.build(MASTER, folder / "master", key="k")

    def feed(self, files: int) -> None:
        for i in range(len(self.seen), len(self.seen) + files):
            random = np.random.default_rng(self.first + i)
            numbers = np.arange(ROWS) + self.first + i * ROWS
            rows = pa.table({"n": numbers, "k": random.integers(-50, 1100, ROWS)})
            hidden, file = self.folder / f".{i}", self.folder / "in" / f"{i}.parquet"
            pq.write_table(rows, hidden)
            os.utime(hidden, (i, i))  # Spark takes the oldest first
            hidden.rename(file)
            self.stream = pa.concat_tables([self.stream, rows])
            self.seen.append(MASTER)

    # -- in a process of its own -----------------------------------------------------------

    def run(self, *accidents: str, master: str = "local[2]") -> tuple[int, str]:
        self.order(*accidents)
        # Into a file: orphaned workers would hold a pipe open for a minute after their driver.
        with open(self.folder / "stderr", "w+") as errors:
            code = self._process(errors, master).wait(timeout=180)
            errors.seek(0)
            return code, errors.read()

    @contextlib.contextmanager
    def beside(self, *accidents: str) -> Iterator[subprocess.Popen[bytes]]:
        """The job in the background; it is terminated afterwards."""
        self.order(*accidents)
        with open(self.folder / "stderr", "w+") as errors:
            process = self._process(errors, "local[2]")
            try:
                yield process
            finally:
                for pid in self.pids():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, 9)
                process.wait(timeout=60)

    def pids(self) -> list[int]:
        """The JVM of a job in a process of its own, and that process."""
        file = self.folder / "pids"
        return [int(pid) for pid in file.read_text().split()] if file.exists() else []

    def frozen(self) -> list[int]:
        """The processes that ``freeze:1`` stopped: driver, JVM, and the committing process."""
        return sorted({*self.pids(), int((self.folder / "freeze-1").read_text())})

    def _process(self, errors: Any, master: str) -> subprocess.Popen[bytes]:
        paths = [str(HERE / "inject"), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(p for p in paths if p),
            "SEMISTREAM_MARKERS": str(self.markers),
        }
        arguments = [str(self.folder), self.output, self.url, self.way, master]
        return subprocess.Popen(
            [sys.executable, str(HERE / "job.py"), *arguments],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )

    # -- in a session ----------------------------------------------------------------------

    def in_session(self, faults: Path) -> None:
        """Request faults in the session's folder from now on, and clear old requests."""
        for old in faults.iterdir():
            old.unlink()
        self.markers = faults
        for name in ("master", "changed.parquet"):
            (faults / name).symlink_to(self.folder / name)

    def start(self, spark: Any, *accidents: str, keep: bool = False) -> Any:
        """The running query; it ends when all input is in the warehouse.

        ``keep``: processes that wait since an earlier run keep waiting.
        """
        if not keep:
            self.order(*accidents)
        return streaming.start(spark, self.folder, self.output, self.url, self.way)

    # -- accidents -------------------------------------------------------------------------

    def order(self, *accidents: str) -> None:
        (self.markers / "go").unlink(missing_ok=True)
        (self.markers / "orders").write_text(",".join(accidents))

    def happened(self, accident: str) -> bool:
        return (self.markers / accident.replace(":", "-")).exists()

    def go(self) -> None:
        """Resume waiting processes."""
        (self.markers / "go").touch()

    def move(self, name: str, folder: Path) -> None:
        """Move ``master`` or ``out`` to another folder."""
        folder.mkdir(exist_ok=True)
        if (self.folder / name).exists():
            shutil.copytree(self.folder / name, folder, dirs_exist_ok=True)
            shutil.rmtree(self.folder / name)
        (self.folder / name).symlink_to(folder)

    def share(self, name: str, other: Job) -> None:
        """Use the ``master`` or ``out`` of another job."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
        (self.folder / name).symlink_to(other.folder / name)

    # -- what must come of it --------------------------------------------------------------

    def upsert_from(self, batch: int) -> None:
        """Change many rows; batches before this one have started, and must not see it."""
        self.master = self.master.upsert(CHANGED)
        self.changes_from(batch)

    def changes_from(self, batch: int) -> None:
        rest = len(self.seen) - batch
        self.seen[batch:] = [pa.concat_tables([CHANGED, MASTER.slice(500)])] * rest

    def expected(self, batches: int | None = None) -> naive.Rows:
        rows: naive.Rows = []
        for i, master in enumerate(self.seen[:batches]):
            rows += naive.join(self.stream.slice(i * ROWS, ROWS), master, "k", "left")
        return rows

    def read(self) -> naive.Rows:
        if self.url != "-":
            return query(self.url, "select * from facts")
        if self.output == "delta":
            from deltalake import DeltaTable

            return naive.rows_of([DeltaTable(self.folder / "out").to_pyarrow_table()])
        return naive.rows_of([pq.read_table(self.folder / "out")])

    def check(self, batches: int | None = None) -> None:
        """Assert that the warehouse has exactly the naive join (of the first ``batches``)."""
        naive.same_rows(self.read(), self.expected(batches))


def make_job(folder: Path, warehouse: str, url: str = "-", **options: Any) -> Job:
    """A job into one of ``parquet``, ``delta``, ``postgresql`` and ``foreach``."""
    if warehouse in ("postgresql", "foreach"):
        way = "foreach" if warehouse == "foreach" else "sink"
        return Job(folder, "postgresql", url, way, **options)
    return Job(folder, warehouse, **options)


def until(true: Callable[[], bool], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)
