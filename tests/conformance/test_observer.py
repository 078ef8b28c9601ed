"""Observer events add up to the run's counters, and are never sent per tuple."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from conformance.suite import every_algorithm
from harness import build, cut, drive, takes
from semistream.testing import FakeClock, RecordingObserver

MASTER = pa.table({"k": range(2000), "text": ["x" * 20] * 2000})
STREAM = pa.table({"n": range(3000), "k": np.random.default_rng(1).zipf(1.2, 3000) % 2100})


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return build(tmp_path_factory.mktemp("observer") / "table", MASTER, ["k"])


@every_algorithm
def test_observer_events_match_the_stats(algorithm: str, master: Any) -> None:
    observer, clock = RecordingObserver(), FakeClock(tick=0.001)
    join = ss.join(algorithm, memory="60KB")
    with join.open(master, on="k", observer=observer, clock=clock) as run:
        drive(run, cut(STREAM, 300))
        stats = run.stats
    assert [tuples for (tuples,) in observer.named("pushed")] == [300] * 10
    reads = observer.named("page_read")
    assert sum(count for _, count, _, _ in reads) == stats.pages_read > 0
    assert sum(nbytes for _, _, nbytes, _ in reads) == stats.bytes_read > 0
    assert all(0 <= first < master.num_pages for first, _, _, _ in reads)
    iterations = observer.named("iterated")
    assert len(iterations) == stats.iterations > 0
    assert iterations[-1][2] == 0, "nothing waits after the last iteration of a flush"
    seconds = [arguments[-1] for arguments in reads + iterations]
    assert min(seconds) >= 0.001 * 0.999, "seconds come from the injected clock"
    assert clock.now < 0.001 * 20 * len(observer.events)


@pytest.mark.parametrize("algorithm", [n for n in ss.ALGORITHMS if takes(n, "front_stage")])
def test_the_front_stage_reports_itself(algorithm: str, master: Any) -> None:
    observer = RecordingObserver()
    with ss.join(algorithm, memory="60KB").open(master, on="k", observer=observer) as run:
        drive(run, cut(STREAM, 300))
        changes = observer.named("front_stage_changed")
        assert changes
        rows = 0
        for admitted, evicted, held, threshold in changes:
            rows += admitted - evicted
            assert held == rows
            assert threshold >= 0
        assert run.stats.front_stage_hits > 0.2 * len(STREAM), "hot rows are met in memory"


def test_no_file_is_read_before_the_first_push(tmp_path: Path) -> None:
    master = build(tmp_path / "table", MASTER, ["k"])
    observer = RecordingObserver()
    with ss.join("hybridjoin", memory="60KB").open(master, on="k", observer=observer):
        pass
    assert observer.events == []
