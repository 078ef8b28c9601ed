"""Pages forged together with their checksums: an error or rows, never a crash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

JOB = Path(__file__).parent / "hostile_pages.py"


def falsify_and_join(folder: Path, first: int, count: int) -> tuple[int, int]:
    """The numbers of forged tables that were refused and that were joined."""
    command = [sys.executable, str(JOB), str(folder), str(first), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, f"ended with {done.returncode}:\n{done.stderr[-3000:]}"
    refused, joined = (int(number) for number in done.stdout.split())
    return refused, joined


def test_forged_pages_never_crash_the_process(disk_path: Path) -> None:
    refused, joined = falsify_and_join(disk_path, 0, 300)
    assert refused + joined == 300
    assert refused > joined > 0, "both outcomes occur"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_forged_pages_never_crash_the_process(disk_path: Path) -> None:
    refused, joined = falsify_and_join(disk_path, 1_000, 3_000)
    assert refused + joined == 3_000
