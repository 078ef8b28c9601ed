"""Fixtures that the suites share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import scratch
from harness import Case, build
from reliability.tally import summary
from sessions import CLUSTER, LOCAL, TWO_HOSTS, Sessions, start_jvms_quickly

settings.register_profile(
    "semistream",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("semistream")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    scratch.use_memory()
    start_jvms_quickly()


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """As ``tmp_path``, but on the disk: for direct I/O, and for measurements of memory."""
    with tempfile.TemporaryDirectory(dir=scratch.disk(), prefix="semistream-") as name:
        yield Path(name)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that must share a worker, those with Spark, come first: the other worker takes the
    rest meanwhile, instead of waiting for them at the end."""
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


@pytest.fixture(scope="session")
def master_of(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The master table of a case, built once for all joins and hows."""
    built: dict[Any, Any] = {}

    def get(case: Case) -> Any:
        identity = (id(case.master), tuple(case.key), case.page_bytes)
        if identity not in built:
            path = tmp_path_factory.mktemp("master") / "table"
            master = build(path, case.master, case.key, page_bytes=case.page_bytes)
            built[identity] = master, case  # keep the case alive, so that its id is not reused
        return built[identity][0]

    return get


@pytest.fixture(params=["read", "mapped"])
def copies(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows that SweepJoin has copied out of scattered pages, by call; whatever it takes, it copies
    rows if that is possible."""
    from copied import WAYS, count_copies

    return count_copies(WAYS[request.param], monkeypatch.setattr)


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


@pytest.fixture
def two_hosts(sessions: Sessions) -> Any:
    """Dynamic executors on two hosts, with speculation and fault injection."""
    return sessions.get(TWO_HOSTS)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the number of tried crash points and schedules; docs/reliability.md quotes them."""
    lines = summary(terminalreporter.stats.get("passed", []))
    if lines:
        terminalreporter.section("tried")
        for line in lines:
            terminalreporter.write_line(line)
