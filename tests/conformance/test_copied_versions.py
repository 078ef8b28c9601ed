"""Rows that SweepJoin copies out of mapped pages while its table changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import naive
import semistream as ss
from copied import MEMORY
from harness import build, check_books, cut, drive, watched
from master.split_base import split

KEYS = 900
LONGEST = 40_000  # so long that fewer rows are copied at a time than some keys have

many_bases = pytest.mark.parametrize("cuts", [(), (300, 301, 900)], ids=["one file", "four files"])


def rows(keys: Sequence[int], text: str, most: int) -> pa.Table:
    """``most`` rows of every key; with several, some keys have many more, and one text is long."""
    counts = [most + 30 * (key % 50 == 49) if most > 1 else 1 for key in keys]
    every = np.repeat(keys, counts).tolist()
    texts = [f"{text} {k} {i}" + "." * (k % 60) for i, k in enumerate(every)]
    if most > 1 and texts:
        texts[len(texts) // 2] += "." * LONGEST
    return pa.table({"k": pa.array(every, pa.int64()), "text": texts})


def stream(seed: int, count: int = 400) -> pa.Table:
    """Keys are frequent or not, absent, or null."""
    rng = np.random.default_rng(seed)
    keys = np.where(
        rng.random(count) < 0.3, rng.integers(40, 60, count), rng.integers(-9, KEYS + 99, count)
    )
    values = [None if n % 50 == 0 else int(key) for n, key in enumerate(keys)]
    return pa.table(
        {"n": range(seed * 1000, seed * 1000 + count), "k": pa.array(values, pa.int64())}
    )


def without(table: pa.Table, keys: set[int]) -> pa.Table:
    return table.filter(pa.array([key not in keys for key in table["k"].to_pylist()]))


EVERY = pa.table({"n": range(-KEYS, 0), "k": range(KEYS)})


class Changing:
    """A table and what it should have."""

    def __init__(self, path: Path, cuts: tuple[int, ...], most: int) -> None:
        self.data, self.most = rows(range(KEYS), "base", most), most
        if cuts:
            self.master = split(path, self.data, cuts)
        else:
            self.master = build(path, self.data, ["k"], unique=most == 1)

    def change(self, turn: int) -> None:
        """Upsert or delete, in turn; some keys for the first time, and some again and again."""
        keys = {5, 50, 300, 301, *range(turn * 40, turn * 40 + 20), KEYS + turn}
        self.data = without(self.data, keys)
        if turn % 3 == 2:
            self.master = self.master.delete(sorted(keys))
        else:
            changed = rows(sorted(keys), f"turn {turn}", self.most)
            self.data = pa.concat_tables([self.data, changed])
            self.master = self.master.upsert(changed)


@pytest.mark.parametrize("most", [1, 4], ids=["one row", "many rows"])
@many_bases
def test_every_version_of_a_table(
    cuts: tuple[int, ...], most: int, tmp_path: Path, copies: list[int]
) -> None:
    table = Changing(tmp_path / "t", cuts, most)
    for turn in range(6):
        how = naive.HOWS[turn % 2]
        join = ss.SweepJoin(memory=MEMORY, how=how, front_stage="4KB")
        with join.open(table.master, on="k") as run:  # pages are checked when they are first read
            drive(run, cut(EVERY, KEYS))
        copies.clear()
        part = stream(turn)
        with join.open(table.master, on="k") as run:
            out = drive(run, cut(part, 400))
        naive.same_rows(naive.rows_of(out), naive.join(part, table.data, "k", how))
        assert sum(copies) > 100
        assert most == 1 or (len(copies) > 5 and max(copies) < 34), "all rows of all keys fit"
        table.change(turn)


@pytest.mark.parametrize("most", [1, 4], ids=["one row", "many rows"])
@many_bases
def test_a_run_that_follows_its_table(
    cuts: tuple[int, ...], most: int, tmp_path: Path, copies: list[int]
) -> None:
    """Tuples wait while it changes."""
    table = Changing(tmp_path / "t", cuts, most)
    join = ss.SweepJoin(memory=MEMORY, how="left", front_stage="4KB")
    expected, out = [], []
    with join.open(table.master, on="k", follow=True) as run:
        for turn in range(9):
            out += drive(run, cut(EVERY, KEYS))  # new pages are read
            copies.clear()
            out += drive(run, cut(stream(2 * turn), 200))
            assert sum(copies) > 100
            out += watched(run, run.push(cut(stream(2 * turn + 1), 400)[0]))
            assert run.stats.waiting
            assert run.version == table.master.version
            for part in (EVERY, stream(2 * turn), stream(2 * turn + 1)):
                expected += naive.join(part, table.data, "k", "left")
            table.change(turn)
            if turn % 4 == 3:
                table.master = table.master.compact()
        out += watched(run, run.flush())
        check_books(run)
    naive.same_rows(naive.rows_of(out), expected)
