"""A small private disk for a test that can be filled to the last byte."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


class SmallDisk:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self) -> None:
        with contextlib.suppress(OSError), open(self._filler, "ab", 0) as filler:
            while filler.write(bytes(1 << 12)):
                pass

    def make_room(self) -> None:
        self._filler.unlink()


@contextlib.contextmanager
def small_disk(path: Path, nbytes: int = 4 << 20) -> Iterator[SmallDisk]:
    """A tmpfs at ``path``, unmounted afterwards; only root may mount one."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk to fill")
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={nbytes}", "tmpfs", str(path)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("mount is not available")
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        # Lazily: workers may still have files open.
        subprocess.run(["umount", "--lazy", str(path)], check=True)
