"""Deltas beside the base: which rows are visible, how deltas are folded, which files exist."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import naive
import semistream as ss
from semistream.errors import BudgetError, MasterTableError
from semistream.keys import KeyCodec
from semistream.master import MasterTable, compact_hint, verify
from semistream.master.changed import ChangedCodes, united
from semistream.master.delta_codes import Delta, DeltaCodes
from semistream.master.index import PageIndex
from semistream.master.merge import merge_by_code

ROWS = 2_000


def rows(keys: Any, text: str = "") -> pa.Table:
    keys = list(keys)
    texts = [f"{text}{key}" + "x" * (key % 7) for key in keys]
    return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array(texts, pa.string())})


@pytest.fixture
def table(tmp_path: Path) -> MasterTable:
    return MasterTable.build(rows(range(ROWS)), tmp_path / "t", key="k", page_bytes=600)


def shown(table: MasterTable) -> list[tuple[int, str]]:
    data = table.to_table()
    return list(zip(data["k"].to_pylist(), data["v"].to_pylist(), strict=True))


# -- folding -------------------------------------------------------------------------------------


def test_many_upserts_leave_few_deltas(table: MasterTable) -> None:
    rng, model = random.Random(1), dict(shown(table))
    most = 0
    for number in range(200):
        keys = rng.sample(range(ROWS + 50), rng.choice([1, 1, 2, 5]))
        new = rows(keys, f"{number}:")
        model |= dict(zip(new["k"].to_pylist(), new["v"].to_pylist(), strict=True))
        table = table.upsert(new)
        if number % 10 == 0:
            gone = rng.choice(keys)
            del model[gone]
            table = table.delete([gone])
        most = max(most, len(table.manifest.deltas))
    assert 1 < most <= 12
    assert shown(table) == sorted(model.items())
    assert table.num_rows == len(model)
    assert verify(table) == []
    assert shown(table.compact()) == sorted(model.items())


def test_a_delta_that_is_twice_as_large_is_kept(table: MasterTable) -> None:
    table = table.upsert(rows(range(10)))
    table = table.upsert(rows(range(20, 24)))  # 10 > 2 * 4
    assert [delta.changes for delta in table.manifest.deltas] == [10, 4]
    table = table.upsert(rows([30]))  # 4 > 2
    assert [delta.changes for delta in table.manifest.deltas] == [10, 4, 1]
    table = table.delete([31, 22])  # folds 1, then 4 <= 2 * 3, then 10 <= 2 * 7; 22 is in two
    assert [delta.changes for delta in table.manifest.deltas] == [16]
    assert table.num_rows == ROWS - 2


def test_every_version_lists_its_own_changes(table: MasterTable) -> None:
    second = table.upsert(rows([5, 3]))
    third = second.delete([7, 10**9])
    fourth = third.upsert(rows([3]))

    def changed(table: MasterTable, since: int) -> list[list[int]]:
        lists = table.changed_codes(since)
        assert lists is not None
        return [codes.tolist() for codes in lists]

    assert changed(fourth, 3) == [[3]]
    assert changed(fourth, 2) == [[7, 10**9], [3]]
    assert changed(fourth, 1) == [[3, 5], [7, 10**9], [3]]
    assert changed(third, 2) == [[7, 10**9]]


# -- the index and its mask ----------------------------------------------------------------------


def test_changed_codes_are_located_in_their_newest_delta(table: MasterTable) -> None:
    base = table.num_pages
    table = table.upsert(rows(range(500, 700))).upsert(rows([600, 10**6])).delete([501, 1999])
    index = table.index
    assert len(table.manifest.deltas) == 3 - 1  # the last two are folded
    assert index.base_pages == base
    assert index.boundaries[0] == base
    low, high = index.locate_codes(np.array([0, 499, 501, 502, 600, 10**6, 1999]))
    assert (low[2] > high[2], low[6] > high[6]) == (True, True)
    assert high[0] < base > high[1]
    first, second = table.pages.pages_of(0), table.pages.pages_of(1)
    assert first[0] <= low[3] <= high[3] < first[1]
    assert (low[4], low[5]) == (second[0], second[0])
    assert not index.continues[[bound - 1 for bound in index.boundaries]].any()
    assert index.nbytes >= 8 * sum(len(delta.codes.codes) for delta in index.deltas)


@pytest.mark.parametrize("seed", range(10))
def test_an_index_made_from_another_version_is_that_of_the_files(
    table: MasterTable, seed: int
) -> None:
    rng = random.Random(seed)
    versions = [table]
    for number in range(8):
        keys = rng.sample(range(2 * ROWS), rng.choice([1, 3, 20, 100]))
        table = table.delete(keys) if number and rng.random() < 0.3 else table.upsert(rows(keys))
        if rng.random() < 0.1:
            table = table.compact()
        versions.append(table)
    for known in versions:
        for wanted in versions:
            found, right = (
                known.at_version(wanted.version),
                MasterTable.open(table.path, version=wanted.version),
            )
            for name in ("deleted", "firsts"):
                assert np.array_equal(getattr(found.index, name), getattr(right.index, name)), name
            for ours, theirs in zip(found.index.deltas, right.index.deltas, strict=True):
                assert ours[1:] == theirs[1:]
                assert np.array_equal(ours.codes.codes, theirs.codes.codes)
            codes = np.arange(-1, 2 * ROWS + 1)
            for one, other in zip(
                found.index.locate_codes(codes), right.index.locate_codes(codes), strict=True
            ):
                assert np.array_equal(one, other)


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_visible_where_their_code_is_located(seed: int) -> None:
    rng = random.Random(seed)
    base, kept = rng.randint(0, 3), rng.randint(0, 1)  # kept: a page of a delta that was folded
    codes = [sorted(rng.choices(range(40), k=rng.randint(0, 30))) for _ in range(base)]
    deltas, newest = [], {}
    for number in range(rng.choice([0, 1, 3])):
        changed = sorted(rng.sample(range(-5, 45), rng.choice([1, 5, 30])))
        present = [rng.random() < 0.7 for _ in changed]
        rows = [code for code, there in zip(changed, present, strict=True) if there]
        pages = [rows[:9], rows[9:]] if len(rows) > 9 else [rows][: len(rows)]
        some = DeltaCodes(ChangedCodes(np.array(changed), np.array(present)))
        deltas.append(Delta(some, len(codes), len(codes) + len(pages)))
        newest |= dict.fromkeys(changed, number)
        codes += pages
    own = len(codes)
    codes += [sorted(newest)] * kept
    segment = [-1] * base + [n for n, d in enumerate(deltas) for _ in range(d.first, d.end)]
    index = PageIndex(
        KeyCodec.for_types([pa.int64()]), np.arange(len(codes)), np.zeros(len(codes), np.bool_),
        boundaries=[delta.first for delta in deltas], deltas=deltas, own_pages=own,
    )  # fmt: skip
    first = rng.randrange(max(1, len(codes)))
    some_pages = codes[first:]
    expected = [
        number < own and newest.get(code, -1) == segment[number]
        for number, page in enumerate(some_pages, first)
        for code in page
    ]
    flat = np.array([code for page in some_pages for code in page], np.int64)
    found = index.visible(first, flat, np.cumsum([len(page) for page in some_pages], dtype=int))
    if deltas:
        assert found is not None
        assert found.tolist() == expected
    else:
        assert found is None, "no delta hides anything"


def test_an_empty_base_with_deltas(tmp_path: Path) -> None:
    table = MasterTable.build(rows([]), tmp_path / "t", key="k")
    table = table.upsert(rows([2, 1])).delete([2])
    assert [key for key, _ in shown(table)] == [1]
    low, high = table.index.locate_codes(np.array([0, 1, 2]))
    assert (low <= high).tolist() == [False, True, False]


@pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))
@pytest.mark.parametrize("base", [0, ROWS])
def test_every_join_sees_what_is_visible(algorithm: str, base: int, tmp_path: Path) -> None:
    rng = random.Random(7)
    table = MasterTable.build(rows(range(base)), tmp_path / "t", key="k", page_bytes=600)
    table = table.upsert(rows(range(100, 300), "a")).delete(range(0, 300, 7))
    table = table.upsert(rows([*range(290, 310), 5000, 5001], "b")).delete([5001, 1500])
    assert len(table.manifest.deltas) > 1
    keys = [rng.randrange(-5, base + 50) for _ in range(1500)] + [0, 7, 299, 5000, 5001, 1500] * 9
    stream = pa.table({"k": pa.array(keys, pa.int64()), "at": range(len(keys))})
    options = {"observe": 300} if "x-hybrid" in algorithm else {}
    with ss.join(algorithm, memory="2MB", how="left", **options).open(table, on="k") as run:
        found = [out for b in stream.to_batches(max_chunksize=200) for out in run.push(b)]
        found += list(run.flush())
        assert run.memory.total <= run.memory.budget
    naive.same_rows(naive.rows_of(found), naive.join(stream, table.to_table(), "k", "left"))


# -- files ---------------------------------------------------------------------------------------


def files(table: MasterTable) -> set[str]:
    return {f"segments/{name}" for name in table.store.list("segments")}


def test_vacuum_keeps_the_changed_codes_of_kept_versions(table: MasterTable) -> None:
    table = table.upsert(rows(range(50))).upsert(rows([1])).delete([2])
    manifest = table.manifest
    assert manifest.changed is not None
    assert {info.changed.file for info in manifest.deltas} | {manifest.changed.file} <= files(table)
    table.vacuum(keep=1)
    assert files(table) == manifest.files
    assert MasterTable.open(table.path).num_rows == ROWS - 1
    table.compact().vacuum(keep=1)
    assert files(table) == MasterTable.open(table.path).manifest.files
    assert not [name for name in files(table) if "changed" in name]


def test_a_refused_change_leaves_no_files(tmp_path: Path) -> None:
    table = MasterTable.build(rows(range(10)), tmp_path / "t", key="k", unique=True)
    table = table.upsert(rows([3]))
    before = files(table)
    with pytest.raises(ss.ConfigError, match="k=4 occurs more than once"):
        table.upsert(rows([4, 4]))
    stale = table
    table.upsert(rows([5]))
    after = files(table)
    with pytest.raises(MasterTableError, match="no longer the newest"):
        stale.upsert(rows([6]))
    assert before < after == files(table)


@pytest.mark.parametrize("damage", ["missing", "flipped", "truncated"])
def test_damaged_changed_codes_are_found(table: MasterTable, damage: str) -> None:
    table = table.delete([1, 2])
    (delta,) = table.manifest.deltas
    assert delta.changed is not None
    file = table.store.path(delta.changed.file)
    data = bytearray(file.read_bytes())
    if damage == "missing":
        file.unlink()
    else:
        data[len(data) // 2] ^= 1
        file.write_bytes(data if damage == "flipped" else data[: len(data) // 2])
    with pytest.raises(MasterTableError, match=file.name):
        MasterTable.open(table.path)
    assert any(file.name in str(problem) for problem in verify(table.path))
    with pytest.raises(MasterTableError, match="nothing was deleted"):
        table.vacuum(keep=1)


def test_verify_compares_the_changed_codes_with_the_rows(
    table: MasterTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = ChangedCodes(np.array([3, 4]), np.array([True, True]))
    with monkeypatch.context() as forged:
        forged.setattr("semistream.master.change.Change.changed", lambda change: wrong)
        table = table.upsert(rows([3]))
    assert any("which codes have rows" in problem.what for problem in verify(table))
    with monkeypatch.context() as forged:
        forged.setattr("semistream.master.change.Change.changed", lambda change: wrong)
        table = table.upsert(rows(range(8, 1000)))
    assert any("not among the delta's changed codes" in problem.what for problem in verify(table))


def test_lists_of_changed_codes_are_united() -> None:
    newer = ChangedCodes(np.array([2, 5]), np.array([False, True]))
    older = ChangedCodes(np.array([1, 2, 9]), np.array([True, True, False]))
    both = united([newer, older])
    assert both.codes.tolist() == [1, 2, 5, 9]
    assert both.present.tolist() == [True, False, True, False]


# -- merging, advice -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_streams_are_merged_in_code_order(seed: int) -> None:
    rng = random.Random(seed)
    number = iter(range(10**6))

    def stream() -> list[pa.RecordBatch]:
        codes = sorted(rng.choices(range(50), k=rng.randint(0, 200)))
        table = pa.table({"c": pa.array(codes, pa.int64()), "n": [next(number) for _ in codes]})
        return table.to_batches(max_chunksize=rng.randint(1, 40))

    streams = [stream() for _ in range(rng.randint(0, 5))]
    merged = list(merge_by_code(streams, "c"))
    assert all(batch.num_rows for batch in merged)
    codes = [code for batch in merged for code in batch["c"].to_pylist()]
    assert codes == sorted(codes)
    pairs = {pair for batch in merged for pair in zip(*batch.to_pydict().values(), strict=True)}
    given = {p for s in streams for b in s for p in zip(*b.to_pydict().values(), strict=True)}
    assert pairs == given
    assert len(codes) == len(given)


def test_compact_is_suggested_once(
    table: MasterTable, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact_hint, "_suggested", set())
    with caplog.at_level(logging.INFO, compact_hint.__name__):
        table = table.upsert(rows(range(ROWS // 20)))
        assert not caplog.records
        table = table.delete(range(ROWS // 2))
        table = table.upsert(rows([1]))
    (record,) = caplog.records
    assert "compact()" in record.getMessage()
    assert table.path in record.getMessage()
    assert table.manifest.delta_share > 0.5


def test_changed_codes_count_in_the_budget(table: MasterTable) -> None:
    join = ss.join("sweepjoin", memory="150KB")
    with join.open(table, on="k") as run:
        before = run.memory["page index"]
    table = table.delete(range(10_000, 30_000))
    with pytest.raises(BudgetError, match=r"smallest budget that can is (\d+) bytes.*compact\(\)"):
        join.open(table, on="k")
    with ss.join("sweepjoin", memory="1MB").open(table, on="k") as run:
        assert run.memory["page index"] >= before + 16 * 20_000
    with join.open(table.compact(), on="k") as run:
        assert run.memory["page index"] <= before
