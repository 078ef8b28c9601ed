"""Tasks that take turns at every file operation, in an order that a seed decides.

Only one task runs at a time. Before each operation of :class:`~semistream.master.files.Files` the
scheduler may hand the turn to another one. A task may also be killed at an operation: from then on
none of its operations has an effect, so what its clean-up code does has none either, and its
locks are freed as its descriptors close. The same seed gives the same schedule.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO
from unittest import mock

from semistream.master.files import Files

Task = Callable[[], object]


class Killed(BaseException):
    """Raised in a task at the operation at which it is killed, and at all that follow."""


@dataclass(eq=False)
class _Turn:
    """One task in a schedule."""

    task: Task
    go: threading.Lock  # held until it is this task's turn
    operations_left: int | None  # None: it is never killed
    outcome: object = None
    locks: list[tuple[int, int]] = field(default_factory=list)  # descriptor, inode

    def free_locks(self) -> None:
        """As the system does when a process dies; one that was closed may have been reused."""
        for descriptor, inode in self.locks:
            with contextlib.suppress(OSError):
                if os.fstat(descriptor).st_ino == inode:
                    os.close(descriptor)


def _taken() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


class Scheduler:
    """Runs schedules one after the other on threads that are kept."""

    def __init__(self) -> None:
        self._threads: list[_Worker] = []
        self._turns: list[_Turn] = []
        self._waiting: list[_Turn] = []
        self._current: _Turn | None = None
        self._done = _taken()
        self.operations = 0

    def run(self, tasks: Sequence[Task], seed: int, kill: Sequence[int] = ()) -> list[object]:
        """What each task returned or raised; tasks whose number is in ``kill`` are killed."""
        self._chance = random.Random(seed)
        self._restless = self._chance.choice([0.03, 0.1, 0.3, 0.7])
        self._turns = [
            _Turn(task, _taken(), self._chance.randrange(60) if i in kill else None)
            for i, task in enumerate(tasks)
        ]
        self._waiting = list(self._turns)
        while len(self._threads) < len(tasks):
            self._threads.append(_Worker(self))
        for worker, turn in zip(self._threads, self._turns, strict=False):
            worker.take(turn)
        self._next()
        self._done.acquire()
        self._current = None
        return [turn.outcome for turn in self._turns]

    def pause(self) -> None:
        """Called before each file operation; outside of a schedule it does nothing."""
        current = self._current
        if current is None:
            return
        self.operations += 1
        if current.operations_left is not None:
            if current.operations_left <= 0:
                raise Killed
            current.operations_left -= 1
        if len(self._waiting) > 1 and self._chance.random() < self._restless:
            self._hand_over(current)

    def wait(self) -> None:
        """Yield to other tasks: a lock that this task needs is held."""
        current = self._current
        assert current is not None
        assert len(self._waiting) > 1, "deadlock: the only remaining task waits"
        self._hand_over(current)

    def locked(self, descriptor: int) -> int:
        if self._current is not None:
            self._current.locks.append((descriptor, os.fstat(descriptor).st_ino))
        return descriptor

    def _hand_over(self, current: _Turn) -> None:
        other = self._chance.choice([turn for turn in self._waiting if turn is not current])
        self._current = other
        other.go.release()
        current.go.acquire()

    def _next(self) -> None:
        if not self._waiting:
            self._done.release()
            return
        self._current = self._chance.choice(self._waiting)
        self._current.go.release()

    def perform(self, turn: _Turn) -> None:
        turn.go.acquire()
        try:
            turn.outcome = turn.task()
        except BaseException as error:
            turn.outcome = error
            if isinstance(error, Killed):
                turn.free_locks()
        self._waiting.remove(turn)
        self._next()

    def close(self) -> None:
        for worker in self._threads:
            worker.take(None)


class _Worker:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._ready = _taken()
        self._turn: _Turn | None = None
        threading.Thread(target=self._work, daemon=True).start()

    def take(self, turn: _Turn | None) -> None:
        self._turn = turn
        self._ready.release()

    def _work(self) -> None:
        while True:
            self._ready.acquire()
            if self._turn is None:
                return
            self._scheduler.perform(self._turn)


class ScheduledFiles(Files):
    """The real file system, but nothing is synced, and each operation waits for its turn.

    Reading, listing and creating are spelled in the way that costs the least for small files.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def list(self, folder: Path) -> list[str]:
        self._scheduler.pause()
        return sorted(os.listdir(folder))

    def read(self, path: Path) -> bytes:
        self._scheduler.pause()
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return os.read(descriptor, 1 << 20)
        finally:
            os.close(descriptor)

    def create(self, path: Path) -> BinaryIO:
        self._scheduler.pause()
        return open(path, "xb")

    def sync(self, file: BinaryIO) -> None:
        self._scheduler.pause()
        file.flush()

    def sync_folder(self, folder: Path) -> None:
        self._scheduler.pause()

    def lock(self, path: Path, wait: bool) -> int | None:
        self._scheduler.pause()
        if not wait:
            taken = super().lock(path, wait)
            return taken if taken is None else self._scheduler.locked(taken)
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT, 0o644)
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return self._scheduler.locked(descriptor)
            try:
                self._scheduler.wait()
            except BaseException:
                os.close(descriptor)
                raise


@contextlib.contextmanager
def seeded_names(chance: random.Random) -> Iterator[None]:
    """Names are drawn from the seed, too: folders are listed in their order."""

    def drawn() -> uuid.UUID:
        return uuid.UUID(int=chance.getrandbits(128), version=4)

    with mock.patch("uuid.uuid4", drawn):
        yield


def _in_turn(name: str) -> Any:
    operation = getattr(Files, name)

    def call(self: ScheduledFiles, *args: Any, **kwargs: Any) -> Any:
        self._scheduler.pause()
        return operation(self, *args, **kwargs)

    return call


for _name, _member in vars(Files).items():
    if not _name.startswith("_") and callable(_member) and _name not in vars(ScheduledFiles):
        setattr(ScheduledFiles, _name, _in_turn(_name))
