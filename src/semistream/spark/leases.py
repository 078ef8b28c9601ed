"""How the Python workers of one executor share one budget.

Spark starts any number of Python workers, keeps idle ones alive, and sends tasks to any of them.
So the budget cannot be divided once: a ledger on the executor's local disk, a folder with one file
per worker, records how many bytes each worker holds::

    <local dir>/semistream/<budget>/lock          held while the ledger is read and written
                                    <pid>.worker  the format's version, and the bytes held;
                                                  locked by its worker while it lives
    <local dir>/semistream/<pid>.ask              a pipe: requests to release memory

When a worker dies for any reason, the operating system drops its lock, and its share is freed. A
worker takes the fair share, ``budget // workers``. If earlier workers took more and that is not
free, it asks them to release theirs, which they do as soon as they are idle. The sum of the ledger
never exceeds the budget.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from semistream.errors import BudgetError, ConfigError
from semistream.memory import format_size

PATIENCE = 60.0  # seconds to wait for the fair share before taking what is free
_POLL = 0.01
_FORMAT = b"semistream-share 1"
_ENTRY = len(_FORMAT) + 21  # the format, a blank, and as many digits as 64 bits can take


class Ledger:
    """One worker's view of one budget.

    ``slots`` is the number of workers that the executor is expected to run at once, so that the
    first one leaves room for the others.
    """

    def __init__(self, folder: Path, budget: int, slots: int) -> None:
        self.folder = folder
        self.budget = budget
        self.slots = max(1, slots)
        self.held = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._own = folder / f"{os.getpid()}.worker"
        with self._locked():
            flags = os.O_CREAT | os.O_RDWR | os.O_TRUNC | os.O_CLOEXEC
            self._descriptor = os.open(self._own, flags, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def fair_share(self) -> int:
        """The bytes of this worker if all workers take equal shares."""
        with self._locked():
            return self._fair(self._others())

    def acquire(self, patience: float = PATIENCE) -> int:
        """Take the fair share. Returns the bytes that were taken."""
        deadline = time.monotonic() + patience
        while True:
            with self._locked():
                others = self._others()
                fair = self._fair(others)
                free = self.budget - sum(others.values())
                late = time.monotonic() > deadline
                if free >= fair or (late and free > 0):
                    self._write(min(free, fair))
                    return self.held
            if late:
                raise BudgetError(
                    f"all of memory={format_size(self.budget)} of this executor is held by "
                    f"{len(others)} other workers, which were busy for {patience:.0f} s; "
                    "raise memory, or run fewer tasks at once"
                )
            for pid, held in others.items():
                if held > fair:
                    request_release(self.folder, pid)
            time.sleep(_POLL)

    def release(self) -> None:
        """Free the bytes; the worker still counts for the fair share."""
        with self._locked():
            self._write(0)

    def close(self) -> None:
        """Leave the ledger."""
        try:
            with self._locked():
                self._own.unlink(missing_ok=True)
        finally:
            os.close(self._descriptor)  # also releases the lock, and so the bytes
            self.held = 0

    def _fair(self, others: dict[int, int]) -> int:
        return self.budget // max(self.slots, len(others) + 1)

    def _write(self, nbytes: int) -> None:
        os.pwrite(self._descriptor, b"%b %-20d" % (_FORMAT, nbytes), 0)
        self.held = nbytes

    def _others(self) -> dict[int, int]:
        """Bytes held by every other live worker; files of dead workers are removed."""
        held = {}
        for path in self.folder.glob("*.worker"):
            if path == self._own:
                continue
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)
            except BlockingIOError:
                held[int(path.stem)] = _parse(path, os.pread(descriptor, _ENTRY, 0))
            finally:
                os.close(descriptor)
        return held

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self.folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _parse(path: Path, entry: bytes) -> int:
    """The bytes that a worker holds; 0 before its first write."""
    form, _, nbytes = entry.rstrip().rpartition(b" ")
    if entry and (form != _FORMAT or not nbytes.isdigit()):
        raise ConfigError(
            f"{path} was written by another release of semistream: {entry!r}; use the same release "
            "in all Python workers of an executor"
        )
    return int(nbytes or 0)


def request_release(folder: Path, pid: int) -> None:
    """Request that a worker of this executor releases its share of a budget when it is idle."""
    with contextlib.suppress(OSError):  # it died, or its pipe is full of requests
        descriptor = os.open(pipe_of(folder.parent, pid), os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(descriptor, folder.name.encode() + b"\n")
        finally:
            os.close(descriptor)


def pipe_of(root: Path, pid: int) -> Path:
    return root / f"{pid}.ask"


def open_pipe(root: Path) -> int:
    """This worker's pipe, for reading. Also open for writing, so that reads never return EOF."""
    root.mkdir(parents=True, exist_ok=True)
    path = pipe_of(root, os.getpid())
    path.unlink(missing_ok=True)
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def executor_folder() -> Path:
    """A folder that only the workers of this executor share."""
    local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    if local and os.path.isdir(local):
        return Path(local) / "semistream"
    import tempfile

    # Without Spark's local folder, workers forked by the same daemon share one.
    return Path(tempfile.gettempdir()) / f"semistream-{os.getuid()}-{os.getppid()}"
