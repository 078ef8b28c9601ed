"""The runs that this Python worker keeps warm between tasks.

A run is checked out for one task and returned when that task has drained it, so between tasks it
holds only master rows. If a task fails, or its consumer stops reading, its run is closed and the
next task opens a new one. Losing a run loses cached rows, never stream rows.

A thread of the worker closes runs whose memory other workers request, and runs that were idle for
a minute, which is how long Spark keeps idle workers. The thread survives errors: it logs the first
one and continues.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from semistream.spark.leases import Ledger, executor_folder, open_pipe

_LOG = logging.getLogger(__name__)
IDLE_SECONDS = 60.0
_PAUSE = 0.1  # seconds after an error, so that a persistent one does not busy-loop
_GROWTH = 2  # a run is reopened when its fair share is this many times its present share


class Closeable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closeable)


@dataclass
class _Entry(Generic[C]):
    ledger: Ledger
    runs: C | None = None
    busy: bool = False
    wanted: bool = False
    used: float = field(default_factory=time.monotonic)


class Registry:
    """The runs of one worker process, by name of the budget."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = root
        self._entries: dict[str, _Entry[Any]] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._has_logged = False

    @contextlib.contextmanager
    def checkout(
        self, name: str, budget: int, slots: int, make: Callable[[int], C]
    ) -> Iterator[tuple[C, bool]]:
        """Yields the warm run of this name or a new ``make(bytes)``, and whether it is warm."""
        entry = self._take(name, budget, slots)
        try:
            held = entry.ledger.held
            if entry.runs is not None and entry.ledger.fair_share() >= _GROWTH * held:
                self._close(entry)
            warm = entry.runs is not None
            if entry.runs is None:
                entry.runs = make(entry.ledger.acquire())
            yield entry.runs, warm
        except BaseException:
            with self._logging_errors():  # keep the task's own exception
                self._close(entry)
            raise
        finally:
            with self._lock:
                entry.busy = False
                entry.used = time.monotonic()
                if entry.wanted:
                    with self._logging_errors():
                        self._close(entry)

    def held(self) -> dict[str, int]:
        """Bytes that this worker may use now, by budget."""
        with self._lock:
            return {name: entry.ledger.held for name, entry in self._entries.items()}

    def close(self) -> None:
        """Close all runs that no task is using."""
        self._release_runs(lambda name, entry: True)

    def _take(self, name: str, budget: int, slots: int) -> _Entry[Any]:
        with self._lock:
            entry = self._entries.get(name)
            if entry is None:
                root = self._root or executor_folder()
                self._start_thread(root)
                entry = self._entries[name] = _Entry(Ledger(root / name, budget, slots))
            entry.busy = True
        return entry

    @staticmethod
    def _close(entry: _Entry[Any]) -> None:
        runs, entry.runs, entry.wanted = entry.runs, None, False
        try:
            if runs is not None:
                runs.close()
        finally:
            if entry.ledger.held:
                import pyarrow as pa

                pa.default_memory_pool().release_unused()
                entry.ledger.release()

    def _release_runs(self, chosen: Callable[[str, _Entry[Any]], bool]) -> None:
        with self._lock:
            for name, entry in list(self._entries.items()):
                if not chosen(name, entry):
                    continue
                if entry.busy:
                    entry.wanted = True
                else:
                    with self._logging_errors():
                        self._close(entry)

    def _expire_idle(self) -> None:
        limit = time.monotonic() - IDLE_SECONDS
        with self._lock:
            for name, entry in list(self._entries.items()):
                if not entry.busy and entry.used < limit:
                    del self._entries[name]
                    with self._logging_errors():
                        self._close(entry)
                    with self._logging_errors():
                        entry.ledger.close()

    def _start_thread(self, root: Path) -> None:
        if self._thread is None:
            pipe = open_pipe(root)
            self._thread = threading.Thread(
                target=self._listen, args=(pipe,), name="semistream-registry", daemon=True
            )
            self._thread.start()

    def _listen(self, pipe: int) -> None:
        while True:
            try:
                ready, _, _ = select.select([pipe], [], [], IDLE_SECONDS / 12)
                if ready:
                    with contextlib.suppress(BlockingIOError):
                        requested = set(os.read(pipe, 1 << 16).decode().split())
                        self._release_runs(lambda name, _: name in requested)  # noqa: B023
            except Exception:
                self._log_first_error()
                time.sleep(_PAUSE)
            self._expire_idle()

    @contextlib.contextmanager
    def _logging_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            self._log_first_error()

    def _log_first_error(self) -> None:
        """Log the first error only; a repeated one would fill the executor's log."""
        if not self._has_logged:
            self._has_logged = True
            _LOG.warning("idle runs cannot be released", exc_info=True)


REGISTRY = Registry()
