"""Fault injection, in every Python process of a job that has this folder on its path.

The file ``orders`` in the folder ``SEMISTREAM_MARKERS`` says ``kind:batch``, several separated
by commas. Each happens once, and leaves a marker file ``kind-batch`` in that folder.

When a batch is staged and about to be committed:

- ``before``: driver and JVM are killed
- ``freeze``: driver and JVM are stopped (SIGSTOP), and this process with them
- ``fill``: the disk behind the link ``disk`` is filled to the last byte
- ``eio``: the next ``fsync`` fails; ``eio2``: the one after it
- ``wait``: it waits for the file ``go``

The same when it is as good as committed:

- ``inside``: waits between the sink's look at what is there and its own entry
- ``between``: waits between that entry and what follows it
- ``after``: driver and JVM are killed when it is committed, and Spark does not know yet
- ``dead:0``: they are killed between a commit and that of the dead letters that belong to it

The others happen to the first task that stages the batch, when half of its rows are written:

- ``half``: the write fails
- ``worker``: its Python worker is killed
- ``executor``: its executor is killed
- ``upsert``: the master table moves on, and the attempt fails
- ``full``: the disk behind the link ``disk`` is filled
- ``hold``: it waits for the file ``go``
- ``straggle``: it waits for its end: another attempt has to take its place

And where a task reads pages:

- ``cut``: the file is cut short just when its pages are mapped
- ``mend``: the file is whole again when the next task begins
"""

import contextlib
import errno
import functools
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ.get("SEMISTREAM_MARKERS", "."))
PATIENCE = 240.0


def happens(kind: str, number: int) -> bool:
    """Whether this fault was requested, and has not happened yet."""
    order = f"{kind}:{number}"
    try:
        if order not in (FOLDER / "orders").read_text().split(","):
            return False
        marker = os.open(FOLDER / order.replace(":", "-"), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except (FileNotFoundError, FileExistsError):
        return False
    os.write(marker, str(os.getpid()).encode())
    os.close(marker)
    return True


def _signal_driver(signum: int) -> None:
    for pid in map(int, (FOLDER / "pids").read_text().split()):
        if pid != os.getpid():
            os.kill(pid, signum)
    os.kill(os.getpid(), signum)


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

    changed = pq.read_table(os.path.realpath(FOLDER / "changed.parquet"))
    ss.MasterTable.open(os.path.realpath(FOLDER / "master")).upsert(changed)
    raise RuntimeError("this attempt fails, its retry must see what it saw")


def _fill() -> None:
    with contextlib.suppress(OSError), open(FOLDER / "disk" / "filler", "ab", 0) as filler:
        while filler.write(bytes(1 << 12)):
            pass


def _wait(patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not (FOLDER / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.02)


def _straggle() -> None:
    _wait()
    raise RuntimeError("no other attempt took the place of this one")


_HALF_WAY: dict[str, Callable[[], None]] = {
    "half": _fail,
    "worker": _kill_worker,
    "executor": _kill_executor,
    "upsert": _upsert,
    "full": _fill,
    "hold": _wait,
    "straggle": _straggle,
}


@contextlib.contextmanager
def _failing_sync(good: int) -> Iterator[None]:
    """After ``good`` successful syncs, the next one fails."""
    sync, left = os.fsync, [good]

    def fsync(descriptor: int) -> None:
        left[0] -= 1
        if left[0] == -1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(descriptor)

    os.fsync = fsync
    try:
        yield
    finally:
        os.fsync = sync


def _around_entry(owner: Any, name: str, current: list[int]) -> None:
    """Pause before and after the call with which a sink commits a batch."""
    entry = getattr(owner, name)

    @functools.wraps(entry)
    def watched(*arguments: Any, **options: Any) -> Any:
        if happens("inside", current[0]):
            _wait()
        result = entry(*arguments, **options)
        if happens("between", current[0]):
            _wait()
        return result

    setattr(owner, name, watched)


def _arm_sinks() -> None:
    from semistream.sinks.delta import DeltaSink
    from semistream.sinks.parquet import ParquetSink
    from semistream.sinks.parquet_log import Log
    from semistream.sinks.postgresql import PostgresWarehouse

    current = [-1]  # the batch that this process commits

    def interrupted(rows, deed):  # type: ignore[no-untyped-def]
        for part in rows:
            yield part.slice(0, part.num_rows // 2)
            deed()
            yield part.slice(part.num_rows // 2)
            break
        yield from rows

    for sink in (DeltaSink, ParquetSink, PostgresWarehouse):
        commit, stage = sink.commit, sink.stage

        def dying_commit(self, staged, batch, mark=None, commit=commit):  # type: ignore[no-untyped-def]
            if batch.query.endswith("-dead"):
                if happens("dead", 0):
                    _signal_driver(signal.SIGKILL)
                return commit(self, staged, batch, mark)
            number = current[0] = batch.number
            if happens("before", number):
                _signal_driver(signal.SIGKILL)
            if happens("freeze", number):
                _signal_driver(signal.SIGSTOP)
            if happens("fill", number):
                _fill()
            if happens("wait", number):
                _wait()
            with contextlib.ExitStack() as stack:
                for good, kind in enumerate(("eio", "eio2")):
                    if happens(kind, number):
                        stack.enter_context(_failing_sync(good))
                result = commit(self, staged, batch, mark)
            if happens("after", number):
                _signal_driver(signal.SIGKILL)
            return result

        def failing_stage(self, rows, schema, batch, partition, stage=stage):  # type: ignore[no-untyped-def]
            for kind, deed in _HALF_WAY.items():
                if happens(kind, batch.number):
                    rows = interrupted(iter(rows), deed)
            return stage(self, rows, schema, batch, partition)

        sink.commit, sink.stage = dying_commit, failing_stage  # type: ignore[method-assign]

    _around_entry(Log, "publish", current)
    with contextlib.suppress(ImportError):
        import deltalake

        _around_entry(deltalake.DeltaTable, "create_write_transaction", current)


def _arm_maps() -> None:
    from semistream.master.local_file import LocalFile
    from semistream.spark.worker import Enrichment

    map_range, enrich = LocalFile.map, Enrichment.__call__
    number = [-1]  # of the batch that this worker joins

    def cut_short(self, begin, length):  # type: ignore[no-untyped-def]
        mapped = map_range(self, begin, length)
        if mapped is not None and happens("cut", number[0]):
            shutil.copyfile(self.path, FOLDER / "whole")
            (FOLDER / "segment").write_text(str(self.path))
            os.truncate(self.path, 0)
        return mapped

    def watched(self, batches):  # type: ignore[no-untyped-def]
        from semistream.spark.batch_version import micro_batch

        batch = micro_batch()
        number[0] = -1 if batch is None else batch.batch
        if (FOLDER / "segment").exists() and happens("mend", number[0]):
            mend()
        return enrich(self, batches)

    LocalFile.map, Enrichment.__call__ = cut_short, watched  # type: ignore[method-assign]


def mend(folder: Path = FOLDER) -> None:
    """Restore a truncated file, in place."""
    with open((folder / "segment").read_text(), "r+b") as segment:
        segment.write((folder / "whole").read_bytes())


if os.environ.get("SEMISTREAM_MARKERS"):
    _arm_sinks()
    _arm_maps()
