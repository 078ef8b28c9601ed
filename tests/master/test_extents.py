"""Byte ranges of pages: which bytes are read, and where they go in a buffer."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from semistream.master.extents import Extents
from semistream.master.local_file import ALIGNMENT


def extents_of(ranges: list[tuple[int, int]], direct: bool = False) -> Extents:
    begins, ends = np.array(ranges, np.int64).T
    return Extents(begins, ends, direct)


def test_adjacent_pages_are_one_range() -> None:
    extents = extents_of([(100, 150), (150, 170), (170, 300)])
    assert len(extents) == 1
    assert (extents.offsets.tolist(), extents.sizes.tolist()) == ([100], [200])
    assert extents.starts.tolist() == [0, 50, 70]
    assert (extents.needed, extents.nbytes) == (200, 200)


def test_pages_with_gaps_are_several_ranges_side_by_side() -> None:
    extents = extents_of([(100, 150), (150, 170), (200, 210), (500, 501)])
    assert extents.offsets.tolist() == [100, 200, 500]
    assert extents.sizes.tolist() == [70, 10, 1]
    assert extents.places.tolist() == [0, 70, 80]
    assert extents.starts.tolist() == [0, 50, 70, 80]
    assert (extents.needed, extents.nbytes) == (81, 81)


def test_direct_ranges_are_whole_blocks() -> None:
    block = ALIGNMENT
    extents = extents_of([(block + 10, 2 * block + 5), (3 * block, 3 * block + 7)], direct=True)
    assert extents.offsets.tolist() == [block, 3 * block]
    assert extents.sizes.tolist() == [2 * block, block]
    assert extents.least.tolist() == [block + 5, 7]
    assert extents.starts.tolist() == [10, 2 * block]
    assert (extents.needed, extents.nbytes) == (block + 2, 3 * block)


@pytest.mark.parametrize("direct", [False, True])
def test_pages_apart(direct: bool) -> None:
    """In frames: any order, every page at its own place, also if pages are adjacent."""
    begins, ends = np.array([5000, 100, 4000]), np.array([6000, 200, 5000])
    places = np.array([2, 0, 1]) * 3 * ALIGNMENT
    extents = Extents.apart(begins, ends - begins, 2100, direct, places)
    assert len(extents) == 3
    assert extents.places.tolist() == places.tolist()
    assert extents.needed == 2100
    if not direct:
        assert extents.offsets.tolist() == begins.tolist()
        assert extents.starts.tolist() == places.tolist()
        assert extents.nbytes == 2100
    check(extents, begins, ends, direct)


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_every_page_is_where_it_should_be(seed: int, direct: bool) -> None:
    rng = random.Random(seed)
    at, begins, ends = rng.randrange(10_000), [], []
    for _ in range(rng.randint(1, 12)):
        at += rng.choice([0, 0, 1, 100, 9_000])
        begins.append(at)
        at += rng.randint(1, 9_000)
        ends.append(at)
    extents = Extents(np.array(begins), np.array(ends), direct)
    check(extents, np.array(begins), np.array(ends), direct)
    stops = extents.places + extents.sizes
    assert extents.places.tolist() == [0, *stops[:-1].tolist()]
    assert extents.nbytes == stops[-1]


def check(extents: Extents, begins: Any, ends: Any, direct: bool) -> None:
    """Copy a file's ranges into a buffer: every page is at its start."""
    file = np.random.default_rng(1).integers(0, 255, int(ends.max()) + 2 * ALIGNMENT, np.uint8)
    memory = np.zeros(int((extents.places + extents.sizes).max()), np.uint8)
    short = memory.copy()
    for place, offset, size, least in zip(
        extents.places, extents.offsets, extents.sizes, extents.least, strict=True
    ):
        assert not direct or offset % ALIGNMENT == size % ALIGNMENT == 0
        assert 0 < least <= size
        memory[place : place + size] = file[offset : offset + size]
        short[place : place + least] = file[offset : offset + least]
    for start, begin, end in zip(extents.starts, begins, ends, strict=True):
        for copied in (memory, short):
            assert (copied[start : start + end - begin] == file[begin:end]).all()
    assert extents.needed == (ends - begins).sum()
