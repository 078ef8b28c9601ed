"""The page source does not change the rows: plain Parquet, direct I/O, two tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import naive
import semistream as ss
from conformance.suite import every_algorithm, every_how
from harness import Case, build, cut, drive

WITHOUT_ORDER = [name for name, join in ss.ALGORITHMS.items() if not join.needs_order]
MASTER = pa.table({"k": [i * 7 % 900 for i in range(1000)], "v": range(1000)})
STREAM = pa.table(
    {"n": range(400), "k": np.random.default_rng(1).zipf(1.3, 400) % 1000},
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three Parquet files, unsorted, with row groups of several sizes."""
    folder = tmp_path_factory.mktemp("parquet")
    for i, (start, rows) in enumerate([(0, 333), (333, 600), (933, 67)]):
        part = MASTER.slice(start, rows)
        pq.write_table(part, folder / f"part-{i}.parquet", row_group_size=50 + 31 * i)
    return folder


@every_how
@pytest.mark.parametrize("algorithm", WITHOUT_ORDER)
@pytest.mark.parametrize("size", [7, 400])
def test_an_unmodified_parquet_folder(algorithm: str, how: str, size: int, folder: Path) -> None:
    with ss.join(algorithm, memory="300KB", how=how).open(folder, on="k") as run:
        out = naive.rows_of(drive(run, cut(STREAM, size)))
    naive.same_rows(out, naive.join(STREAM, MASTER, "k", how))


@pytest.mark.parametrize("algorithm", WITHOUT_ORDER)
def test_a_parquet_folder_given_by_path(algorithm: str, folder: Path) -> None:
    on = {"k": "v"}  # without an index any column can be the key
    with ss.join(algorithm, memory="300KB").open(str(folder), on=on) as run:
        out = naive.rows_of(drive(run, cut(STREAM, 100)))
    naive.same_rows(out, naive.join(STREAM, MASTER, on))


@pytest.mark.parametrize("algorithm", sorted(set(ss.ALGORITHMS) - set(WITHOUT_ORDER)))
def test_other_joins_need_an_index(algorithm: str, folder: Path) -> None:
    with pytest.raises(ss.ConfigError, match=r"MasterTable\.build"):
        ss.join(algorithm, memory="1MB").open(folder, on="k")


@pytest.mark.parametrize("algorithm", WITHOUT_ORDER)
def test_a_damaged_parquet_file(algorithm: str, tmp_path: Path) -> None:
    pq.write_table(MASTER, tmp_path / "a.parquet", row_group_size=50)
    out: list[pa.RecordBatch] = []
    with ss.join(algorithm, memory="300KB", how="left").open(tmp_path, on="k") as run:
        out += run.push(cut(STREAM, 10)[0])
        content = (tmp_path / "a.parquet").read_bytes()
        (tmp_path / "a.parquet").write_bytes(content[:100])
        with pytest.raises(ss.MasterTableError, match=r"a\.parquet"):
            out += run.flush()
        (tmp_path / "a.parquet").write_bytes(content)
        out += drive(run, [])
    naive.same_rows(naive.rows_of(out), naive.join(STREAM.slice(0, 10), MASTER, "k", "left"))


@every_algorithm
def test_direct_reads(algorithm: str, disk_path: Path) -> None:
    # Not every file system supports O_DIRECT; then the error says so.
    master = build(disk_path / "table", MASTER, ["k"], page_bytes=4096)
    try:
        with ss.join(algorithm, memory="200KB").open(master, on="k", direct=True) as run:
            out = naive.rows_of(drive(run, cut(STREAM, 100)))
    except ss.MasterTableError as refusal:
        pytest.skip(str(refusal))
    naive.same_rows(out, naive.join(STREAM, MASTER, "k"))


@every_algorithm
def test_two_chained_dimensions(algorithm: str, master_of: Any) -> None:
    """A row is returned after both dimensions were joined, never half-joined."""
    makers = pa.table({"v": range(0, 1000, 3), "maker": [f"m{i}" for i in range(334)]})
    first = Case("first", STREAM, MASTER)
    joined = naive.join(STREAM, MASTER, "k")
    columns = zip(*joined, strict=True)
    between = pa.table(dict(zip(naive.columns(STREAM, MASTER, "k"), columns, strict=True)))
    second = Case("second", between, makers, on="v")
    join = ss.join(algorithm, memory="300KB")
    out: list[pa.RecordBatch] = []
    with (
        join.open(master_of(first), on="k") as one,
        join.open(master_of(second), on="v") as two,
    ):
        for batch in cut(STREAM, 50):
            for rows in one.push(batch):
                out += two.push(rows)
        for rows in one.flush():
            out += two.push(rows)
        out += two.flush()
    naive.same_rows(naive.rows_of(out), naive.join(between, makers, "v"))


@every_algorithm
def test_a_master_table_given_by_path(algorithm: str, tmp_path: Path) -> None:
    build(tmp_path / "table", MASTER, ["k"])
    with ss.join(algorithm, memory="300KB").open(tmp_path / "table", on="k") as run:
        out = naive.rows_of(drive(run, cut(STREAM, 100)))
    naive.same_rows(out, naive.join(STREAM, MASTER, "k"))
