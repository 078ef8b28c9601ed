"""Writers, vacuums, readers and drivers at the same time, in thousands of orders."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reliability import sink_schedule, table_schedule
from reliability.light_table import LightTable, light
from reliability.scheduler import ScheduledFiles, Scheduler
from reliability.sink_schedule import Drivers, Read, read_delta, read_light, write_light
from reliability.table_schedule import Template
from reliability.tally import Tally
from semistream.master import MasterTable
from semistream.master.store import LocalStore
from semistream.sinks import open_sink, parquet

QUICK = range(750)


def slow(seeds: range, *further: pytest.MarkDecorator) -> Any:
    return pytest.param(seeds, marks=[pytest.mark.slow, pytest.mark.timeout(1_800), *further])


def chunks(count: int) -> list[Any]:
    """Split into chunks for all cores; all but the first are marked long."""
    size = 10_000
    further = [slow(range(at, at + size), pytest.mark.long) for at in range(size, count, size)]
    return [slow(range(size)), *further]


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scheduler]:
    scheduler = Scheduler()
    monkeypatch.setattr(LocalStore, "files", ScheduledFiles(scheduler))
    yield scheduler
    scheduler.close()


def run_tables(
    kind: type[MasterTable], seeds: range, scheduler: Scheduler, folder: Path, tally: Tally
) -> None:
    template = Template(kind, folder / "template")
    for seed in seeds:
        with template.copy(folder / "t") as world:
            try:
                table_schedule.run_schedule(scheduler, world, seed)
            except BaseException as error:
                raise AssertionError(f"schedule {seed} of {kind.__name__}: {error!r}") from error
    tally(f"schedules of a master table ({kind.__name__})", len(seeds))


def run_sinks(
    output: str, seeds: range, read: Read, scheduler: Scheduler, folder: Path, tally: Tally
) -> None:
    files = ScheduledFiles(scheduler)

    def sink() -> Any:
        opened = open_sink(output, path=folder / "w")
        opened.disk = files
        return opened

    for seed in seeds:
        try:
            sink_schedule.run_schedule(scheduler, Drivers(sink, read), seed)
        except BaseException as error:
            raise AssertionError(f"schedule {seed} of {output}: {error!r}") from error
        shutil.rmtree(folder / "w")
    tally(f"schedules of a {output} sink", len(seeds))


@pytest.mark.parametrize("seeds", [QUICK, *chunks(80_000)], ids=str)
def test_a_table(seeds: range, scheduler: Scheduler, tmp_path: Path, tally: Tally) -> None:
    with light():
        run_tables(LightTable, seeds, scheduler, tmp_path, tally)


@pytest.mark.parametrize("seeds", [range(100), slow(range(100, 2_000))], ids=str)
def test_a_table_with_real_segments(
    seeds: range, scheduler: Scheduler, tmp_path: Path, tally: Tally
) -> None:
    run_tables(MasterTable, seeds, scheduler, tmp_path, tally)


@pytest.mark.parametrize("seeds", [range(250), *chunks(20_000)], ids=str)
def test_a_parquet_sink(
    seeds: range,
    scheduler: Scheduler,
    tmp_path: Path,
    tally: Tally,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parquet, "write_parquet", write_light)
    run_sinks("parquet", seeds, read_light, scheduler, tmp_path, tally)


@pytest.mark.parametrize("seeds", [range(20), slow(range(20, 400))], ids=str)
def test_a_delta_sink(seeds: range, scheduler: Scheduler, tmp_path: Path, tally: Tally) -> None:
    """delta-rs runs without a pause; tasks take turns before and after it."""
    run_sinks("delta", seeds, read_delta, scheduler, tmp_path, tally)
