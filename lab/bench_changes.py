"""The benchmark of tables that change while a join runs.

    python -m lab.bench_changes --size small               # R = 2 million rows, some minutes
    python -m lab.bench_changes --rounds 3                 # R = 20 million rows
    python -m lab.bench_changes --cells upserts --modes stream --minutes 3
    python -m lab.bench_changes --cells sync --sources postgresql --rows 500000
    python -m lab.bench_changes --cells sync --sources kafka
    python -m lab.bench_changes --cells killed --sources delta-feed,kafka

upserts   200 upserts of 1,000 rows by another process: rate in the last tenth of the time to that
          in the first, worst push to median push
rates     the same for 1,000, 10,000 and 100,000 upserted rows per second, beside no upserts
appends   the same for rows with new keys
sync      0.1 % of the rows change in Delta, PostgreSQL and Kafka: seconds of a sync, rows that it
          read, and the join's rate meanwhile. Without ``--kafka``, a broker is started from Maven's
          artifacts, as the tests do
killed    the same without a join: syncs that are killed at four points, and one that goes on. All
          changed rows must be right at its end

Each is measured with tuples that wait over pushes (stream) and with pushes that are drained, as in
Spark. A sync first builds the table from its source, which takes longest: choose one source at a
time. ``--minutes`` begins no further measurement after this time, and shortens long ones.

A push has 50,000 tuples. In a smaller one, the work is more uneven: a visit serves some 10,000
waiting tuples, and a push in which one is made is compared with those in which none is.

The worst of 2,000 pushes is often a pause of something else. Python's garbage collector takes 45 ms
for the objects of all imported modules, so these are frozen after the warm-up (``gc.freeze``), as a
service would do. Other guests of the host, or the disk, may stop a push for longer: with
``--rounds 3`` each rate is measured with three new tables, and the middle one of the three worst
pushes counts; all are kept.

The join runs with ``adapt=False``: a move of memory between front stage and window empties the
window once, in one long push, whether the table changes or not, and would hide what is measured
here. Results go to lab/results/changes.json, to appends.json and, of each source, to
sync-SOURCE.json and killed-SOURCE.json (small: changes-small.json and so on). Every push is
checked. The exit code is 1 if an answer is wrong or, at the full size, a target is missed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

import semistream as ss
from lab import machine
from lab.changes.killed import killed_syncs
from lab.changes.processes import answer, start, start_sync
from lab.changes.report import changes, is_missed, kills, syncs
from lab.changes.rows import compile_kernels, linked_copy, random_keys
from lab.changes.running_join import RunningJoin
from lab.changes.sync_sources import Delta, Kafka, Postgres, closing
from lab.engine_data import EngineData
from lab.tables import save

RESULTS = Path(__file__).resolve().parent / "results"
CHANGED = 0.001


@dataclass(frozen=True)
class Size:
    rows: int
    percent: float
    push: int
    warm_seconds: float
    upserts: int
    interval: float
    rate_seconds: int
    name: str  # of the results
    counts: bool


SIZES = {
    "full": Size(20_000_000, 10.0, 50_000, 15.0, 200, 0.25, 20, "", True),
    "small": Size(2_000_000, 10.0, 50_000, 8.0, 200, 0.1, 8, "-small", False),
}
MODES = {"stream": False, "drained": True}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--rows", type=int, help="of the table, instead of the size's")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=1, help="of each rate; the middle one counts")
    parser.add_argument("--cells", default="upserts,rates,appends,sync")
    parser.add_argument("--modes", default="stream,drained")
    parser.add_argument("--join", default="sweepjoin")
    parser.add_argument("--kafka", help="host:port of a broker, for sync")
    parser.add_argument("--sources", default="delta-feed,delta-files,postgresql,kafka")
    chosen = parser.parse_args()
    size, console = SIZES[chosen.size], Console()
    if chosen.rows is not None:
        size = replace(size, rows=chosen.rows, counts=False, name=f"-{chosen.rows}")
    chosen.end = time.monotonic() + 60 * chosen.minutes
    data = EngineData(size.rows)
    data.prepare(console.print, lmdb=False)
    data.warm()
    compile_kernels(data.folder)
    cells, begun = chosen.cells.split(","), machine.describe()
    reports: dict[str, list[dict[str, Any]]] = {}
    for cell, mode, found in _measured(cells, data, size, chosen):
        measured = {"cell": cell, "mode": mode, **found}
        console.print(_line(measured))
        name = "appends" if cell == "appends" else "changes"
        name = f"{cell}-{found['source']}" if "source" in found else name
        reports.setdefault(name, []).append(measured)
        report = {"machine": begun, "rows": size.rows, "cells": reports[name]}
        save(report, RESULTS / f"{name}{size.name}.json")
    every = [cell for found in reports.values() for cell in found]
    _show(every, console)
    return 1 if size.counts and any(map(is_missed, every)) else 0


def _measured(cells: list[str], data: EngineData, size: Size, chosen: Any) -> Iterator[Any]:
    """(cell, mode, what was found), until the time is over."""
    modes = chosen.modes.split(",")
    for cell in cells:
        if cell == "killed":
            for name in chosen.sources.split(","):
                if _has_time(chosen):
                    yield cell, "", _killed(data, chosen, name)
            continue
        if cell == "sync":
            for name in chosen.sources.split(","):
                if _has_time(chosen):
                    for mode, found in _while_syncing(data, size, modes, chosen, name):
                        yield cell, mode, found
            continue
        for mode in modes:
            for measure in _changes(cell, data, size, mode, chosen):
                if _has_time(chosen):
                    yield cell, mode, measure()


def middle_round(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The one whose worst push is neither the best nor the worst, beside those of all."""
    ranked = sorted(rounds, key=lambda found: found["worst_to_median"])
    return {**ranked[len(ranked) // 2], "rounds": [found["worst_to_median"] for found in rounds]}


def _has_time(chosen: Any) -> bool:
    return time.monotonic() < chosen.end


def _changes(cell: str, data: EngineData, size: Size, mode: str, chosen: Any) -> list[Any]:
    def changing(*change: Any) -> Callable[[], dict[str, Any]]:
        measure = partial(_while_changing, data, size, mode, chosen, *change)
        return lambda: middle_round([measure() for _ in range(chosen.rounds)])

    if cell == "upserts":
        return [changing("upsert", 1_000, size.upserts, size.interval)]
    kind = {"rates": "upsert", "appends": "append"}[cell]
    rates = [changing(kind, rows, size.rate_seconds, 1.0) for rows in (1_000, 10_000, 100_000)]
    return [partial(_undisturbed, data, size, mode, chosen.join), *rates]


def _start(data: EngineData, size: Size, mode: str, join: str) -> tuple[Path, RunningJoin]:
    table = linked_copy(data.master, data.folder / "changing")
    running = RunningJoin(table, data, join, size.percent, size.push, MODES[mode])
    running.warm_up(size.warm_seconds)
    return table, running


def _undisturbed(data: EngineData, size: Size, mode: str, join: str) -> dict[str, Any]:
    _, running = _start(data, size, mode, join)
    end = time.monotonic() + size.rate_seconds
    pushes = running.while_true(lambda: time.monotonic() < end)
    running.close()
    return {"rows_per_second": 0, "hit_rate": running.hit_rate, **pushes.summary()}


def _while_changing(
    data: EngineData, size: Size, mode: str, chosen: Any, kind: str, rows: int, count: int,
    interval: float,
) -> dict[str, Any]:  # fmt: skip
    table, running = _start(data, size, mode, chosen.join)
    before = running.while_true(lambda: False)
    seconds = max(10.0, chosen.end - time.monotonic())
    writer = start("lab.changes.writer", table, kind, rows, count, interval, seconds)
    pushes = running.while_true(partial(_is_running, writer))
    running.close()
    wrote = answer(writer)
    return {
        "kind": kind,
        "rows_per_second": rows * len(wrote["seconds"]) / wrote["total"],
        "changes": len(wrote["seconds"]),
        "change_seconds": sum(wrote["seconds"]) / len(wrote["seconds"]),
        "worst_change": max(wrote["seconds"]),
        "rate_before": before.rate,
        "hit_rate": running.hit_rate,
        **pushes.summary(),
    }


def _while_syncing(
    data: EngineData, size: Size, modes: list[str], chosen: Any, name: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The source and the table are made once: for many rows, that takes most of the time."""
    path = data.folder / "changing"
    with _source_and_table(data, path, name, chosen.kafka) as (world, made, built):
        for seed, mode in enumerate(modes, 1):
            table = ss.MasterTable.open(path)
            keys = random_keys(data.rows, int(data.rows * CHANGED), seed)
            world.change(table, keys)
            running = RunningJoin(path, data, chosen.join, size.percent, size.push, MODES[mode])
            running.warm_up(size.warm_seconds)
            before = running.while_true(lambda: False)
            syncer = start_sync(path, world)
            pushes = running.while_true(partial(_is_running, syncer))
            running.close()
            synced = answer(syncer)
            # A key may have been changed before, to the same price; PostgreSQL deletes one as well.
            if not 0.9 * len(keys) <= synced["updated"] <= len(keys):
                raise RuntimeError(f"{len(keys)} rows changed, {synced['updated']} were found")
            yield (
                mode,
                {
                    "source": name,
                    "source_seconds": made,
                    "build_seconds": built,
                    "changed": len(keys),
                    "sync": synced,
                    "rate_before": before.rate,
                    **pushes.summary(),
                },
            )


def _killed(data: EngineData, chosen: Any, name: str) -> dict[str, Any]:
    path = data.folder / "changing"
    with _source_and_table(data, path, name, chosen.kafka) as (world, _, _):
        return {"source": name, **killed_syncs(path, world, data.rows, int(data.rows * CHANGED))}


@contextmanager
def _source_and_table(
    data: EngineData, path: Path, name: str, kafka: str | None
) -> Iterator[tuple[Any, float, float]]:
    """A source of truth and a table that follows it, and the seconds that each took to be made."""
    worlds = {
        "delta-feed": lambda: Delta(data.folder, data.rows, True),
        "delta-files": lambda: Delta(data.folder, data.rows, False),
        "postgresql": lambda: Postgres(data.folder, data.rows),
        "kafka": lambda: Kafka(stack.enter_context(_broker(kafka))),
    }
    began = time.monotonic()
    with ExitStack() as stack:
        world = stack.enter_context(closing(worlds[name]()))
        made, began = time.monotonic() - began, time.monotonic()
        if world.has_all_rows:
            shutil.rmtree(path, ignore_errors=True)
            ss.MasterTable.build(world.source(), path, key="product_id", unique=True)
        else:
            ss.MasterTable.open(linked_copy(data.master, path)).sync(world.source())
        yield world, made, time.monotonic() - began


def _broker(given: str | None) -> AbstractContextManager[str]:
    """``host:port`` of this broker, or of one that is started."""
    if given:
        return nullcontext(given)
    sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
    from kafka.broker import kafka_broker  # type: ignore[import-not-found]

    started: AbstractContextManager[str] = kafka_broker()
    return started


def _is_running(process: subprocess.Popen[str]) -> bool:
    return process.poll() is None


def _line(cell: dict[str, Any]) -> str:
    if "kills" in cell:
        return f"killed, {cell['source']}: the last sync took {cell['last']['seconds']:.1f} s"
    kind = cell.get("kind", "upsert")
    what = cell.get("source") or f"{kind}s of {cell['rows_per_second']:,.0f} rows/s"
    return (
        f"{cell['cell']} {cell['mode']}, {what}: {cell['rate'] / 1e6:.2f} M rows/s, last to first "
        f"tenth {cell['last_to_first']:.2f}, worst push {cell['worst_to_median']:.1f}x the median"
    )


def _show(cells: list[dict[str, Any]], console: Console) -> None:
    for title, grid in (
        ("a table that changes while a join runs", changes(cells)),
        ("a sync of 0.1 % of the rows", syncs(cells)),
        ("syncs that were killed", kills(cells)),
    ):
        if grid.rows:
            grid.show(console, title)


if __name__ == "__main__":
    sys.exit(main())
