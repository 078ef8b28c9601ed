"""Where pages are, and how many were not checked yet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from semistream.kernels.page_places import locate, unchecked


@pytest.mark.parametrize("numbers", [np.int32, np.int64])
@pytest.mark.parametrize("lengths", [np.int32, np.int64])
def test_pages_are_located(numbers: Any, lengths: Any) -> None:
    sizes = np.array([40, 50, 60, 70], lengths)
    offsets = np.array([8, 48, 98, 158], np.int64)
    starts, found = np.zeros(3, np.int64), np.zeros(3, np.int64)
    assert locate(np.array([0, 2, 3], numbers), offsets, sizes, starts, found) == 170
    assert (starts.tolist(), found.tolist()) == ([8, 98, 158], [40, 60, 70])


def test_the_sizes_of_large_pages_do_not_overflow() -> None:
    lengths = np.full(3, 2**31 - 1, np.int32)
    starts, sizes = np.zeros(3, np.int64), np.zeros(3, np.int64)
    assert locate(np.arange(3), np.zeros(3, np.int64), lengths, starts, sizes) == 3 * (2**31 - 1)


@pytest.mark.parametrize(("pages", "expected"), [([0, 2], 0), ([0, 1, 2, 3], 2), ([], 0)])
def test_pages_that_were_not_checked_are_counted(pages: list[int], expected: int) -> None:
    checked = np.array([True, False, True, False])
    assert unchecked(np.array(pages, np.int64), checked) == expected
