"""The union of two lists of changed codes, with the pages of the newer."""

from __future__ import annotations

import random

import numpy as np
import pytest

from semistream.kernels import changed_codes


@pytest.mark.parametrize("seed", range(30))
def test_newer_pages_win(seed: int) -> None:
    rng = random.Random(seed)
    lists = []
    for number in range(2):
        codes = sorted(rng.sample(range(-20, 20), rng.choice([0, 1, 5, 30])))
        lists.append(
            {code: (number * 100 + i, number * 100 + i - 1) for i, code in enumerate(codes)}
        )
    newer, older = lists
    arrays = [
        array
        for one in lists
        for array in (
            np.array(list(one), np.int64),
            np.array([low for low, _ in one.values()], np.int32),
            np.array([high for _, high in one.values()], np.int32),
        )
    ]
    most = len(newer) + len(older)
    out = np.empty(most, np.int64), np.empty(most, np.int32), np.empty(most, np.int32)
    count = changed_codes.merge(*arrays, *out)
    codes, low, high = (array[:count].tolist() for array in out)
    assert codes == sorted({**older, **newer})
    assert dict(zip(codes, zip(low, high, strict=True), strict=True)) == {**older, **newer}
