"""Temporary files are in memory if there is room, unless somebody chose a folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import scratch


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder instead of /dev/shm, and an environment in which nothing was chosen yet."""
    (tmp_path / "memory").mkdir()
    monkeypatch.setattr(scratch, "MEMORY", tmp_path / "memory")
    monkeypatch.setattr(scratch, "ROOM", 1)
    monkeypatch.setattr(tempfile, "tempdir", None)
    # Set before they are deleted, so that the end of the test removes what use_memory sets.
    for name in ("TMPDIR", scratch._DISK):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return tmp_path / "memory"


def test_temporary_files_are_in_memory_also_those_of_children(memory: Path) -> None:
    before = tempfile.gettempdir()
    scratch.use_memory()
    assert Path(tempfile.gettempdir()).parent == memory
    code = "import tempfile; print(tempfile.gettempdir())"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == tempfile.gettempdir()
    assert scratch.disk() == before


def test_without_room_they_stay_on_the_disk(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "ROOM", 1 << 80)
    before = tempfile.gettempdir()
    scratch.use_memory()
    assert "TMPDIR" not in os.environ
    assert tempfile.gettempdir() == scratch.disk() == before


def test_a_chosen_folder_is_respected(
    memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    scratch.use_memory()
    assert tempfile.gettempdir() == scratch.disk() == str(tmp_path)


def test_tests_of_the_disk_are_on_the_disk(disk_path: Path, tmp_path: Path) -> None:
    if scratch._DISK not in os.environ:
        pytest.skip("a folder was chosen, or memory has no room")
    assert tmp_path.is_relative_to(scratch.MEMORY)
    assert not disk_path.is_relative_to(scratch.MEMORY)
