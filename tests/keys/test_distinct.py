"""Distinct values, as np.unique has them."""

from __future__ import annotations

import numpy as np
import pytest

from semistream.keys.distinct import distinct


@pytest.mark.parametrize("values", [[], [5], [3, 1, 3, 2, 1], [1, 2, 2, 4, 0, 2, 9]])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_distinct_values(values: list[int], kind: type) -> None:
    given = np.array(values, kind)
    found = distinct(given)
    assert found.dtype == given.dtype
    assert found.tolist() == sorted(set(values))
    assert given.tolist() == values, "the argument stays as it is"
