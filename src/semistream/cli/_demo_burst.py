"""``semistream demo --burst``: ten times more sales than the join can serve, for a few seconds."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

CALM_SECONDS = BURST_SECONDS = 3.0
FACTOR = 10


@dataclass(frozen=True)
class Moment:
    """The state of the run, for the live line."""

    phase: str  # "calm", "burst", "recovery" or "done"
    seconds: float
    arriving: float  # tuples/s
    served: float
    buffered: int
    stored: int
    oldest_seconds: float
    memory: int
    budget: int

    def line(self) -> str:
        return (
            f"{self.phase:<9}{self.seconds:.1f} s  in {self.arriving / 1e6:5.2f} "
            f"out {self.served / 1e6:5.2f} M/s  buffer {self.buffered / 1e6:.2f} M  "
            f"shed {self.stored / 1e6:5.2f} M, {self.oldest_seconds:3.1f} s old  "
            f"memory {self.memory / 1e6:.0f} of {self.budget / 1e6:.0f} MB"
        )


@dataclass(frozen=True)
class BurstResult:
    """The measurements of the demo."""

    offered: int
    rows: int
    service_rate: float
    served_in_burst: int
    offered_in_burst: int
    recovery_seconds: float
    peak_memory: int
    budget: int
    overload: dict[str, int]


def run_burst(
    rows: int,
    memory: str,
    join: str,
    exponent: float,
    folder: Path,
    show: Callable[[Moment], None] = lambda moment: None,
    seconds: float = BURST_SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> BurstResult:
    """Half of the service rate, ten times of it, and nothing until all tuples are served."""
    import semistream as ss
    from semistream.memory import parse_size
    from semistream.workload.relations import products

    budget = parse_size(memory)
    description = ss.join(join, memory=budget)
    table = folder / "products"
    master = ss.MasterTable.build(products(rows), table, key="product_id", unique=True)
    shedding = ss.Shedding("considering", store=folder / "shed")
    options: dict[str, Any] = {"shedding": shedding, "buffer": budget // 5}
    run: Any = description.open(master, "product_id", select=["price"], **options)
    with run:
        demo = _Burst(run, _sales(rows, exponent), show, clock)
        rate = demo.measure(seconds / 3)
        demo.phase("calm", rate / 2, seconds)
        before = demo.offered, demo.served
        demo.phase("burst", FACTOR * rate, seconds)
        offered, served = demo.offered - before[0], demo.served - before[1]
        began = clock()
        demo.recover()
        return BurstResult(
            offered=demo.offered,
            rows=demo.rows,
            service_rate=rate,
            served_in_burst=served,
            offered_in_burst=offered,
            recovery_seconds=clock() - began,
            peak_memory=demo.peak_memory,
            budget=budget,
            overload=dict(vars(run.overload)),
        )


def _sales(rows: int, exponent: float) -> Iterator[pa.RecordBatch]:
    from semistream.workload.stream import sales

    offset = 0
    while True:  # the generator is endless; it is cut into pieces of a million sales
        yield from sales(1_000_000, rows, exponent, scattered=True, batch_rows=5_000, offset=offset)
        offset += 1_000_000


class _Burst:
    """Offers sales as time goes by, serves, and reports a few times a second."""

    def __init__(
        self,
        run: Any,
        stream: Iterator[pa.RecordBatch],
        show: Callable[[Moment], None],
        clock: Callable[[], float],
    ) -> None:
        self._run, self._stream, self._show, self._clock = run, stream, show, clock
        self._began = clock()
        self._last = (self._began, 0, 0)  # time, offered, served of the last report
        self.offered = self.rows = self.peak_memory = 0

    @property
    def served(self) -> int:
        return int(self._run.stats.matched + self._run.stats.unmatched)

    def _offer(self) -> None:
        batch = next(self._stream)
        self._run.offer(batch)
        self.offered += batch.num_rows

    def _step(self, phase: str) -> None:
        self.rows += sum(part.num_rows for part in self._run.step())
        if self._clock() - self._last[0] >= 0.2:
            self._report(phase)

    def _report(self, phase: str, since: tuple[float, int, int] | None = None) -> None:
        """Show the state of the run, with the rates since the last report or another moment."""
        run, now = self._run, self._clock()
        before, offered, served = since or self._last
        passed = max(1e-9, now - before)
        memory = run.memory
        self.peak_memory = max(self.peak_memory, memory.total)
        self._show(
            Moment(
                phase,
                now - self._began,
                (self.offered - offered) / passed,
                (self.served - served) / passed,
                run.buffered,
                run.stored,
                run.oldest_seconds,
                memory.total,
                memory.budget,
            )
        )
        self._last = (now, self.offered, self.served)

    def measure(self, seconds: float) -> float:
        """The service rate: tuples are offered only when the buffer is empty."""
        began, before = self._clock(), 0
        while self._clock() - began < 2 * seconds:
            if self._clock() - began < seconds:
                before = self.served  # the first half fills the window and the front stage
            while not self._run.buffered:
                self._offer()
            self._step("calm")
        return max(1.0, (self.served - before) / seconds)

    def phase(self, name: str, rate: float, seconds: float) -> None:
        """Tuples arrive at this rate for so many seconds; the last report has the averages."""
        start = began, offered, _ = self._clock(), self.offered, self.served
        while (now := self._clock()) - began < seconds:
            while self.offered - offered < rate * (now - began):
                self._offer()
            self._step(name)
        self._report(name, start)

    def recover(self) -> None:
        start = self._clock(), self.offered, self.served
        while self._run.stats.waiting or self._run.stored:
            self._step("recovery")
        self._report("done", start)


def show_burst(rows: int, memory: str, join: str, exponent: float) -> None:
    """Run the demo with a live line and print the result."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from semistream.memory import format_size

    console = Console()
    console.print(f"building a master table of {rows:,} products ...")
    with (
        tempfile.TemporaryDirectory(prefix="semistream-demo-") as folder,
        Live(console=console, refresh_per_second=5) as live,
    ):
        shown: list[str] = []

        def show(moment: Moment) -> None:
            if shown and shown[-1] != moment.phase:
                live.console.print(live.renderable)  # the last line of a phase stays
            shown.append(moment.phase)
            live.update(Text(moment.line(), no_wrap=True))

        result = run_burst(rows, memory, join, exponent, Path(folder), show)
    share = result.served_in_burst / max(1, result.offered_in_burst)
    console.print(
        f"\n{join} serves {result.service_rate:,.0f} tuples/s. {result.offered_in_burst:,} came in "
        f"{BURST_SECONDS:g} s: {share:.1%} of that was served at once,\n"
        f"{result.overload['shed']:,} were shed, and all were served "
        f"{result.recovery_seconds:.1f} s later. {result.offered:,} tuples in, "
        f"{result.rows:,} rows out.\n"
        f"Peak memory {format_size(result.peak_memory)} of {format_size(result.budget)}."
    )
