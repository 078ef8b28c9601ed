"""Accidents on order, in every Python process of a job that has this folder on its path.

``SEMISTREAM_ACCIDENT`` is ``kind:batch:marker``. Each happens once: the marker file says so.

- ``before``: driver and JVM are killed when batch N is staged and about to be committed
- ``after``: ... when it has just been committed, and Spark does not know yet
- ``half``: the first task that stages batch N fails after some of its rows
"""

import os
import signal
from pathlib import Path


def _arm(kind: str, number: int, marker: Path) -> None:
    from semistream.sinks.delta import DeltaSink
    from semistream.sinks.parquet import ParquetSink
    from semistream.sinks.postgresql import PostgresWarehouse

    def happens(batch: object) -> bool:
        if batch.number != number or marker.exists():  # type: ignore[attr-defined]
            return False
        marker.touch()
        return True

    def kill() -> None:
        for pid in map(int, Path(os.environ["SEMISTREAM_PIDS"]).read_text().split()):
            os.kill(pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    for sink in (DeltaSink, ParquetSink, PostgresWarehouse):
        commit, stage = sink.commit, sink.stage

        def dying_commit(self, staged, batch, commit=commit):  # type: ignore[no-untyped-def]
            if kind == "before" and happens(batch):
                kill()
            result = commit(self, staged, batch)
            if kind == "after" and happens(batch):
                kill()
            return result

        def failing_stage(self, rows, schema, batch, partition, stage=stage):  # type: ignore[no-untyped-def]
            def half():  # type: ignore[no-untyped-def]
                for part in rows:
                    yield part.slice(0, part.num_rows // 2)
                    raise OSError("the disk is full, says the test")

            if kind == "half" and happens(batch):
                return stage(self, half(), schema, batch, partition)
            return stage(self, rows, schema, batch, partition)

        sink.commit, sink.stage = dying_commit, failing_stage  # type: ignore[method-assign]


if os.environ.get("SEMISTREAM_ACCIDENT"):
    _kind, _number, _marker = os.environ["SEMISTREAM_ACCIDENT"].split(":", 2)
    _arm(_kind, int(_number), Path(_marker))
