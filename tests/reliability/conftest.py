"""Fixtures of the reliability tests."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reliability.tally import Tally

MEMORY = Path("/dev/shm")


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Tally:
    return Tally(record_property)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory if available, because these tests consist of file operations."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        yield Path(name)
