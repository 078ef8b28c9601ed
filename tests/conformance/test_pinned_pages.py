"""The joins with pinned pages choose them by the head of the stream, and count their matches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import semistream as ss
from harness import build
from semistream.testing import RecordingObserver

KEYS = 300
OBSERVE = 120
PADDING = 512  # bytes; wide tuples fill the window soon
OPTIONS = {"memory": 30_000, "observe": OBSERVE, "pinned": 6_000, "disk_buffer_pages": 1}
pinning_joins = pytest.mark.parametrize("algorithm", ["x-hybridjoin", "optimised-x-hybridjoin"])


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Any:
    table = pa.table({"k": range(KEYS), "v": range(KEYS)})
    path = tmp_path_factory.mktemp("pinned") / "table"
    return build(path, table, ["k"], page_bytes=512, unique=True)


def push(run: Any, *keys: int) -> None:
    padding = pa.array([bytes(PADDING)] * len(keys), pa.binary(PADDING))
    for _ in run.push(pa.record_batch({"k": pa.array(keys, pa.int64()), "padding": padding})):
        pass


def is_pinned(run: Any) -> bool:
    """Whether pages are pinned, or, in the optimised join, served a tuple."""
    return bool(run.memory.get("pinned pages", 0) or run.stats.front_stage_hits)


@pinning_joins
def test_a_tuple_that_finds_the_window_full_is_observed_once(algorithm: str, master: Any) -> None:
    with ss.join(algorithm, **OPTIONS).open(master, on="k") as run:
        for number in range(OBSERVE - 1):
            push(run, 7 * number % 60)
        assert run.stats.iterations > 0, "the window was full"
        assert not is_pinned(run)
        push(run, 0)
        push(run, 0, 1, 2)
        assert is_pinned(run)


def test_an_iteration_counts_tuples_that_the_pinned_pages_serve(master: Any) -> None:
    observer = RecordingObserver()
    join = ss.join("x-hybridjoin", **OPTIONS, hot_keys=[0])
    with join.open(master, on="k", observer=observer) as run:
        push(run, 0, 1, 2, 250)
        for _ in run.step():
            pass
        assert [left[:2] for left in observer.named("iterated")] == [(4, 0)]
        assert run.stats.matched == 4
