"""Files that are damaged while rows are copied out of their pages, read or mapped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

JOB = Path(__file__).parent / "damaged_copies.py"


def test_the_run_raises_and_goes_on_after_the_file_is_restored(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(JOB), str(tmp_path)], capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, f"ended with {done.returncode}:\n{done.stderr[-3000:]}"
    assert done.stdout.split() == ["alive"]
