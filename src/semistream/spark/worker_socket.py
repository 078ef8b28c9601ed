"""Spark's connection to its Python worker: acknowledge what has arrived, at once.

Spark sends a task and its first rows in separate writes, over a loopback connection that waits
with the second until the first is acknowledged (Nagle's algorithm). A worker has nothing to send
until it has rows, so Linux would acknowledge only after 40 ms: more than a small micro-batch takes.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path

_OPEN_FILES = Path("/proc/self/fd")
_LOOPBACK = ("127.", "::1", "::ffff:127.")


def acknowledge_at_once() -> None:
    """Send pending acknowledgements of this process's loopback connections. Linux only; elsewhere,
    and with Unix domain sockets, there is nothing to do."""
    if not hasattr(socket, "TCP_QUICKACK"):
        return
    with contextlib.suppress(OSError):
        for name in os.listdir(_OPEN_FILES):
            with contextlib.suppress(OSError):  # closed meanwhile, or not connected
                _acknowledge(int(name))


def _acknowledge(descriptor: int) -> None:
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return
    with socket.socket(fileno=os.dup(descriptor)) as found:
        is_tcp = found.family in (socket.AF_INET, socket.AF_INET6)
        is_stream = is_tcp and found.type == socket.SOCK_STREAM
        if is_stream and found.getpeername()[0].startswith(_LOOPBACK):
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
