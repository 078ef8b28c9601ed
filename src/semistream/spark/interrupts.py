"""Ctrl-C while Spark works: noted, and raised between two calls into the JVM.

A call into the JVM that is cut in the middle leaves its connection unusable, and Py4J and the JVM
print errors of their own.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def noted_interrupts() -> Iterator[threading.Event]:
    """Ctrl-C sets the event instead of raising; a second one raises at once, and ends logging."""
    noted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return

    def note(*_: object) -> None:
        if noted.is_set():
            logging.disable(logging.ERROR)  # Py4J logs the call that this cuts, with tracebacks
            raise KeyboardInterrupt
        noted.set()

    before = signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt at the end of the block; a second one at once."""
    with noted_interrupts() as noted:
        yield
    if noted.is_set():
        raise KeyboardInterrupt
