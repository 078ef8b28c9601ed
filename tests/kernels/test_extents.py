"""Adjacent pages become one range."""

from __future__ import annotations

import numpy as np
import pytest

from semistream.kernels.extents import merge


def merged(pages: list[tuple[int, int]], block: int) -> tuple[list[list[int]], list[int], int, int]:
    """The same in plain Python: ranges, starts, needed bytes, buffer bytes."""
    groups: list[list[tuple[int, int]]] = []
    for begin, end in pages:
        if groups and groups[-1][-1][1] == begin:
            groups[-1].append((begin, end))
        else:
            groups.append([(begin, end)])
    ranges, starts, position = [], [], 0
    for group in groups:
        offset = group[0][0] - group[0][0] % block
        least = group[-1][1] - offset
        size = -(-least // block) * block
        ranges.append([offset, size, position, least])
        starts += [position + begin - offset for begin, _ in group]
        position += size
    return ranges, starts, sum(end - begin for begin, end in pages), position


@pytest.mark.parametrize("block", [1, 8, 4096])
@pytest.mark.parametrize("seed", range(10))
def test_as_in_plain_python(seed: int, block: int) -> None:
    rng = np.random.default_rng(seed)
    at, pages = int(rng.integers(0, 5000)), []
    for _ in range(int(rng.integers(0, 12))):
        at += int(rng.choice([0, 0, 1, 5000]))
        length = int(rng.integers(1, 9000))
        pages.append((at, at + length))
        at += length
    begins, ends = np.array(pages, np.int64).reshape(-1, 2).T.copy()
    ranges, starts = np.zeros((4, len(pages)), np.int64), np.zeros(len(pages), np.int64)
    count, needed, nbytes = merge(begins, ends, block, ranges, starts)
    found = ranges[:, :count].T.tolist(), starts.tolist(), needed, nbytes
    assert found == merged(pages, block)
