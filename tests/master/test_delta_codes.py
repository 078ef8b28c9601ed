"""The changed codes of deltas in memory: shared by versions, and their filters made in steps."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from semistream.master import MasterTable, delta_codes
from semistream.master.changed import ChangedCodes
from semistream.master.delta_codes import DeltaCodes, filters_of_folded

KEYS = 600


def rows(keys: list[int]) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), "v": [f"value {key}" for key in keys]})


def codes_of(codes: list[int]) -> DeltaCodes:
    return DeltaCodes(ChangedCodes(np.array(codes), np.ones(len(codes), np.bool_)))


@pytest.mark.parametrize("seed", range(10))
def test_a_version_finds_changed_codes_however_much_of_the_filters_is_made(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(delta_codes, "_ADDED_AT_ONCE", rng.choice([7, 50, 1000]))
    written = MasterTable.build(rows(list(range(KEYS))), tmp_path / "t", key="k", page_bytes=600)
    read, every = written, np.arange(-5, 2 * KEYS)
    for _ in range(12):
        keys = rng.sample(range(2 * KEYS), rng.choice([1, 20, 60]))
        written = written.upsert(rows(keys)) if rng.random() < 0.8 else written.delete(keys)
        if rng.random() < 0.8:  # else a version is skipped
            read = read.at_version(written.version, keeps_folded=rng.random() < 0.5)
            for delta in read.index.deltas:
                for _ in range(rng.choice([0, 1, 100])):
                    delta.codes.extend_filter()
            fresh = MasterTable.open(written.path).index
            lists = [delta.codes.codes for delta in fresh.deltas]
            expected = np.full(len(every), -1)
            for number, codes in enumerate(lists):
                expected[np.isin(every, codes)] = number
            assert np.array_equal(read.index.deltas_of(every), expected)
            assert np.array_equal(read.index.deleted, fresh.deleted)


def test_lists_are_shared_by_the_versions_that_have_the_delta(tmp_path: Path) -> None:
    table = MasterTable.build(rows(list(range(KEYS))), tmp_path / "t", key="k", page_bytes=600)
    first = table.at_version(table.upsert(rows(list(range(100)))).version)
    second = first.at_version(MasterTable.open(table.path).upsert(rows([5])).version)
    assert second.index.deltas[0].codes is first.index.deltas[0].codes
    assert len(second.index.deltas) == 2


def test_filters_of_folded_deltas_serve_until_the_own_one_is_made() -> None:
    older, newer = codes_of([1, 3, 5]), codes_of([3, 7])
    change = ChangedCodes(np.array([9]), np.array([True]))
    assert filters_of_folded([older, newer], change) == [], "they have none yet"
    older.extend_filter()
    newer.extend_filter()
    filters = filters_of_folded([older, newer], change)
    assert len(filters) == 3
    every = ChangedCodes(np.array([1, 3, 5, 7, 9]), np.ones(5, np.bool_))
    folded = DeltaCodes(every, filters)
    assert len(folded.rows(0, 1)) == 3
    assert folded.nbytes == DeltaCodes(every).nbytes + sum(words.nbytes for words in filters)
    assert folded.filters() == filters, "for the next one that is folded"
    folded.extend_filter()
    assert len(folded.rows(0, 1)) == len(folded.filters()) == 1
