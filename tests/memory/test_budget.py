"""The budget holds: by the run's counters at every push, and by the process as a whole."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import scratch
import semistream as ss

MEASURE = Path(__file__).with_name("measure.py")
MEASURE_COPIES = Path(__file__).with_name("measure_copies.py")
PEAK = Path("/proc/self/clear_refs")  # forgets the peak of a process
OVERHEAD = 32_000_000

every_algorithm = pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))


def start(*arguments: object, job: Path = MEASURE) -> str:
    done = subprocess.run(
        [sys.executable, job, *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def table() -> Iterator[Any]:
    """The path of a table of ``rows`` products, built once by another process; on the disk,
    because files in memory would count as memory of whoever maps them."""
    folder = Path(tempfile.mkdtemp(prefix="semistream-", dir=scratch.disk()))

    def get(rows: int, page_bytes: str) -> Path:
        path = folder / f"{rows} in {page_bytes}"
        if not path.exists():
            start("build", path, rows, page_bytes)
        return path

    yield get
    shutil.rmtree(folder)


def check(algorithm: str, table: Any, rows: int, tuples: int, memory: str) -> None:
    # Small pages for joins that read a page for a single tuple.
    page_bytes = "16KiB" if algorithm.endswith("inlj") else "256KiB"
    path, tiny = table(rows, page_bytes), table(1_000, page_bytes)
    measured = json.loads(start(algorithm, path, tuples, memory, tiny))
    budget, stats = measured["budget"], measured["stats"]
    assert measured["balanced"]
    assert measured["right"], "the prices do not add up"
    assert stats["tuples_in"] == stats["rows_out"] == tuples
    assert stats["waiting"] == stats["shed"] == 0
    assert stats["unmatched"] > 0
    assert measured["held"] <= budget, measured["fullest"]
    assert measured["growth"] <= 1.2 * budget + OVERHEAD, measured["fullest"]


QUICK = ("cmeshjoin", "sweepjoin")


@pytest.mark.parametrize(
    "algorithm",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in ss.ALGORITHMS],
)
def test_a_small_budget(algorithm: str, table: Any) -> None:
    tuples = 30_000 if algorithm.endswith("inlj") else 100_000
    check(algorithm, table, rows=100_000, tuples=tuples, memory="4MB")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@every_algorithm
def test_ten_million_tuples_in_50_mb(algorithm: str, table: Any) -> None:
    # Joins that look up one page per tuple reach their largest size early, and are slow.
    tuples = 1_000_000 if algorithm.endswith("inlj") else 10_000_000
    check(algorithm, table, rows=2_000_000, tuples=tuples, memory="50MB")


@pytest.mark.slow
@pytest.mark.skipif(not os.access(PEAK, os.W_OK), reason="this system does not count the peak")
@pytest.mark.parametrize(("way", "memory"), [("mapped", "128MB"), ("read", "16MB")])
def test_rows_that_are_copied_out_of_pages(way: str, memory: str, table: Any) -> None:
    """Only a few huge pages are mapped at a time, of a table that is larger than the budget."""
    path, tiny = table(2_000_000, "16KiB"), table(1_000, "16KiB")
    measured = json.loads(start(path, 200, memory, tiny, way, job=MEASURE_COPIES))
    budget, stats = measured["budget"], measured["stats"]
    assert measured["nbytes"] > 1.7 * budget
    assert measured["copied"] > 0.8 * stats["tuples_in"]
    assert measured["right"], "the prices do not add up"
    assert stats["tuples_in"] == stats["rows_out"] == stats["matched"]
    assert measured["held"] <= budget
    assert measured["growth"] <= 1.2 * budget + OVERHEAD
