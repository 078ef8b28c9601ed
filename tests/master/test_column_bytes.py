"""Sizes of values, from a few pages of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.master import column_bytes

ROWS = 5_000


def build(path: Path, texts: list[str | None], **options: Any) -> ss.MasterTable:
    data = pa.table({"k": np.arange(len(texts)), "t": texts, "n": np.zeros(len(texts), np.int32)})
    return ss.MasterTable.build(data, path / "t", key="k", page_bytes=4096, **options)


def test_the_average_of_every_column(tmp_path: Path) -> None:
    table = build(tmp_path, ["x" * (10 + i % 20) for i in range(ROWS)])
    sizes = table.column_bytes
    assert sizes is not None
    assert table.num_pages > 3 * column_bytes._PAGES
    assert sizes["k"] == 8
    assert sizes["n"] == 4
    assert sizes["t"] == pytest.approx(10 + 9.5 + 4, abs=1.0)  # and an offset


def test_the_sample_is_of_the_whole_table(tmp_path: Path) -> None:
    """Its long texts are in one part."""
    table = build(tmp_path, ["x" * (500 if i < ROWS // 4 else 10) for i in range(ROWS)])
    sizes = table.column_bytes
    assert sizes is not None
    assert 14 < sizes["t"] < 504


def test_nulls_have_no_content(tmp_path: Path) -> None:
    sizes = build(tmp_path, [None] * ROWS).column_bytes
    assert sizes is not None
    assert sizes["t"] < 6


def test_later_versions_keep_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = build(tmp_path, ["x" * 10] * ROWS)
    sizes = table.column_bytes
    monkeypatch.setattr(column_bytes, "PlainReader", None)  # nothing is read any more
    newer = table.upsert(pa.table({"k": [1], "t": ["y" * 1000], "n": pa.array([1], pa.int32())}))
    assert newer.column_bytes is sizes
    assert table.at_version(newer.version).column_bytes is sizes


def test_nothing_is_known_of_an_empty_table(tmp_path: Path) -> None:
    empty = pa.schema([("k", pa.int64()), ("t", pa.string())]).empty_table()
    assert ss.MasterTable.build(empty, tmp_path / "e", key="k").column_bytes is None


def test_a_table_of_deltas_only(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("t", pa.string())])
    table = ss.MasterTable.build(schema.empty_table(), tmp_path / "e", key="k")
    newer = table.upsert(pa.table({"k": [1, 2], "t": ["abc", "abcde"]}))
    assert newer.column_bytes is not None
    assert newer.column_bytes["t"] == pytest.approx(4 + 4, abs=0.1 + 4 / 2)


def test_large_pages_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_bytes, "_MOST_BYTES", 1024)
    assert build(tmp_path, ["x" * 100] * ROWS).column_bytes is None


def test_a_damaged_page_is_left_to_the_join_that_needs_it(tmp_path: Path) -> None:
    table = build(tmp_path, ["x" * 100] * ROWS)
    (path,) = (path for _, path in table.pages.segment.parts)
    with open(path, "r+b") as file:
        file.seek(int(table.pages.segment.offsets[0]) + 2000)
        file.write(b"damaged!")
    opened = ss.MasterTable.open(table.path)
    assert opened.column_bytes is None
    with (
        ss.SweepJoin(memory="2MB").open(opened, on="k") as run,
        pytest.raises(ss.MasterTableError, match="page 0 "),
    ):
        assert [*run.push(pa.record_batch({"k": [0]})), *run.flush()] == []


def test_a_page_of_the_sample_is_checked_when_a_join_reads_it(tmp_path: Path) -> None:
    table = build(tmp_path, ["x" * 100] * ROWS)
    opened = ss.MasterTable.open(table.path)
    assert opened.column_bytes is not None
    assert not opened.pages.segment.checked.any()
    opened.reader(1).read(0)
    opened._sampled = None
    assert opened.column_bytes is not None
    assert opened.pages.segment.checked.nonzero()[0].tolist() == [0]


def test_a_text_that_is_selected_fills_the_front_stage(tmp_path: Path) -> None:
    """Of a wide row, only what is cached counts: estimated from the whole row, there would be room
    for a fifth of the rows."""
    names = [f"c{i}" for i in range(30)]
    columns = {name: [f"{i:040d}" for i in range(ROWS)] for name in names}
    data = pa.table({"k": np.arange(ROWS), **columns})
    table = ss.MasterTable.build(data, tmp_path / "w", key="k")
    stream = pa.record_batch({"k": np.tile(np.arange(ROWS), 4)})
    join = ss.SweepJoin(memory="1MB", front_stage=0.4, adapt=False)
    with join.open(table, on="k", select=["c3"]) as run:
        rows = [*run.push(stream), *run.flush()]
        assert sum(batch.num_rows for batch in rows) == 4 * ROWS
        plan = run.plan
        assert plan.front is not None
        assert plan.front.capacity > 0.4e6 / 150
