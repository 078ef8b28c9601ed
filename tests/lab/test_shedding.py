"""The benchmark of load shedding, made small: its clocks, its load, its picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab.bench_shedding import Endless
from lab.engine_data import EngineData
from lab.machine import describe
from lab.shedding.clocks import BYTES_PER_SECOND, SEEK_SECONDS, Disk2011
from lab.shedding.drive import Load, Setting, processing_time, service_rate
from lab.shedding.page import main
from lab.shedding.plot import plot_burst
from lab.tables import save


@pytest.fixture
def data(tmp_path: Path) -> EngineData:
    data = EngineData(20_000, root=tmp_path)
    data.prepare(lambda line: None, lmdb=False)
    return data


def test_a_disk_of_2011_takes_its_time() -> None:
    clock = Disk2011()
    before = clock()
    clock.page_read(0, 1, 1_000_000, 0.0)
    assert clock() - before == pytest.approx(SEEK_SECONDS + 1e6 / BYTES_PER_SECOND, abs=0.002)


@pytest.mark.slow
def test_service_rates(data: EngineData) -> None:
    stream = Endless(data)
    none = Setting(data.master, "chybridjoin", 700_000, 200_000, "none")
    rate = service_rate(none, Disk2011(), stream, 1e9, 0.3, 0.3)["service"]
    assert rate > 0
    for mode in ("considering", "keep"):
        found = service_rate(replace(none, mode=mode), Disk2011(), stream, 4 * rate, 0.3, 0.3)
        assert found["overload"]["overloads"] > 0
        assert found["service"] > 0


@pytest.mark.slow
def test_a_load_is_served_in_the_end_and_plotted(data: EngineData, tmp_path: Path) -> None:
    setting = Setting(data.master, "sweepjoin", 700_000, 200_000, "considering")
    load = Load(setting, Disk2011(), Endless(data))
    samples = list(load.go(lambda now: 1e6 * now, 0.2)) + list(load.catch_up())
    load.check()
    load.close()
    assert samples[-1].served == samples[-1].arrived == load.arrived > 0
    burst = {
        "samples": [{**vars(sample), "memory": 1} for sample in samples],
        "budget": 2,
        "calm": 0.1,
        "seconds": 0.1,
    }
    plot_burst(burst, tmp_path / "burst.png")
    assert (tmp_path / "burst.png").stat().st_size > 1000


@pytest.mark.slow
def test_the_page_is_written_from_results(data: EngineData, tmp_path: Path) -> None:
    setting = Setting(data.master, "hybridjoin", 700_000, 200_000, "none")
    cells = [
        {"rows": rows, "clock": clock, "join": "hybridjoin"}
        | processing_time(setting, Disk2011(), Endless(data), 0.2)
        for rows in (10, 20)
        for clock in ("2011", "this")
    ]
    assert all(cell["seconds"] > 0 and cell["service"] > 0 for cell in cells)
    report = {"rows": 20_000, "machine": describe(), "seconds": 1.0, "figure6": {"cells": cells}}
    save(report, tmp_path / "shedding-small-figure6.json")
    page = tmp_path / "page.md"
    page.write_text("a <!-- shedding figure6 -->old<!-- end shedding figure6 --> b")
    assert main(["--results", str(tmp_path), "--page", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("a ")
    assert text.endswith(" b")
    assert "| hybridjoin | " in text
    assert "old" not in text
    assert main(["--results", str(tmp_path / "none"), "--page", str(page)]) == 1
