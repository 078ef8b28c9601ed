"""The budget holds with keys and columns of every kind, in the process as a whole, too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import scratch
import semistream as ss
from lab.shapes.catalogue import SHAPES

MEASURE = Path(__file__).with_name("measure_shape.py")
OVERHEAD = 32_000_000
ROWS, TUPLES, MEMORY = 100_000, 200_000, "4MB"
SLOW = ("text", "copies", "nested")  # the others are long tests


@pytest.fixture(scope="module")
def folder() -> Iterator[str]:
    """On the disk: files in memory would count as memory of whoever maps them."""
    with tempfile.TemporaryDirectory(prefix="semistream-", dir=scratch.disk()) as path:
        yield path


def start(*arguments: object) -> str:
    roots = [MEASURE.parent.parent, MEASURE.parent.parent.parent]
    path = os.pathsep.join([*map(str, roots), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, MEASURE, *map(str, arguments)],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def check(algorithm: str, shape: str, folder: str, tuples: int = TUPLES) -> None:
    start("build", shape, folder, ROWS, tuples, MEMORY)
    measured = json.loads(start(algorithm, shape, folder, ROWS, tuples, MEMORY))
    assert measured["mistake"] is None
    assert measured["rows_out"] == measured["expected"]
    assert measured["held"] <= measured["budget"], measured["fullest"]
    assert measured["growth"] <= 1.2 * measured["budget"] + OVERHEAD, measured["fullest"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape", [n if n in SLOW else pytest.param(n, marks=pytest.mark.long) for n in SHAPES]
)
def test_sweepjoin_with_every_shape(shape: str, folder: str) -> None:
    check("sweepjoin", shape, folder)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("shape", SLOW)
@pytest.mark.parametrize("algorithm", [n for n in ss.ALGORITHMS if n != "sweepjoin"])
def test_every_join(algorithm: str, shape: str, folder: str) -> None:
    check(algorithm, shape, folder, 20_000 if algorithm.endswith("inlj") else TUPLES)
