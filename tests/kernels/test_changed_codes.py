"""The union of two lists of changed codes with the pages of the newer, and their filter."""

from __future__ import annotations

import random

import numpy as np
import pytest

from semistream.kernels import changed_codes
from semistream.kernels.compile import compiled


@compiled
def passing(codes, words):  # type: ignore[no-untyped-def]
    """Which codes the filter lets pass."""
    found = np.empty(len(codes), np.bool_)
    for i in range(len(codes)):
        found[i] = changed_codes.may_contain(codes[i], words)
    return found


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
    words = np.zeros(rng.choice([0, 1, 7]), np.uint64)
    if len(words):
        changed_codes.add(arrays[3], words)
    most = len(newer) + len(older)
    out = np.empty(most, np.int64), np.empty(most, np.int32), np.empty(most, np.int32)
    count = changed_codes.merge(*arrays, *out, words)
    codes, low, high = (array[:count].tolist() for array in out)
    assert codes == sorted({**older, **newer})
    assert dict(zip(codes, zip(low, high, strict=True), strict=True)) == {**older, **newer}
    if len(words):
        assert passing(out[0][:count], words).all()
        once = np.zeros(len(words), np.uint64)
        changed_codes.add(out[0][:count], once)
        assert np.array_equal(once, words)


@pytest.mark.parametrize("kind", ["even", "dense", "hashes"])
@pytest.mark.parametrize(("words", "most"), [(1 << 14, 0.06), (3 << 13, 0.03)])
def test_most_other_codes_do_not_pass(kind: str, words: int, most: float) -> None:
    """With 8 and 12 bits for each of 131,072 codes."""
    count = 1 << 17
    codes = {
        "even": np.arange(0, 4 * count, 2),
        "dense": np.r_[np.arange(count), np.arange(5 * count, 6 * count)],
        "hashes": np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 2 * count),
    }[kind]
    added, others = codes[:count], codes[count:]
    filter_words = np.zeros(words, np.uint64)
    changed_codes.add(added, filter_words)
    assert passing(added, filter_words).all()
    assert passing(others, filter_words).mean() < most
