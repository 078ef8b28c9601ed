"""Files appear atomically; plots are written."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from semistream.errors import ConfigError
from semistream.workload import arrivals, files, plots, sales, zipf
from semistream.workload.stream import SCHEMA


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_a_stream_round_trips_through_a_file(tmp_path: Path, ending: str) -> None:
    path, progress = tmp_path / "new" / f"sales{ending}", []
    stream = list(sales(2_500, products=50, nulls=0.1, batch_rows=1_000))
    assert files.write(stream, SCHEMA, path, progress.append) == 2_500
    assert progress == [1_000, 2_000, 2_500]
    read = pq.read_table(path) if ending == ".parquet" else pa.ipc.open_file(path).read_all()
    assert read.equals(pa.Table.from_batches(stream))


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "sales.parquet"
    files.write(sales(10, products=5), SCHEMA, path)

    def failing():
        yield next(sales(10, products=5))
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="disk is full"):
        files.write(failing(), SCHEMA, path)
    assert pq.read_table(path).num_rows == 10
    assert [entry.name for entry in tmp_path.iterdir()] == ["sales.parquet"]


def test_an_unknown_file_extension(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown extension '.csv'; use .parquet or .arrow"):
        files.write([], SCHEMA, tmp_path / "sales.csv")


def test_plots_are_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    keys = zipf(10_000, 1_000, scattered=True)
    for exponent in (None, 0.0, 0.8, 1.0):
        path = plots.rank_frequency(keys, tmp_path / f"rank-{exponent}.png", 10**6, exponent)
        assert path.read_bytes().startswith(b"\x89PNG")
    counts = arrivals.bursty(1_000, seed=1)
    assert plots.arrivals_over_time(counts, tmp_path / "arrivals.png").stat().st_size > 5_000


def test_three_time_scales_need_steps(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="200 steps or more"):
        plots.arrivals_over_time(np.ones(10, np.int64), tmp_path / "arrivals.png")


def test_missing_matplotlib_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match="semistream\\[plot\\]"):
        plots.rank_frequency(np.array([1, 2]), tmp_path / "rank.png", 2)
