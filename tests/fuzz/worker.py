"""A process that runs worlds of cases one after the other, and how its parent watches it."""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import semistream as ss
from fuzz.case import Case
from fuzz.faults import Disk
from fuzz.world import World

CASES_PER_WORLD = 40
HANGS = 120.0  # a case that takes more seconds hangs
NAMES = list(ss.ALGORITHMS)
_WORLD, _CASE = len(NAMES), len(NAMES) + 1  # in the tally, behind the counts of the joins


@contextlib.contextmanager
def scratch() -> Iterator[tuple[Path, bool]]:
    """A folder in memory if available, and whether it supports direct reads."""
    memory = Path("/dev/shm")
    where = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="semistream-fuzz-", dir=where) as folder:
        probe = Path(folder) / "probe"
        probe.write_bytes(bytes(4096))
        try:
            os.close(os.open(probe, os.O_RDONLY | os.O_DIRECT))
        except (OSError, AttributeError):
            yield Path(folder), False
        else:
            yield Path(folder), True


def run_world(
    seed: int, cases: Iterable[int], disk: Disk, each: Callable[[Case, bool], object]
) -> None:
    """Run these cases of a world; ``each`` is called before and after each of them."""
    with scratch() as (folder, direct):
        world = World(seed, folder)
        for number in cases:
            case = Case.draw(world, number, direct)
            each(case, False)
            try:
                case.run(disk)
            except Exception as error:
                raise AssertionError(f"case {case.seed}: {case}") from error
            each(case, True)


def work(seeds: Any, tally: Any, report: Any) -> None:
    """A worker: one world after the other."""
    os.fsync = lambda descriptor: None  # no power failures here
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    parent = os.getppid()
    counted = {name: place for place, name in enumerate(NAMES)}

    def each(case: Case, done: bool) -> None:
        if stopped:
            sys.exit()  # exit between cases, so that the folder is removed
        if done:
            tally[counted[case.algorithm]] += 1
        else:
            tally[_WORLD], tally[_CASE] = case.world.seed, case.number

    disk = Disk()
    try:
        with disk.installed():
            for seed in seeds:
                if os.getppid() != parent:
                    return  # the parent has exited
                tally[_WORLD], tally[_CASE] = seed, 0
                run_world(seed, range(CASES_PER_WORLD), disk, each)
    except (KeyboardInterrupt, SystemExit):
        pass
    except BaseException:
        report.send(traceback.format_exc())


class Worker:
    """A worker process, its progress, and its failure report."""

    def __init__(self, seeds: Any) -> None:
        context = mp.get_context("spawn")
        self.tally = context.Array("q", len(NAMES) + 2, lock=False)
        self.inbox, outbox = context.Pipe(duplex=False)
        self.process = context.Process(target=work, args=(seeds, self.tally, outbox), daemon=True)
        self.process.start()
        self._seen: list[int] = []
        self._since = time.monotonic()

    @property
    def counts(self) -> list[int]:
        return list(self.tally[: len(NAMES)])

    @property
    def at(self) -> str:
        return f"{self.tally[_WORLD]}.{self.tally[_CASE]}"

    def failure(self) -> str | None:
        """The failure report; None if nothing failed."""
        with contextlib.suppress(EOFError):  # it died without a report
            if self.inbox.poll():
                return str(self.inbox.recv())
        if not self.process.is_alive():
            self.process.join()
            return f"the process ended with {self.process.exitcode}\n"
        if self._seen != list(self.tally):
            self._seen, self._since = list(self.tally), time.monotonic()
        if time.monotonic() - self._since > HANGS:
            return f"the case takes more than {HANGS:.0f} s\n"
        return None

    def stop(self) -> None:
        self.process.terminate()
        self.process.join(10)
        self.process.kill()  # if it hangs
        self.process.join()
