"""Copied rows: the memory that is planned for them, and copies that have to be continued."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.engine.page_rows import Openers
from semistream.engine.rows.copied_rows import CopiedRows, bytes_of
from semistream.kernels.page_columns import copy_codes
from semistream.master.scattered_pages import Places

ROWS = 3000
SKEWED = ["a", "b", "c"]


def rows(texts: int) -> pa.Table:
    """One column has all the text of the first rows, another one that of the next, and so on.
    In the second half, there are nulls."""
    rng = np.random.default_rng(2)
    long, half = ["x" * int(n) for n in rng.integers(0, 400, ROWS)], ROWS // 2
    found = {"k": pa.array(range(ROWS))}
    for t, name in enumerate(SKEWED[:texts]):
        values = [text if i * texts // ROWS == t else "" for i, text in enumerate(long)]
        found[name] = pa.array(values, pa.large_string() if t == 1 else pa.string())
    for i in range(6):
        found[f"v{i}"] = pa.array(
            [None if r > half and r % (i + 5) == 0 else r for r in range(ROWS)]
        )
    return pa.table(found)


class Copier:
    """Copies rows of a table, part by part, and compares them with the table's."""

    def __init__(self, path: Path, data: pa.Table, names: Sequence[Sequence[str]], most: int):
        self.data = data
        table: Any = ss.MasterTable.build(data, path, key="k", unique=True, page_bytes=16 << 10)
        segment, openers = table.pages.segment, Openers(table)
        self.names, every = names, [name for some in names for name in some]
        self.most, self.count = most, table.num_pages
        self.firsts = table.index.firsts
        sizes = table.row_bytes, table.max_row_bytes
        self.planned = bytes_of([data.schema.field(n).type for n in every], most, sizes[1])
        parts = [openers(some) if some else None for some in names]
        self.copied = CopiedRows(openers(every), parts, most, *sizes)
        self.map = whole = segment.whole_map().memory  # it lasts as long as this
        self.file = Places(
            segment.offsets, segment.pages.lengths, whole.address, whole.address + whole.size, 8
        )

    def copy(self, codes: Any) -> list[int]:
        """The number of rows of every part."""
        numbers = np.arange(self.count)
        places = (np.searchsorted(self.firsts, codes, side="right") - 1).astype(np.int32)
        counts, first = [], 0
        while first < len(codes):
            following = self.copied.copy(codes, places, first, numbers, self.file)
            assert following > first
            assert self.copied.nbytes <= self.planned
            assert self.copied.count <= self.most
            self._check(first, codes[first:following])
            counts.append(self.copied.count)
            first = following
        return counts

    def longest(self, name: str) -> Any:
        """Which rows have a long text in this column."""
        lengths = np.array([len(text) for text in self.data[name].to_pylist()])
        return lengths > 0.8 * lengths.max()

    def _check(self, first: int, codes: Any) -> None:
        loaded, expected = self.copied.loaded(first), self.data.take(codes)
        assert (loaded.is_copied, loaded.first_tuple) == (True, first)
        assert (loaded.pages.tolist(), loaded.sizes.tolist()) == ([0], [len(codes)])
        found = np.empty(len(codes), np.int64)
        copy_codes(loaded.codes, loaded.sizes, found)
        assert found.tolist() == codes.tolist()
        columns = loaded.columns, loaded.keys, loaded.conditions, loaded.further
        for some, column in zip(self.names, columns, strict=False):
            assert (column is None) == (not some)
            if column is not None:
                values = column.take(np.zeros(len(codes), np.int64), np.arange(len(codes)))
                assert [v.to_pylist() for v in values] == [
                    expected[name].to_pylist() for name in some
                ]


@pytest.mark.parametrize("most", [7, 100, 1000])
def test_skewed_texts_stay_within_what_is_planned(most: int, tmp_path: Path) -> None:
    copier = Copier(tmp_path / "t", rows(3), [["a", "v0", "b", "c"]], most)
    counts = copier.copy(np.arange(ROWS))
    assert sum(counts) == ROWS
    assert len(counts) < 2 * ROWS / most  # most of them use the room that there is
    parts = [np.flatnonzero(copier.longest(name))[-most:] for name in SKEWED]
    for part in (*parts, *parts[::-1], *parts):  # one text has all the room, then another one
        assert sum(copier.copy(np.sort(part))) == len(part)


def test_nulls_that_come_when_texts_have_all_the_room(tmp_path: Path) -> None:
    texts = ["x" * (130 if i < 400 else 100) for i in range(ROWS)]  # those are longer than usual
    data = rows(0).append_column("a", pa.array(texts))
    names = [["a"], [], [f"v{i}" for i in range(6)], []]
    copier = Copier(tmp_path / "t", data, names, 400)
    for part in (np.arange(400), np.arange(ROWS - 400, ROWS)):
        assert copier.copy(part) == [400]


@pytest.mark.parametrize("texts", [0, 1, 2])
def test_columns_that_conditions_read_too(texts: int, tmp_path: Path) -> None:
    """They are copied once for the output, and once for the conditions."""
    values = [f"v{i}" for i in range(6)]
    names = [[*SKEWED[:texts], *values], ["k"], ["k", *values], []]
    copier = Copier(tmp_path / "t", rows(texts), names, 50)
    assert sum(copier.copy(np.arange(ROWS))) == ROWS


def test_a_copy_is_continued(tmp_path: Path) -> None:
    copier = Copier(tmp_path / "t", rows(1), [["v1"], [], ["a"], []], 64)
    assert copier.copy(np.arange(5, 205)) == [64, 64, 64, 8]
    assert copier.copy(np.arange(5, 6)) == [1]


def test_rows_that_do_not_fit(tmp_path: Path) -> None:
    """Six rows of a key need room for six."""
    data = pa.table({"k": [1, 2, 2, 2, 2, 2, 2, 3], "v": range(8)})
    path = tmp_path / "t"
    table: Any = ss.MasterTable.build(data, path, key="k", unique=False, page_bytes=128)
    segment, openers = table.pages.segment, Openers(table)
    opener = openers(["v"])
    whole = segment.whole_map().memory
    file = Places(
        segment.offsets, segment.pages.lengths, whole.address, whole.address + whole.size, 8
    )
    codes = np.array([1, 2, 3])
    places = np.maximum(0, np.searchsorted(table.index.firsts, codes) - 1).astype(np.int32)
    for most, expected in ((6, [1, 2, 3]), (5, [1, 1])):
        copied = CopiedRows(opener, [opener], most, table.row_bytes, table.max_row_bytes)
        found, first = [], 0
        while len(found) < len(expected):
            first = copied.copy(codes, places, first, np.arange(table.num_pages), file)
            found.append(first)
        assert found == expected
