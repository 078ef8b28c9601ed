"""A broker for each test file.

With ``CI_REQUIRES_KAFKA`` set, a skipped Kafka test fails the run if Maven is reachable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kafka.broker import kafka_broker, maven_answers


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with kafka_broker() as address:
        yield address


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not os.environ.get("CI_REQUIRES_KAFKA"):
        return
    if reporter.stats.get("skipped") and maven_answers():
        reporter.write_line("Kafka tests were skipped although Maven answers", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
