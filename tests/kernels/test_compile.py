"""A kernel whose callee changed in another file is recompiled, even if Numba's cache has it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import semistream

CALL = (
    "import numpy as np; from semistream.kernels.counting_cache import held_entries; "
    "empty = np.full(1, -1, np.int32); "
    "print(held_entries(np.array([7]), empty, empty, np.zeros(1, np.int64))[0])"
)


def test_an_inlined_kernel_that_changed_in_another_file_is_not_stale(tmp_path: Path) -> None:
    package = tmp_path / "semistream"
    shutil.copytree(
        Path(semistream.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )

    def call() -> int:
        env = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "nb")}
        done = subprocess.run(
            [sys.executable, "-c", CALL], env=env, capture_output=True, text=True, check=True
        )
        return int(done.stdout)

    assert call() == -1
    source = package / "kernels" / "window.py"  # whose ``find`` is inlined into counting_cache
    found = "        slot = chain[slot]\n    return slot\n"
    assert found in source.read_text()
    source.write_text(source.read_text().replace(found, found.replace("return slot", "return -42")))
    assert call() == -42
