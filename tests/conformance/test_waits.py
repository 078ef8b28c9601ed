"""No tuple waits longer than its join's documentation says, counted in iterations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from harness import soon, watched
from semistream.testing import RecordingObserver

EVEN = pa.table({"k": range(0, 6000, 2), "v": range(3000), "pad": ["x" * 40] * 3000})


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("waits") / "table"
    ss.MasterTable.build(EVEN, folder, key="k", unique=True, page_bytes=1024)
    return folder


def bound(run: Any, ahead: int) -> int:
    """The documented bound for a tuple that found ``ahead`` tuples waiting."""
    name = run.join.name
    if name.endswith("inlj"):
        return ahead + 1  # all in one push; in the worst case in waves of one tuple
    if name.endswith("hybridjoin"):
        return ahead + 1
    return int(run.longest_wait)


STREAMS = {
    "absent": lambda rng, count: 2 * rng.integers(0, 3000, count) + 1,
    "mixed": lambda rng, count: rng.integers(-100, 6100, count),
    "one page": lambda rng, count: rng.integers(0, 12, count),
    "above": lambda rng, count: 10_000 + np.arange(count),
}


@pytest.mark.parametrize("keys", STREAMS)
@pytest.mark.parametrize(
    ("algorithm", "mapped"), [*((name, False) for name in ss.ALGORITHMS), ("sweepjoin", True)]
)
def test_no_wait_is_longer_than_documented(
    algorithm: str, keys: str, mapped: bool, path: Path
) -> None:
    """Bursts of 60 tuples and a trickle of single ones, with a step after each."""
    rng = np.random.default_rng(1)
    pushed: dict[int, tuple[int, int]] = {}  # tuple -> iteration at its push, longest wait
    join = ss.join(algorithm, **soon(algorithm, memory="300KB", how="left"))
    with join.open(ss.MasterTable.open(path, mapped=mapped), on="k", select=["v"]) as run:

        def left(rows: Any) -> None:
            for batch in rows:
                for number in batch["n"].to_pylist():
                    begun, most = pushed.pop(number)
                    assert run.stats.iterations - begun <= most

        for turn in range(60):
            count = 60 if turn % 20 == 0 else 1
            before, numbers = run.stats.waiting, range(1000 * turn, 1000 * turn + count)
            for place, number in enumerate(numbers):
                pushed[number] = run.stats.iterations, bound(run, before + place)
            values = STREAMS[keys](rng, count)
            left(watched(run, run.push(pa.record_batch({"n": numbers, "k": values}))))
            assert not (algorithm.endswith("inlj") and run.stats.waiting)
            left(watched(run, run.step()))
        while run.stats.waiting:
            left(watched(run, run.step()))
        assert not pushed


def test_x_hybridjoin_counts_an_iteration_once(path: Path) -> None:
    """The pinned part and the following partition are one iteration, with all its matches."""
    observer = RecordingObserver()
    join = ss.join("x-hybridjoin", memory="300KB", observe=20, pinned="20KB")
    rng = np.random.default_rng(2)
    with join.open(ss.MasterTable.open(path), on="k", observer=observer) as run:
        for _ in range(10):
            keys = np.where(
                rng.random(300) < 0.5, 2 * rng.integers(0, 30, 300), rng.integers(0, 6000, 300)
            )
            list(run.push(pa.record_batch({"k": keys})))
            list(run.flush())
        iterations = observer.named("iterated")
        assert run.memory["pinned pages"]
        assert len(iterations) == run.stats.iterations
        assert sum(matched for matched, *_ in iterations) == run.stats.matched
        assert sum(unmatched for _, unmatched, *_ in iterations) == run.stats.unmatched
