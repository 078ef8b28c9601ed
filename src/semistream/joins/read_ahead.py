"""Threads that read pages ahead of a sweep.

A pool of ``concurrent.futures`` would do, but its futures and conditions cost more processor time
than the read of a page; this is a queue and one lock per read.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any


class Reading:
    """A read that was asked for; ``begun`` is free as soon as a thread has taken it up."""

    __slots__ = ("_done", "_error", "_value", "_work", "begun")

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._done = Lock()
        self._done.acquire()
        self.begun = Lock()
        self.begun.acquire()
        self._value: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        self.begun.release()
        try:
            self._value = self._work()
        except BaseException as error:
            self._error = error
        finally:
            self._done.release()

    def result(self) -> Any:
        """Wait for it; raises what the reading raised."""
        with self._done:
            if self._error is not None:
                raise self._error
            return self._value


class ReadAhead:
    """As many threads as reads may be in flight."""

    def __init__(self, threads: int) -> None:
        self._asked: SimpleQueue[Reading | None] = SimpleQueue()
        self._threads = [
            Thread(target=_serve, args=(self._asked,), name="semistream-read-ahead", daemon=True)
            for _ in range(threads)
        ]
        # A run that nobody closed must not leave its threads behind.
        self._end = weakref.finalize(self, _dismiss, self._asked, threads)
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[], Any]) -> Reading:
        """Hand a read to a thread, and let it begin.

        Where there is one core for all, a thread that is merely woken up would ask the disk only
        when the sweep stops to wait for it.
        """
        reading = Reading(work)
        self._asked.put(reading)
        reading.begun.acquire()
        return reading

    def close(self) -> None:
        """Wait for the reads that are under way."""
        self._end()
        for thread in self._threads:
            thread.join()


def _serve(asked: SimpleQueue[Reading | None]) -> None:
    while (reading := asked.get()) is not None:
        reading.run()


def _dismiss(asked: SimpleQueue[Reading | None], threads: int) -> None:
    for _ in range(threads):
        asked.put(None)
