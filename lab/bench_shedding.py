"""Load shedding: figures 6 to 8 of 003, a burst over time, and the cost of being ready.

    python -m lab.bench_shedding --size small --only figure6 2011 this cached    # five minutes
    python -m lab.bench_shedding --size small --only burst-2011 --burst 30 # two minutes
    python -m lab.bench_shedding --size small --only burst --burst 30      # seven minutes
    python -m lab.bench_shedding --size small --only ready batches         # two minutes
    python -m lab.bench_shedding                    # all of it, R = 2 million rows

- figure6: how long a tuple is in the join, by the size of R (003, figure 6);
- this, cached, 2011: the look-up position in the queue against the service rate (003, figure 7),
  with ranks scattered over the pages and with popular rows side by side; the arrival rate against
  the service rate: considering tuned and untuned (position 1, the oldest tuple), keep, and none,
  where the stream waits (003, figure 8; claim C16). On this disk, with direct I/O; with R in the
  page cache; and on a modelled disk of 2011, by a virtual clock (``lab/shedding/clocks.py``);
- burst, burst-2011: ten times the service rate, then half of it, then nothing until everything is
  served; a plot over time. On this disk, and on the modelled one;
- ready: the rate with shedding and parking configured but not needed, over the rate without; for a
  run, and for the warehouse sink with batch_time and parking;
- batches: how long micro-batches of the warehouse sink take with batch_time, with a backlog.

The last three end with a verdict; the exit code is 1 if one of them fails.

Results: lab/results/shedding-<size>-<part>.json. ``make bench-tables`` writes tables and pictures
of docs/overload.md from them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from rich.console import Console

import semistream as ss
from lab import machine
from lab.bench_engine import RESULTS
from lab.engine_data import EngineData
from lab.shedding.batch_times import batch_times
from lab.shedding.clocks import CLOCKS
from lab.shedding.drive import Load, Setting, processing_time, service_rate
from lab.shedding.ready_sink import sink_seconds
from lab.shedding.report import STRATEGIES, show, verdicts
from lab.tables import save

BUFFER = 4_000_000  # beside 10 % of R
JOINS = ("meshjoin", "cmeshjoin", "hybridjoin", "chybridjoin")  # of figure 6
POSITIONS = (0.0, 0.05, 0.1, 0.15, 0.25, 0.5, 0.75, 1.0)
LOADS = (0.5, 1.0, 2.0, 4.0, 8.0)  # arrival rate, of the service rate without shedding
BATCH_SECONDS = 1.0


@dataclass(frozen=True)
class Size:
    rows: int
    seconds: dict[str, float]  # of a measurement, by the clock; the warm-up takes as long
    burst: float
    ready: int  # tuples
    tables: tuple[int, ...]  # rows of R in figure 6


SIZES = {
    "small": Size(
        200_000,
        {"this": 1.0, "cached": 0.7, "2011": 25.0},
        3.0,
        2_000_000,
        (50_000, 100_000, 200_000),
    ),
    "full": Size(
        2_000_000,
        {"this": 2.0, "cached": 2.0, "2011": 60.0},
        30.0,
        4_000_000,
        (500_000, 1_000_000, 2_000_000),
    ),
}


PARTS = ("figure6", "2011", "this", "cached", "burst-2011", "burst", "ready", "batches")


class Endless:
    """An endless Zipf(1) stream over all products, cut as asked."""

    def __init__(self, data: EngineData, scattered: bool = True) -> None:
        self._batches = data.stream(1_000_000, 100_000, scattered=scattered)
        self._place = self._at = 0

    def __call__(self, most: int) -> pa.RecordBatch:
        batch = self._batches[self._place % len(self._batches)].slice(self._at, most)
        self._at += batch.num_rows
        if self._at >= self._batches[0].num_rows:
            self._place, self._at = self._place + 1, 0
        return batch


class Bench:
    def __init__(self, size: Size, console: Console) -> None:
        self.size, self.console = size, console
        self.data = self._table(size.rows)
        self.stream, self.clustered = Endless(self.data), Endless(self.data, scattered=False)
        self.memory = self.data.nbytes // 10 + BUFFER
        self.setting = Setting(self.data.master, "chybridjoin", self.memory, BUFFER, "none")

    def _table(self, rows: int) -> EngineData:
        data = EngineData(rows)
        data.prepare(self.console.print, lmdb=False)
        data.warm()
        return data

    def warm_up(self) -> None:
        """Compile the kernels, which would otherwise count as the time of the first cells."""
        for mode, rate in (("none", 1e12), ("considering", 1e6), ("keep", 1e6)):
            setting = replace(self.setting, mode=mode)
            service_rate(setting, CLOCKS["this"](), self.stream, rate, 0.0, 0.5)

    def rate(
        self, clock: str, setting: Setting, arrival: float, stream: Endless | None = None
    ) -> dict[str, Any]:
        seconds, stream = self.size.seconds[clock], stream or self.stream
        return service_rate(setting, CLOCKS[clock](), stream, arrival, seconds, seconds)

    def figure6(self) -> dict[str, Any]:
        """Seconds of a tuple in the join, as the table grows and the memory stays."""
        cells = []
        for rows in self.size.tables:
            data = self._table(rows)
            for clock in ("2011", "this"):
                seconds = self.size.seconds[clock]
                for name in JOINS:
                    setting = Setting(data.master, name, self.memory, BUFFER, "none")
                    processing_time(setting, CLOCKS["this"](), Endless(data), 0.2)  # warms up
                    found = processing_time(setting, CLOCKS[clock](), Endless(data), 2 * seconds)
                    cells.append({"rows": rows, "clock": clock, "join": name, **found})
        return {"cells": cells, "memory": self.memory}

    def figures(self, clock: str) -> dict[str, Any]:
        """Figures 7 and 8 on one disk."""
        none = self.rate(clock, self.setting, 1e12)["service"]
        positions = []
        for ranks, stream in (("scattered", self.stream), ("clustered", self.clustered)):
            base = self.rate(clock, self.setting, 1e12, stream)["service"]
            for position in POSITIONS:
                setting = replace(self.setting, mode="considering", position=position)
                cell = self.rate(clock, setting, 4 * base, stream)
                positions.append({"ranks": ranks, "none": base, "position": position, **cell})
        scattered = [cell for cell in positions if cell["ranks"] == "scattered"]
        best = max(scattered, key=lambda cell: cell["service"])["position"]
        arrivals = []
        for name, (mode, position) in STRATEGIES.items():
            place = best if position is None else position
            setting = replace(self.setting, mode=mode, position=place)
            for load in LOADS:
                cell = self.rate(clock, setting, load * none)
                arrivals.append({"strategy": name, "load": load, **cell})
        return {"none": none, "best": best, "positions": positions, "arrivals": arrivals}

    def burst(self, clock: str) -> dict[str, Any]:
        """Ten times the service rate for a while."""
        disk, warm_up = CLOCKS[clock](), 2 * self.size.seconds[clock]
        served = service_rate(self.setting, disk, self.stream, 1e12, warm_up, warm_up)["service"]
        setting = replace(self.setting, mode="considering")
        load, seconds = Load(setting, CLOCKS[clock](), self.stream), self.size.burst
        calm, base = seconds / 6, served / 2
        end = 2 * calm + seconds

        def arrived(now: float) -> float:
            burst = min(max(0.0, now - calm), seconds)
            return base * min(now, end) + (10 * served - base) * burst

        samples, before, resident = [], machine.resident_bytes(), 0
        try:
            for sample in load.go(arrived, end, int(arrived(end))):
                resident = max(resident, _keep(samples, sample, load, seconds / 300))
            at_once = _at(samples, calm + seconds)["served"] - _at(samples, calm)["served"]
            for sample in load.catch_up():
                resident = max(resident, _keep(samples, sample, load, seconds / 300))
            _keep(samples, load.sample(), load, every=0.0)  # the end
            load.check()
            return {
                "clock": clock,
                "service": served,
                "seconds": seconds,
                "calm": calm,
                "arrived_in_burst": 10 * served * seconds,
                "most_behind": load.behind,
                "served_in_burst": at_once,
                "caught_up_after": load.seconds - calm - seconds,
                "peak_memory": max(sample["memory"] for sample in samples),
                "budget": setting.memory,
                "resident_growth": resident - before,
                "overload": asdict(load.run.overload),
                "samples": samples,
            }
        finally:
            load.close()

    def ready(self, repeats: int = 15) -> dict[str, Any]:
        """Seconds without and with, in turns; the median of the ratios of each turn, and the ratio
        of the best turns."""
        batches = self.data.stream(self.size.ready, 50_000)
        groups = {
            "without": ("shedding", "shedding and parking"),
            "sink": ("batch_time and parking in the sink",),
        }
        seconds: dict[str, list[float]] = {}
        ratios: dict[str, float] = {}
        best: dict[str, float] = {}
        for base, ready in groups.items():
            kinds = [base, *ready]
            for turn in range(repeats + 1):
                first = turn % len(kinds)  # none always comes after the same other one
                for kind in kinds[first:] + kinds[:first]:
                    seconds.setdefault(kind, []).append(self._ready(kind, batches))
            for kind in ready:  # without the first turn, which warms up
                without, spent = seconds[base][1:], seconds[kind][1:]
                ratios[kind] = median(a / b for a, b in zip(without, spent, strict=True))
                best[kind] = min(without) / min(spent)
        return {"seconds": seconds, "ratios": ratios, "best": best}

    def batches(self) -> dict[str, Any]:
        """Micro-batches with a time budget of a second."""
        stream = self.data.stream(2 * self.size.ready, 10_000)
        with tempfile.TemporaryDirectory(prefix="semistream-times-") as folder:
            memory = self.data.nbytes // 10
            return batch_times(self.data.master, stream, memory, Path(folder), BATCH_SECONDS)

    def _ready(self, kind: str, batches: list[pa.RecordBatch]) -> float:
        memory, options, rows = self.data.nbytes // 10, {}, 0
        with tempfile.TemporaryDirectory(prefix="semistream-ready-") as folder:
            if "sink" in kind:
                place, is_ready = Path(folder), kind != "sink"
                return sink_seconds(self.data.master, batches, memory, place, is_ready)
            if kind != "without":
                shedding = ss.Shedding("considering", store=Path(folder) / "shed")
                options |= {"shedding": shedding, "buffer": "4MB"}
            if kind == "shedding and parking":
                parking = ss.Parking(Path(folder) / "parked", buffer="1MB")
                options |= {"unmatched": "park", "parking": parking}
            own = (4 if options else 0) + (1 if "parking" in options else 0)
            join = ss.SweepJoin(memory=memory + own * 1_000_000)  # the same window in all three
            with join.open(self.data.master, on="product_id", select=["price"], **options) as run:
                began = time.process_time()
                for batch in batches:
                    if options:
                        run.offer(batch)
                        while run.buffered:
                            rows += sum(part.num_rows for part in run.step())
                    else:
                        rows += sum(part.num_rows for part in run.push(batch))
                rows += sum(part.num_rows for part in run.flush())
                spent = time.process_time() - began
        if rows != sum(batch.num_rows for batch in batches):
            raise SystemExit(f"wrong answer: {rows} rows {kind}")
        return spent


def _keep(samples: list[dict[str, Any]], sample: Any, load: Load, every: float) -> int:
    """Keep a sample now and then, with the memory; returns the process's memory."""
    if samples and sample.seconds - samples[-1]["seconds"] < every:
        return 0
    samples.append({**asdict(sample), "memory": load.run.memory.total})
    return machine.resident_bytes()


def _at(samples: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    return min(samples, key=lambda sample: abs(sample["seconds"] - seconds))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--only", nargs="*", choices=PARTS)
    parser.add_argument("--burst", type=float, help="seconds of the burst")
    options = parser.parse_args(arguments)
    console, size = Console(), SIZES[options.size]
    if options.burst is not None:
        size = replace(size, burst=options.burst)
    bench, has_passed = Bench(size, console), True
    bench.warm_up()
    parts: dict[str, Any] = {
        "figure6": bench.figure6,
        "2011": lambda: bench.figures("2011"),
        "this": lambda: bench.figures("this"),
        "cached": lambda: bench.figures("cached"),
        "burst-2011": lambda: bench.burst("2011"),
        "burst": lambda: bench.burst("this"),
        "ready": bench.ready,
        "batches": bench.batches,
    }
    for name, measure in parts.items():
        if options.only is None or name in options.only:
            began, described = time.perf_counter(), machine.describe()
            report: dict[str, Any] = {"size": options.size, "rows": size.rows, "machine": described}
            report[name.partition("-")[0]] = measure()
            report["seconds"] = time.perf_counter() - began
            show(report, console)
            has_passed = has_passed and all(verdicts(report).values())
            save(report, RESULTS / f"shedding-{options.size}-{name}.json")
    return 0 if has_passed else 1


if __name__ == "__main__":
    sys.exit(main())
