"""The benchmark of tables that change while a join runs.

    python -m lab.bench_changes --size small    # R = 2 million rows, some minutes
    python -m lab.bench_changes                 # R = 20 million rows
    python -m lab.bench_changes --cells upserts,rates,sync --kafka 127.0.0.1:9092

upserts   200 upserts of 1,000 rows by another process: rate in the last tenth of the time to that
          in the first, worst push to median push
rates     the same for 1,000, 10,000 and 100,000 upserted rows per second, beside no upserts
sync      0.1 % of the rows change in Delta, PostgreSQL and Kafka (if a broker is given): seconds of
          a sync, rows that it read, and the join's rate meanwhile

Each is measured with tuples that wait over pushes (stream) and with pushes that are drained, as in
Spark. Results go to lab/results/changes.json (small: changes-small.json). Every push is checked.
The exit code is 1 if an answer is wrong or, at the full size, a target is missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

import semistream as ss
from lab import machine
from lab.changes.rows import linked_copy, random_keys
from lab.changes.running_join import RunningJoin
from lab.changes.sync_sources import Delta, Kafka, Postgres, closing
from lab.engine_data import EngineData
from lab.tables import Grid, save

RESULTS = Path(__file__).resolve().parent / "results"
LAST_TO_FIRST = 0.8  # target: at least
WORST_TO_MEDIAN = 3.0  # target: at most
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
    file: str
    counts: bool


SIZES = {
    "full": Size(20_000_000, 10.0, 20_000, 30.0, 200, 0.25, 30, "changes.json", True),
    "small": Size(2_000_000, 10.0, 20_000, 8.0, 200, 0.1, 8, "changes-small.json", False),
}
MODES = {"stream": False, "drained": True}


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure a join while its table changes.")
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--cells", default="upserts,rates,sync")
    parser.add_argument("--modes", default="stream,drained")
    parser.add_argument("--join", default="sweepjoin")
    parser.add_argument("--kafka", help="host:port of a broker, for sync")
    parser.add_argument("--sources", default="delta-feed,delta-files,postgresql,kafka")
    chosen = parser.parse_args()
    size, console = SIZES[chosen.size], Console()
    data = EngineData(size.rows)
    data.prepare(console.print, lmdb=False)
    data.warm()
    report: dict[str, Any] = {"machine": machine.describe(), "size": chosen.size, "cells": []}
    for cell in chosen.cells.split(","):
        for mode in chosen.modes.split(","):
            for found in _cells(cell, data, size, mode, chosen):
                report["cells"].append({"cell": cell, "mode": mode, **found})
                console.print(_line(report["cells"][-1]))
                save(report, RESULTS / size.file)
    _show(report, console)
    missed = [cell for cell in report["cells"] if cell.get("missed")]
    return 1 if missed and size.counts else 0


def _cells(cell: str, data: EngineData, size: Size, mode: str, chosen: Any) -> Any:
    if cell == "upserts":
        yield _while_upserting(data, size, mode, chosen.join, 1_000, size.upserts, size.interval)
    elif cell == "rates":
        yield _undisturbed(data, size, mode, chosen.join)
        for rows in (1_000, 10_000, 100_000):
            yield _while_upserting(data, size, mode, chosen.join, rows, size.rate_seconds, 1.0)
    else:
        for name in chosen.sources.split(","):
            if name != "kafka" or chosen.kafka:
                yield _while_syncing(data, size, mode, chosen, name)


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


def _while_upserting(
    data: EngineData, size: Size, mode: str, join: str, rows: int, count: int, interval: float
) -> dict[str, Any]:
    table, running = _start(data, size, mode, join)
    before = running.while_true(lambda: False)
    writer = _process("lab.changes.writer", table, rows, count, interval)
    pushes = running.while_true(lambda: writer.poll() is None)
    running.close()
    wrote = _answer(writer)
    summary = pushes.summary()
    return {
        "rows_per_second": rows * count / wrote["total"],
        "upserts": count,
        "upsert_seconds": sum(wrote["seconds"]) / count,
        "worst_upsert": max(wrote["seconds"]),
        "rate_before": before.rate,
        "hit_rate": running.hit_rate,
        **summary,
        "missed": summary["worst_to_median"] > WORST_TO_MEDIAN
        or summary["last_to_first"] < LAST_TO_FIRST,
    }


def _while_syncing(
    data: EngineData, size: Size, mode: str, chosen: Any, name: str
) -> dict[str, Any]:
    worlds = {
        "delta-feed": lambda: Delta(data.folder, data.rows, True),
        "delta-files": lambda: Delta(data.folder, data.rows, False),
        "postgresql": lambda: Postgres(data.folder, data.rows),
        "kafka": lambda: Kafka(chosen.kafka),
    }
    path = linked_copy(data.master, data.folder / "changing")
    with closing(worlds[name]()) as world:
        table = ss.MasterTable.open(path)
        began = time.monotonic()
        table = table.sync(world.source())
        first = time.monotonic() - began
        keys = random_keys(data.rows, int(data.rows * CHANGED), 1)
        world.change(table, keys)
        running = RunningJoin(path, data, chosen.join, size.percent, size.push, MODES[mode])
        running.warm_up(size.warm_seconds)
        before = running.while_true(lambda: False)
        syncer = _process("lab.changes.syncer", path, json.dumps(world.describe()))
        pushes = running.while_true(lambda: syncer.poll() is None)
        running.close()
        synced = _answer(syncer)
    wrong = synced["updated"] != len(keys)
    if name != "postgresql" and wrong:
        raise RuntimeError(f"{len(keys)} rows changed, {synced['updated']} were found")
    summary = pushes.summary()
    return {
        "source": name,
        "first_sync_seconds": first,
        "changed": len(keys),
        "sync": synced,
        "rate_before": before.rate,
        **summary,
    }


def _process(module: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{process.args} failed")
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def _line(cell: dict[str, Any]) -> str:
    what = cell.get("source") or f"{cell['rows_per_second']:,.0f} upserted rows/s"
    return (
        f"{cell['cell']} {cell['mode']}, {what}: {cell['rate'] / 1e6:.2f} M rows/s, last to first "
        f"tenth {cell['last_to_first']:.2f}, worst push {cell['worst_to_median']:.1f}x the median"
    )


def _show(report: dict[str, Any], console: Console) -> None:
    changes = [cell for cell in report["cells"] if "source" not in cell]
    heads = ["cell", "mode", "upserted rows/s", "M rows/s", "last/first tenth", "median push, ms",
             "worst push, ms", "worst/median", "hit rate", "versions"]  # fmt: skip
    rows = [
        [c["cell"], c["mode"], f"{c['rows_per_second']:,.0f}", f"{c['rate'] / 1e6:.2f}",
         f"{c['last_to_first']:.2f}", f"{1e3 * c['median_push']:.1f}",
         f"{1e3 * c['worst_push']:.1f}", f"{c['worst_to_median']:.1f}", f"{c['hit_rate']:.0%}",
         str(c["versions"])]
        for c in changes
    ]  # fmt: skip
    if rows:
        Grid(heads, rows, names=2).show(console, "a table that changes while a join runs")
    heads = ["source", "mode", "sync, s", "rows read", "changed", "first sync, s",
             "M rows/s before", "during", "worst/median push"]  # fmt: skip
    rows = [
        [c["source"], c["mode"], f"{c['sync']['seconds']:.2f}", f"{c['sync']['rows_read']:,}",
         f"{c['changed']:,}", f"{c['first_sync_seconds']:.1f}", f"{c['rate_before'] / 1e6:.2f}",
         f"{c['rate'] / 1e6:.2f}", f"{c['worst_to_median']:.1f}"]
        for c in report["cells"] if "source" in c
    ]  # fmt: skip
    if rows:
        Grid(heads, rows, names=2).show(console, "a sync of 0.1 % of the rows")


if __name__ == "__main__":
    sys.exit(main())
