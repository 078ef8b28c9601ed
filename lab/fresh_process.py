"""Measure each cell in a fresh process, so that no cell inherits another's memory."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

Cell = TypeVar("Cell")


def preload() -> None:
    """Have the fork server import the packages, which saves a second per cell."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(["lab.engine_preload"])


def exit_when_terminated() -> None:
    """Let SIGTERM end the benchmark by an exception, so that it cleans up."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))


def run(
    measure: Callable[[Cell], dict[str, Any]], cell: Cell, limit: float | None = None
) -> dict[str, Any]:
    """``measure(cell)`` in a new process.

    If the process dies, the result has an ``error``; if it takes longer than ``limit`` seconds, it
    is ended and the result is ``too_slow``.
    """
    context = multiprocessing.get_context("forkserver")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measure_into, args=(measure, cell, sender))
    process.start()
    sender.close()
    try:
        if not receiver.poll(limit):
            process.terminate()
            process.join()
            return {**vars(cell), "too_slow": f"not done after {limit:g} s"}
        result: dict[str, Any] = receiver.recv()
    except EOFError:
        process.join()
        result = {**vars(cell), "error": f"the process ended with code {process.exitcode}"}
    except BaseException:  # the benchmark was stopped, and its cell is not to go on alone
        process.terminate()
        process.join()
        raise
    process.join()
    return result


def _measure_into(
    measure: Callable[[Cell], dict[str, Any]], cell: Cell, sender: Connection
) -> None:
    sender.send(measure(cell))
