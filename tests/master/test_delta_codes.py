"""The changed codes of deltas in memory: shared by versions, and their filters made in steps."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from semistream.master import MasterTable, changes, code_list
from semistream.master.changed import ChangedCodes
from semistream.master.code_list import CodeList, MergedList
from semistream.master.delta_codes import DeltaCodes

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
    for limit in ("_ADDED_AT_ONCE", "_MERGED_AT_ONCE"):
        monkeypatch.setattr(code_list, limit, rng.choice([7, 50, 1000]))
    written = MasterTable.build(rows(list(range(KEYS))), tmp_path / "t", key="k", page_bytes=600)
    monkeypatch.setattr(changes, "_FOLDED_AT_ONCE", rng.choice([1, 2, 64]))
    read, every, present = written, np.arange(-5, 2 * KEYS), set(range(KEYS))
    for _ in range(14):
        keys = rng.sample(range(2 * KEYS), rng.choice([1, 20, 60]))
        is_upsert = rng.random() < 0.8
        written = written.upsert(rows(keys)) if is_upsert else written.delete(keys)
        present = present | set(keys) if is_upsert else present - set(keys)
        if rng.random() < 0.8:  # else a version is skipped
            read = read.at_version(written.version, rng.choice([0, read.num_pages]))
            for _ in range(rng.choice([0, 1, 5, 300])):
                if not read.index.extend_filters():
                    read.index.merge_lists(room=rng.choice([0, 1 << 20]))
            fresh = MasterTable.open(written.path).index
            lists = [delta.codes.codes for delta in fresh.deltas]
            expected = np.full(len(every), -1)
            for number, codes in enumerate(lists):
                expected[np.isin(every, codes)] = number
            assert np.array_equal(read.index.deltas_of(every), expected)
            assert np.array_equal(read.index.deleted, fresh.deleted)
            assert np.array_equal(read.index.locate_codes(every), fresh.locate_codes(every))
            assert read.to_table().equals(rows(sorted(present)))


def test_lists_are_shared_by_the_versions_that_have_the_delta(tmp_path: Path) -> None:
    table = MasterTable.build(rows(list(range(KEYS))), tmp_path / "t", key="k", page_bytes=600)
    first = table.at_version(table.upsert(rows(list(range(100)))).version)
    second = first.at_version(MasterTable.open(table.path).upsert(rows([5])).version)
    assert second.index.deltas[0].codes is first.index.deltas[0].codes
    assert len(second.index.deltas) == 2


def test_a_fold_shares_the_lists_of_the_deltas_that_it_consists_of() -> None:
    older = DeltaCodes(ChangedCodes(np.array([1, 3, 5]), np.array([False, True, False])), "a")
    newer, change = codes_of([3, 7]), DeltaCodes(ChangedCodes(np.array([5]), np.array([True])))
    fold = DeltaCodes.of_fold([older, newer], change)
    assert fold is not None
    assert fold.lists == (*older.lists, *newer.lists, *change.lists)
    assert fold.codes.tolist() == [1, 3, 5, 7]
    assert fold.deleted.tolist() == [1], "the newest delta that has a code decides"
    shared = older.nbytes + newer.nbytes + change.nbytes - older.deleted.nbytes
    assert fold.nbytes == shared + fold.deleted.nbytes, "no code is copied"


def test_a_fold_of_too_many_lists_is_read_from_its_file() -> None:
    assert DeltaCodes.of_fold([codes_of([k]) for k in range(16)], codes_of([16])) is None


def test_lists_that_are_merged_take_memory_until_they_are_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(code_list, "_MERGED_AT_ONCE", 4)
    larger = codes_of(list(range(20, 30)))
    fold = DeltaCodes.of_fold([codes_of([1, 3, 5, 7, 9]), larger], codes_of([3, 4, 5]))
    assert fold is not None
    before, more = fold.nbytes, fold.bytes_to_merge
    lists = fold.lists
    assert more == MergedList.bytes_for(5 + 3), "the two smallest first"
    fold.merge()
    assert fold.nbytes == before + more
    assert fold.bytes_to_merge == 0, "it has its memory already"
    assert fold.lists is lists, "they serve until all codes are merged"
    while fold.lists is lists:
        fold.merge()
    assert [one.codes.tolist() for one in fold.lists] == [[*range(20, 30)], [1, 3, 4, 5, 7, 9]]
    assert fold.nbytes == larger.nbytes + more
    more = fold.bytes_to_merge
    for _ in range(20):
        fold.merge()
    assert [one.codes.tolist() for one in fold.lists] == [[1, 3, 4, 5, 7, 9, *range(20, 30)]]
    assert fold.is_filtered
    assert fold.nbytes == more


@pytest.mark.parametrize("seed", range(20))
def test_merged_lists_have_every_code_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(code_list, "_MERGED_AT_ONCE", int(rng.integers(1, 50)))
    most = int(rng.choice([60, 10**6]))
    lists = [np.unique(rng.integers(-most, most, n)) for n in rng.integers(1, 80, 5)]
    merging, steps = MergedList(lists), 1
    while not merging.extend():
        steps += 1
    whole = merging.whole()
    assert np.array_equal(whole.codes, np.unique(np.concatenate(lists)))
    assert whole.is_filtered
    assert whole.nbytes >= CodeList(np.array(whole.codes)).nbytes
    assert steps <= sum(map(len, lists))


def test_the_codes_of_a_change_are_not_read_again(tmp_path: Path) -> None:
    """Those of a folded delta are not read at all."""
    written = MasterTable.build(rows(list(range(KEYS))), tmp_path / "t", key="k", page_bytes=600)
    read = written
    for keys in ([1, 2, 3], [3, 4], [5, 6]):
        written = written.upsert(rows(keys))
        before, read = read, read.at_version(written.version)
        own = written.manifest.changed
        assert own is not None
        files = {info.changed.file for info in written.manifest.deltas if info.changed}
        folded = files - {own.file}
        for file in (own.file, *folded):
            written.store.path(file).rename(tmp_path / "hidden")
            found = read.changed_since(before)
            assert found is not None
            assert [codes.tolist() for codes in found] == [keys]
            if file in folded:
                before.at_version(written.version)
            (tmp_path / "hidden").rename(written.store.path(file))
    assert len(read.index.deltas) == 1
    assert len(read.index.deltas[0].codes.lists) == 3
