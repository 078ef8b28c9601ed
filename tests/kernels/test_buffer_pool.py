"""The buffer pool's replacement against an ordered dict."""

from __future__ import annotations

import random
from collections import OrderedDict

import numpy as np
import pytest

from semistream.kernels import buffer_pool


class Pool:
    def __init__(self, pages: int, frames: int) -> None:
        self.frame_of = np.full(pages, -1, np.int32)
        self.page_in = np.full(frames, -1, np.int32)
        self.older = np.array([frames, *range(frames)], np.int32)
        self.newer = np.array([*range(1, frames + 1), 0], np.int32)
        self.stamp = np.zeros(frames, np.int64)
        self.wave = 0

    def plan(self, pages: list[int]) -> tuple[list[int], list[int]]:
        """(the frame of every request that was planned, the requests that need a read)."""
        self.wave += 1
        frames, missing = np.empty(len(pages), np.int32), np.empty(len(pages), np.int64)
        planned, reads = buffer_pool.plan(
            np.array(pages, np.int32), self.wave, self.frame_of, self.page_in,
            self.older, self.newer, self.stamp, frames, missing,
        )  # fmt: skip
        return frames[:planned].tolist(), missing[:reads].tolist()


def least_recently_used(
    held: OrderedDict[int, int], pages: list[int]
) -> tuple[list[int], list[int]]:
    """The same in Python; ``held`` maps pages (or -1, -2, ... for none) to frames, oldest first."""
    frames: list[int] = []
    missing: list[int] = []
    for i, page in enumerate(pages):
        if page not in held:
            oldest, frame = next(iter(held.items()))
            if frame in frames:
                break
            del held[oldest]
            held[page] = frame
            missing.append(i)
        held.move_to_end(page)
        frames.append(held[page])
    return frames, missing


@pytest.mark.parametrize("seed", range(25))
def test_requests_are_equivalent_to_sequential_ones(seed: int) -> None:
    rng = random.Random(seed)
    pages, frames = rng.randint(1, 12), rng.randint(1, 6)
    pool = Pool(pages, frames)
    held = OrderedDict((-1 - frame, frame) for frame in range(frames))
    for _ in range(30):
        wanted = [rng.randrange(pages) for _ in range(rng.randint(0, 10))]
        assert pool.plan(wanted) == least_recently_used(held, wanted)
        assert {p: int(pool.frame_of[p]) for p in range(pages) if pool.frame_of[p] >= 0} == {
            page: frame for page, frame in held.items() if page >= 0
        }


def test_a_pool_of_one_frame_serves_one_page_per_wave() -> None:
    pool = Pool(3, 1)
    assert pool.plan([2, 2, 1, 2]) == ([0, 0], [0])
    assert pool.plan([1, 2]) == ([0], [0])
    assert pool.plan([1]) == ([0], [])


@pytest.mark.parametrize("seed", range(10))
def test_pages_of_codes(seed: int) -> None:
    rng = random.Random(seed)
    firsts = np.array(sorted(rng.sample(range(100), 8)), np.int64)
    by_page, by_code = Pool(8, 4), Pool(8, 4)
    for _ in range(20):
        codes = np.array([rng.randrange(-10, 110) for _ in range(6)], np.int64)
        tuples = np.array(rng.sample(range(6), rng.randint(0, 6)), np.int64)
        expected = [max(0, sum(int(f) <= int(codes[t]) for f in firsts) - 1) for t in tuples]
        by_code.wave += 1
        pages, frames = np.empty((2, len(tuples)), np.int32)
        missing = np.empty(len(tuples), np.int64)
        planned, reads = buffer_pool.plan_codes(
            codes, tuples, firsts, by_code.wave, by_code.frame_of, by_code.page_in,
            by_code.older, by_code.newer, by_code.stamp, pages, frames, missing,
        )  # fmt: skip
        assert pages.tolist() == expected
        found = frames[:planned].tolist(), missing[:reads].tolist()
        assert found == by_page.plan(expected)
