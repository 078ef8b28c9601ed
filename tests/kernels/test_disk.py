"""Many reads of one file in one call."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from semistream.kernels.disk import read_ranges

CONTENT = bytes(range(256)) * 4


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "file").write_bytes(CONTENT)
    opened = os.open(tmp_path / "file", os.O_RDONLY)
    yield opened
    os.close(opened)


def read(descriptor: int, ranges: list[tuple[int, int, int]]) -> tuple[int, bytes]:
    """(complete reads, the buffer) for ranges of (place, offset, size)."""
    memory = np.full(2000, 255, np.uint8)
    parts = np.array(ranges, np.int64).reshape(-1, 3).T.copy()
    return read_ranges(descriptor, memory.ctypes.data, *parts), memory.tobytes()


def test_every_range_goes_to_its_place(descriptor: int) -> None:
    ranges = [(500, 3, 10), (0, 1000, 24), (30, 0, 400), (1999, 7, 1)]
    done, memory = read(descriptor, ranges)
    assert done == 4
    expected = bytearray(b"\xff" * 2000)
    for place, offset, size in ranges:
        expected[place : place + size] = CONTENT[offset : offset + size]
    assert memory == expected


def test_a_short_read_ends_it(descriptor: int) -> None:
    done, memory = read(descriptor, [(0, 5, 10), (100, 1020, 5), (200, 9, 10)])
    assert done == 1
    assert memory[:10] == CONTENT[5:15]
    assert memory[200:210] == b"\xff" * 10  # not read any more


def test_a_read_behind_the_end_of_the_file_ends_it(descriptor: int) -> None:
    assert read(descriptor, [(0, 5000, 10), (100, 0, 5)])[0] == 0


def test_a_negative_offset_fails(descriptor: int) -> None:
    assert read(descriptor, [(0, 0, 10), (100, -5, 5)])[0] == 1


def test_a_failing_descriptor(tmp_path: Path) -> None:
    assert read(1 << 20, [(0, 0, 10)])[0] == 0
    only_written = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    try:
        assert read(only_written, [(0, 0, 10)])[0] == 0
    finally:
        os.close(only_written)


def test_no_ranges(descriptor: int) -> None:
    done, memory = read(descriptor, [])
    assert (done, set(memory)) == (0, {255})
