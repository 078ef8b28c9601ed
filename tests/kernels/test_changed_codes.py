"""The newest delta that has changed a code, and the filters in front of the lists."""

from __future__ import annotations

import random

import numpy as np
import pytest

from semistream.kernels import changed_codes
from semistream.kernels.compile import compiled
from semistream.master import code_list
from semistream.master.changed import ChangedCodes
from semistream.master.delta_codes import DeltaCodes, table_of


@compiled
def passing(codes, words):  # type: ignore[no-untyped-def]
    """Which codes the filter lets pass."""
    found = np.empty(len(codes), np.bool_)
    for i in range(len(codes)):
        found[i] = changed_codes.may_contain(codes[i], words)
    return found


@pytest.mark.parametrize("filtered", ["no codes", "some codes", "all codes"])
@pytest.mark.parametrize("seed", range(20))
def test_the_newest_delta_that_has_a_code_is_found(
    seed: int, filtered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(code_list, "_ADDED_AT_ONCE", 5)
    extremes, lists = [-(2**63), 2**63 - 1], []
    for _ in range(rng.randint(0, 5)):
        lists.append(sorted(rng.sample([*range(-30, 30), *extremes], rng.choice([1, 5, 40]))))
    deltas = [DeltaCodes(ChangedCodes(np.array(some), np.ones(len(some), bool))) for some in lists]
    for delta in deltas:
        for _ in range({"no codes": 0, "some codes": 1, "all codes": 9}[filtered]):
            delta.extend_filter()
        assert delta.is_filtered or filtered != "all codes"
    codes = np.array([*range(-35, 35), *extremes])
    rows = np.empty(len(codes), np.int64)
    changed_codes.find_all(codes, table_of([delta.rows(0, 1) for delta in deltas]), rows)
    newest_first = lists[::-1]
    expected = [
        next((row for row, some in enumerate(newest_first) if code in some), -1)
        for code in codes.tolist()
    ]
    assert rows.tolist() == expected


def test_the_filter_is_counted_before_it_is_made() -> None:
    delta = DeltaCodes(ChangedCodes(np.arange(1000), np.ones(1000, bool)))
    before = delta.nbytes
    delta.extend_filter()
    assert delta.nbytes == before == 8 * 1000 + 8 * code_list.filter_words(1000)


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
