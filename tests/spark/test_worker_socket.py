"""A task acknowledges what Spark has sent, so that its rows follow at once."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from semistream.spark.worker_socket import acknowledge_at_once

QUICK = getattr(socket, "TCP_QUICKACK", None)
pytestmark = pytest.mark.skipif(QUICK is None, reason="Linux only")


@pytest.fixture
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a loopback connection."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        server.accept()[0] as other,
    ):
        yield one, other


def quick(end: socket.socket) -> int:
    assert QUICK is not None
    return end.getsockopt(socket.IPPROTO_TCP, QUICK)


def test_connections_acknowledge_at_once(connection: tuple[socket.socket, socket.socket]) -> None:
    assert QUICK is not None
    for end in connection:
        end.setsockopt(socket.IPPROTO_TCP, QUICK, 0)
    assert [quick(end) for end in connection] == [0, 0]
    acknowledge_at_once()
    assert [quick(end) for end in connection] == [1, 1]


def test_a_second_write_does_not_wait(connection: tuple[socket.socket, socket.socket]) -> None:
    """Spark's pattern: a task, then its rows, while the worker sends nothing. The best of a few,
    because another process may take the processor meanwhile."""
    assert QUICK is not None
    worker, spark = connection
    waited = []
    for _ in range(10):
        worker.setsockopt(socket.IPPROTO_TCP, QUICK, 0)
        spark.sendall(b"a task")
        assert worker.recv(100) == b"a task"
        spark.sendall(b"its rows")
        acknowledge_at_once()
        began = time.perf_counter()
        assert worker.recv(100) == b"its rows"
        waited.append(time.perf_counter() - began)
        worker.sendall(b"joined")
        assert spark.recv(100) == b"joined"
    assert min(waited) < 0.02, waited


def test_other_sockets_are_left_alone() -> None:
    """Not connected, or no TCP."""
    with socket.socket() as unconnected, socket.socketpair()[0] as pair:
        acknowledge_at_once()
        assert unconnected.fileno() >= 0
        assert pair.fileno() >= 0
