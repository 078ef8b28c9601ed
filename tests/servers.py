"""Real servers, private to a test: PostgreSQL and MariaDB."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@contextlib.contextmanager
def postgres_server() -> Iterator[Any]:
    """A server in a temporary folder, on a unix socket; stopped and removed afterwards.

    The folder's path is short because a socket's path may not be long.
    """
    pgserver = pytest.importorskip("pgserver", reason="pip install pgserver for a PostgreSQL")
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            server = pgserver.get_server(folder)
        try:
            yield server
        finally:
            server.cleanup()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def execute(uri: str, *statements: str) -> None:
    """Run statements in one transaction."""
    import adbc_driver_postgresql.dbapi as driver

    with driver.connect(uri) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        connection.commit()


def query(uri: str, sql: str) -> list[tuple[Any, ...]]:
    import adbc_driver_postgresql.dbapi as driver

    with driver.connect(uri) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return [tuple(row) for row in cursor.fetchall()]


@contextlib.contextmanager
def mariadb_server() -> Iterator[tuple[str, Any]]:
    """The system's mariadbd in a temporary folder, on a unix socket: (uri, connection)."""
    pymysql = pytest.importorskip("pymysql")
    folder = Path(tempfile.mkdtemp(prefix="mdb-"))
    bootstrap = "CREATE DATABASE IF NOT EXISTS mysql;\nCREATE DATABASE IF NOT EXISTS shop;\n"
    base = ["mariadbd", "--no-defaults", f"--datadir={folder}/data", "--user=root"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    (folder / "data").mkdir()
    server = None
    try:
        subprocess.run(
            [*base, "--bootstrap", "--skip-grant-tables"],
            input=bootstrap.encode(),
            check=True,
            **quiet,
        )
        server = subprocess.Popen(
            [*base, "--skip-grant-tables", "--skip-networking", f"--socket={folder}/socket"],
            **quiet,
        )
        for _ in range(100):
            with contextlib.suppress(pymysql.Error):
                connection = pymysql.connect(
                    unix_socket=f"{folder}/socket", user="root", database="shop", charset="utf8mb4"
                )
                break
            time.sleep(0.2)
        else:
            pytest.fail("mariadbd did not start within 20 s")
        with connection:
            yield f"mariadb://root@localhost/shop?unix_socket={folder}/socket", connection
    finally:
        if server is not None:
            server.terminate()
            server.wait(30)
        shutil.rmtree(folder, ignore_errors=True)
