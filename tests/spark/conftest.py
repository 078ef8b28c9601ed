"""Spark sessions for the tests: one process has one at a time, and keeps it as long as it can."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

LOCAL = "local[2,4]"  # two tasks at once, four attempts each
CLUSTER = "local-cluster[2,1,1024]"


class Sessions:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.master: str | None = None
        self.session: Any = None

    def get(self, master: str) -> Any:
        if self.master != master:
            self.stop()
            self.session = self._start(master)
            self.master = master
        return self.session

    def stop(self) -> None:
        if self.session is not None:
            self.session.stop()
        self.master = self.session = None

    def _start(self, master: str) -> Any:
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            "spark.local.dir": str(self.folder / "local"),
            "spark.sql.session.timeZone": "Asia/Kolkata",
            "spark.sql.timeType.enabled": "true",
            "spark.task.maxFailures": "4",
        }
        builder = SparkSession.builder.master(master).appName("semistream-tests")
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        return session


@pytest.fixture(scope="session")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sessions]:
    sessions = Sessions(tmp_path_factory.mktemp("spark"))
    yield sessions
    sessions.stop()


@pytest.fixture
def spark(sessions: Sessions) -> Any:
    """A session in this process, two tasks at once."""
    return sessions.get(LOCAL)


@pytest.fixture
def cluster(sessions: Sessions) -> Any:
    """A session with two real executors, one core each."""
    return sessions.get(CLUSTER)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one kind of session go to one worker (with ``--dist loadgroup``)."""
    here = Path(__file__).parent
    for item in items:
        if here in Path(item.fspath).parents:
            kind = "cluster" if "cluster" in getattr(item, "fixturenames", ()) else "local"
            item.add_marker(pytest.mark.xdist_group(f"spark-{kind}"))
