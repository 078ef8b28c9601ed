"""Load shedding: figures 7 and 8 of 003, a burst over time, and the cost of being ready.

    python -m lab.bench_shedding --size small       # a minute or two
    python -m lab.bench_shedding                    # R = 2 million rows
    python -m lab.bench_shedding --size small --only burst --burst 30      # five minutes
    python -m lab.bench_shedding --size small --only ready batches         # a minute or two

- position: the look-up position in the queue against the service rate (003, figure 7);
- arrival: the arrival rate against the service rate: considering tuned and untuned (position 1, the
  oldest tuple), keep, and none, where the stream waits (003, figure 8; claim C16);
- both on this disk, by the wall clock, and on a modelled disk of 2011, by a virtual clock
  (``lab/shedding/clocks.py``);
- burst: ten times the service rate, then half of it until everything is served; a plot over time;
- ready: the rate with shedding and parking configured but not needed, over the rate without; for a
  run, and for the warehouse sink with batch_time and parking.
- batches: how long micro-batches of the warehouse sink take with batch_time, with a backlog.

The last three end with a verdict; the exit code is 1 if one of them fails.

Results: lab/results/shedding-<size>-<part>.json and docs/overload.png.
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
from lab.shedding.batch_times import BURSTS, batch_times
from lab.shedding.clocks import CLOCKS
from lab.shedding.drive import Load, Setting, service_rate
from lab.shedding.plot import plot_burst
from lab.shedding.ready_sink import sink_seconds
from lab.tables import Grid, save

DOCS = Path(__file__).parent.parent / "docs"
BUFFER = 4_000_000  # beside 10 % of R
POSITIONS = (0.0, 0.05, 0.1, 0.15, 0.25, 0.5, 0.75, 1.0)
LOADS = (0.5, 1.0, 2.0, 4.0, 8.0)  # arrival rate, of the service rate without shedding
LEAST_READY = 0.95
BATCH_SECONDS, MOST_OVERTIME = 1.0, 0.25
STRATEGIES = {
    "considering, tuned": ("considering", None),
    "considering, untuned": ("considering", 1.0),
    "keep": ("keep", 1.0),
    "none": ("none", 1.0),
}


@dataclass(frozen=True)
class Size:
    rows: int
    seconds: dict[str, float]  # of a measurement, by the clock; the warm-up takes as long
    burst: float
    ready: int  # tuples


SIZES = {
    "small": Size(200_000, {"this": 0.4, "2011": 4.0}, 3.0, 1_000_000),
    "full": Size(2_000_000, {"this": 2.0, "2011": 120.0}, 30.0, 4_000_000),
}


class Endless:
    """An endless Zipf(1) stream over all products, cut as asked."""

    def __init__(self, data: EngineData) -> None:
        self._batches = data.stream(1_000_000, 100_000)
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
        self.data = EngineData(size.rows)
        self.data.prepare(console.print, lmdb=False)
        self.data.warm()
        self.stream = Endless(self.data)
        memory = self.data.nbytes // 10 + BUFFER
        self.setting = Setting(self.data.master, "chybridjoin", memory, BUFFER, "none")

    def rate(self, clock: str, setting: Setting, arrival: float) -> dict[str, Any]:
        seconds = self.size.seconds[clock]
        return service_rate(setting, CLOCKS[clock](), self.stream, arrival, seconds, seconds)

    def figures(self, clock: str) -> dict[str, Any]:
        """Figures 7 and 8 on one disk."""
        none = self.rate(clock, self.setting, 1e12)["service"]
        positions = []
        for position in POSITIONS:
            setting = replace(self.setting, mode="considering", position=position)
            positions.append({"position": position, **self.rate(clock, setting, 4 * none)})
        best = max(positions, key=lambda cell: cell["service"])["position"]
        arrivals = []
        for name, (mode, position) in STRATEGIES.items():
            place = best if position is None else position
            setting = replace(self.setting, mode=mode, position=place)
            for load in LOADS:
                cell = self.rate(clock, setting, load * none)
                arrivals.append({"strategy": name, "load": load, **cell})
        return {"none": none, "best": best, "positions": positions, "arrivals": arrivals}

    def burst(self) -> dict[str, Any]:
        """Ten times the service rate for a while, on this disk."""
        served = self.rate("this", self.setting, 1e12)["service"]
        setting = replace(self.setting, mode="considering")
        load, seconds = Load(setting, CLOCKS["this"](), self.stream), self.size.burst
        calm, base = seconds / 3, served / 2

        def arrived(now: float) -> float:
            burst = min(max(0.0, now - calm), seconds)
            return base * now + (10 * served - base) * burst

        samples, before, resident = [], machine.resident_bytes(), 0
        try:
            for sample in load.go(arrived, 2 * calm + seconds):
                resident = max(resident, _keep(samples, sample, load, seconds / 300))
            at_once = _at(samples, calm + seconds)["served"] - _at(samples, calm)["served"]
            for sample in load.catch_up():
                resident = max(resident, _keep(samples, sample, load, seconds / 300))
            load.check()
            return {
                "service": served,
                "seconds": seconds,
                "calm": calm,
                "arrived_in_burst": 10 * served * seconds,
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

    def ready(self, repeats: int = 9) -> dict[str, Any]:
        """Seconds without and with, in turns; the median of the ratios of each turn."""
        batches = self.data.stream(self.size.ready, 50_000)
        pairs = {
            "shedding": "without",
            "shedding and parking": "without",
            "batch_time and parking in the sink": "sink",
        }
        seconds: dict[str, list[float]] = {kind: [] for kind in (*pairs, *pairs.values())}
        for turn in range(repeats + 1):
            kinds = list(seconds)
            for kind in kinds if turn % 2 else reversed(kinds):
                seconds[kind].append(self._ready(kind, batches))
        ratios = {}
        for kind, base in pairs.items():
            turns = zip(seconds[base][1:], seconds[kind][1:], strict=True)  # the first warms up
            ratios[kind] = median(without / ready for without, ready in turns)
        return {"seconds": seconds, "ratios": ratios}

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


def show(report: dict[str, Any], console: Console) -> None:
    for clock, name in (("this", "this disk"), ("2011", "modelled disk of 2011")):
        if clock not in report:
            continue
        found = report[clock]
        none = found["none"]
        rows = [
            [f"{cell['position']:.2f}", f"{cell['service']:,.0f}", f"{cell['service'] / none:.2f}"]
            for cell in found["positions"]
        ]
        heads = ["position", "tuples/s", "of the rate without shedding"]
        Grid(heads, rows).show(console, f"look-up position, arrivals at 4 times the rate, {name}")
        by_name = {(c["strategy"], c["load"]): c["service"] for c in found["arrivals"]}
        rows = [
            [strategy, *(f"{by_name[strategy, load]:,.0f}" for load in LOADS)]
            for strategy in STRATEGIES
        ]
        heads = ["strategy", *(f"{load:g} x" for load in LOADS)]
        title = f"service rate by arrival rate (1 x = {none:,.0f} tuples/s), {name}"
        Grid(heads, rows).show(console, title)
    if "burst" in report:
        burst = report["burst"]
        console.print(
            f"burst of 10 x {burst['service']:,.0f} tuples/s for {burst['seconds']:g} s: "
            f"{burst['served_in_burst'] / burst['arrived_in_burst']:.1%} served at once, caught up "
            f"after {burst['caught_up_after']:.1f} s; peak memory {burst['peak_memory']:,} of "
            f"{burst['budget']:,} bytes, the process grew by {burst['resident_growth']:,}"
        )
    if "ready" in report:
        for kind, ratio in report["ready"]["ratios"].items():
            console.print(f"cost of being ready, {kind}: {ratio:.3f} of the rate without")
    if "batches" in report:
        rows = [
            [str(n), *(f"{one[name]:,.0f}" for name in ("rows", "served", "deferred")),
             f"{one['deferred_oldest_seconds']:.1f}", f"{one['seconds']:.2f}"]
            for n, one in enumerate(report["batches"]["batches"])
        ]  # fmt: skip
        heads = ["batch", "rows", "served", "deferred", "oldest (s)", "seconds"]
        title = f"micro-batches with batch_time {report['batches']['batch_time']:g} s"
        Grid(heads, rows).show(console, title)
    for claim, is_met in verdicts(report).items():
        console.print(f"{'PASS' if is_met else 'FAIL'}: {claim}")


def verdicts(report: dict[str, Any]) -> dict[str, bool]:
    """What was to be shown, and whether it was. Lost tuples end the benchmark with an error."""
    found: dict[str, bool] = {}
    if "burst" in report:
        burst = report["burst"]
        lost = burst["samples"][-1]["arrived"] - burst["samples"][-1]["served"]
        found["memory stays within the budget during a burst"] = (
            burst["peak_memory"] <= burst["budget"]
        )
        found["after the burst every tuple has been served, none was dropped"] = (
            lost == 0 and burst["overload"]["dropped"] == 0
        )
    if "ready" in report:
        for kind, ratio in report["ready"]["ratios"].items():
            found[f"{kind}: at least {LEAST_READY} of the rate without"] = ratio >= LEAST_READY
    if "batches" in report:
        cell = report["batches"]
        # The first two bring more rows than fit, which must be written; the last has few.
        settled = [one["seconds"] for one in cell["batches"][BURSTS:-1]]
        claim = f"batches that serve the backlog take at most {1 + MOST_OVERTIME:g} x batch_time"
        limit = (1 + MOST_OVERTIME) * cell["batch_time"]
        found[claim] = bool(settled) and median(settled) <= limit
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--only", nargs="*", choices=["this", "2011", "burst", "ready", "batches"])
    parser.add_argument("--burst", type=float, help="seconds of the burst")
    options = parser.parse_args(arguments)
    console, size = Console(), SIZES[options.size]
    if options.burst is not None:
        size = replace(size, burst=options.burst)
    bench, has_passed = Bench(size, console), True
    parts: dict[str, Any] = {
        "2011": lambda: bench.figures("2011"),
        "this": lambda: bench.figures("this"),
        "burst": bench.burst,
        "ready": bench.ready,
        "batches": bench.batches,
    }
    for name, measure in parts.items():
        if options.only is None or name in options.only:
            began, described = time.perf_counter(), machine.describe()
            report = {"size": options.size, "machine": described, name: measure()}
            report["seconds"] = time.perf_counter() - began
            show(report, console)
            has_passed = has_passed and all(verdicts(report).values())
            save(report, RESULTS / f"shedding-{options.size}-{name}.json")
            if name == "burst":
                plot_burst(report["burst"], DOCS / "overload.png")
    return 0 if has_passed else 1


if __name__ == "__main__":
    sys.exit(main())
