"""Accidents on order, in every Python process of a job that has this folder on its path.

``SEMISTREAM_ACCIDENTS`` is ``kind:batch``, several separated by commas, and they leave a marker
file ``kind-batch`` in the folder ``SEMISTREAM_MARKERS``: each happens once.

- ``before``: driver and JVM are killed when batch N is staged and about to be committed
- ``after``: ... when it has just been committed, and Spark does not know yet

The others happen to the first task that stages batch N, when half of its rows are written:

- ``half``: the write fails
- ``worker``: its Python worker is killed
- ``executor``: its executor is killed
- ``upsert``: the master table moves on, and the attempt fails
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(os.environ.get("SEMISTREAM_MARKERS", "."))


def _kill_driver() -> None:
    for pid in map(int, (FOLDER / "pids").read_text().split()):
        os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _fail() -> None:
    raise OSError("the disk is full, says the test")


def _kill_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_executor() -> None:
    """The parent of the daemon that forked this worker is the executor's JVM."""
    stat = Path(f"/proc/{os.getppid()}/stat").read_text()
    os.kill(int(stat.rsplit(")", 1)[1].split()[1]), signal.SIGKILL)
    time.sleep(60)


def _upsert() -> None:
    import pyarrow.parquet as pq

    import semistream as ss

    ss.MasterTable.open(FOLDER / "master").upsert(pq.read_table(FOLDER / "changed.parquet"))
    raise RuntimeError("this attempt fails, its retry must see what it saw")


_HALF_WAY: dict[str, Callable[[], None]] = {
    "half": _fail,
    "worker": _kill_worker,
    "executor": _kill_executor,
    "upsert": _upsert,
}


def _arm(orders: list[str]) -> None:
    from semistream.sinks.delta import DeltaSink
    from semistream.sinks.parquet import ParquetSink
    from semistream.sinks.postgresql import PostgresWarehouse

    def happens(kind: str, batch: object) -> bool:
        order = f"{kind}:{batch.number}"  # type: ignore[attr-defined]
        if order not in orders:
            return False
        try:
            os.close(os.open(FOLDER / order.replace(":", "-"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def interrupted(rows, deed):  # type: ignore[no-untyped-def]
        for part in rows:
            yield part.slice(0, part.num_rows // 2)
            deed()

    for sink in (DeltaSink, ParquetSink, PostgresWarehouse):
        commit, stage = sink.commit, sink.stage

        def dying_commit(self, staged, batch, commit=commit):  # type: ignore[no-untyped-def]
            if happens("before", batch):
                _kill_driver()
            result = commit(self, staged, batch)
            if happens("after", batch):
                _kill_driver()
            return result

        def failing_stage(self, rows, schema, batch, partition, stage=stage):  # type: ignore[no-untyped-def]
            for kind, deed in _HALF_WAY.items():
                if happens(kind, batch):
                    rows = interrupted(rows, deed)
            return stage(self, rows, schema, batch, partition)

        sink.commit, sink.stage = dying_commit, failing_stage  # type: ignore[method-assign]


if os.environ.get("SEMISTREAM_ACCIDENTS"):
    _arm(os.environ["SEMISTREAM_ACCIDENTS"].split(","))
