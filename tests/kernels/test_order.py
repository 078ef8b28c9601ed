"""Rows in the order of their tuples."""

from __future__ import annotations

import numpy as np
import pytest

from semistream import kernels


@pytest.mark.parametrize(("numbers", "count"), [
    ([], 0), ([], 3), ([0], 1), ([2, 0, 1], 3), ([1, 1, 0, 4, 1, 0], 5),
])  # fmt: skip
def test_rows_are_sorted_and_equal_ones_keep_their_order(numbers: list[int], count: int) -> None:
    order = kernels.order.by_number(np.array(numbers, np.int32), count)
    expected = sorted(range(len(numbers)), key=lambda row: (numbers[row], row))
    assert order.tolist() == expected
