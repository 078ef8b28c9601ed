"""Rows of some codes are counted as a plain count of all rows says, whatever changed before."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.master.present_rows import PresentRows


def rows(keys: Any, text: str) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), "v": [f"{text} {k}" for k in keys]})


def changed_table(path: Path, unique: bool) -> ss.MasterTable:
    """A base with every third key, two deltas and deleted keys."""
    keys = np.repeat(np.arange(0, 6_000, 3), 1 if unique else 3)
    table = ss.MasterTable.build(rows(keys, "base"), path, key="k", unique=unique, page_bytes=1_024)
    table = table.upsert(rows(np.arange(0, 3_000, 2), "first"))
    table = table.delete(np.arange(0, 1_200, 6))
    again = np.repeat(np.arange(900, 1_500, 5), 1 if unique else 2)
    return table.upsert(rows(again, "second"))


@pytest.mark.parametrize("unique", [True, False], ids=["one row per key", "several"])
@pytest.mark.parametrize("mapped", [False, True])
def test_rows_are_counted(tmp_path: Path, unique: bool, mapped: bool) -> None:
    changed_table(tmp_path / "t", unique)
    table = ss.MasterTable.open(tmp_path / "t", mapped=mapped)
    there = Counter(table.read(["k"])["k"].to_pylist())
    assert len(there) > 2_000
    random = np.random.default_rng(3)
    present = PresentRows(table)
    for size in (1, 50, 5_000):
        keys = np.unique(random.integers(-10, 6_100, size))
        codes, _ = table.codec.codes([pa.array(keys)])
        assert present.count(codes) == sum(there[key] for key in keys.tolist())
    assert present.count(np.zeros(0, np.int64)) == 0


@pytest.mark.parametrize("unique", [True, False])
def test_a_table_knows_its_rows_after_large_changes(tmp_path: Path, unique: bool) -> None:
    """Of as many keys as compiled code counts, and of fewer."""
    table = changed_table(tmp_path / "t", unique)
    expected = Counter(table.read(["k"])["k"].to_pylist())
    random = np.random.default_rng(4)
    for size in (2_000, 30, 500):
        keys = np.unique(random.integers(0, 7_000, size))
        table = table.upsert(rows(keys, "more"))
        for key in keys.tolist():
            expected[key] = 1
        gone = np.unique(random.integers(0, 7_000, size))
        table = table.delete(gone)
        for key in gone.tolist():
            expected.pop(key, None)
        assert table.num_rows == sum(expected.values())
        assert Counter(table.read(["k"])["k"].to_pylist()) == expected
    assert table.compact().num_rows == sum(expected.values())
