"""Random bytes in pages: the compiled check never reads outside, and is as strict as Arrow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from semistream.kernels import page_nodes

JOB = Path(__file__).parent / "mutated_pages.py"


def check_mutated(first: int, count: int) -> list[int]:
    """How many pages had each problem."""
    command = [sys.executable, str(JOB), str(first), str(count)]
    paths = [str(JOB.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, env=environment)
    assert done.returncode == 0, f"ended with {done.returncode}:\n{done.stderr[-3000:]}"
    return [int(number) for number in done.stdout.split()]


def test_mutated_pages() -> None:
    found = check_mutated(0, 300)
    assert sum(found) == 300 * 101
    never = {page_nodes.NULL_KEY, page_nodes.COMPRESSED}  # no keys here; no such field to mutate
    assert {code for code, pages in enumerate(found) if pages == 0} <= never
    assert found[page_nodes.FINE] > 1_000


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_mutated_pages() -> None:
    assert sum(check_mutated(1_000, 3_000)) == 3_000 * 101
