"""Offers a stream to a run at a given rate, and measures what it serves."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

import semistream as ss
from semistream.overload.tuple_folder import TupleFolder

TUPLE_BYTES = 20
Rate = Callable[[float], float]  # tuples that have arrived after so many seconds


@dataclass(frozen=True)
class Setting:
    """A join under load; ``mode`` is one of ``ss.Shedding``, or ``none``: the stream waits."""

    master: Path
    algorithm: str
    memory: int
    buffer: int
    mode: str
    position: float = 0.15


@dataclass
class Sample:
    """The state of a run at one moment."""

    seconds: float
    arrived: int
    served: int
    stored: int
    buffered: int


class Load:
    """A run that is offered tuples as the clock goes on."""

    def __init__(self, setting: Setting, clock: Any, stream: Callable[[int], pa.RecordBatch]):
        self._folder = tempfile.TemporaryDirectory(prefix="semistream-shed-")
        self._clock, self._stream = clock, stream
        mode = "off" if setting.mode == "none" else setting.mode
        store = None if mode == "off" else self._folder.name
        shedding = ss.Shedding(mode, store=store, position=setting.position)
        join = ss.join(setting.algorithm, memory=setting.memory)
        with mock.patch.object(TupleFolder, "__init__", _with_files(clock.files)):
            self.run: Any = join.open(
                setting.master, on="product_id", select=["price"], shedding=shedding,
                buffer=setting.buffer, observer=clock, clock=clock, direct=clock.direct,
            )  # fmt: skip
        self._most = min(20_000, setting.buffer // TUPLE_BYTES // 10)  # tuples of a batch
        self.arrived = self.rows = 0
        self.behind = 0  # at most so many tuples had arrived and were not offered yet
        self.began = clock()

    def close(self) -> None:
        self.run.close()
        self._folder.cleanup()

    @property
    def seconds(self) -> float:
        return float(self._clock() - self.began)

    def sample(self) -> Sample:
        run = self.run
        served = run.stats.matched + run.stats.unmatched
        return Sample(self.seconds, self.arrived, served, run.stored, run.buffered)

    def go(self, rate: Rate, until: float, total: int = 0) -> Iterator[Sample]:
        """Offer and serve until the clock says so, and ``total`` tuples were offered; a sample
        after every iteration.

        As users do: a batch of what has arrived is offered, then an iteration is served. What
        arrives faster than that waits at its source, in the end for as long as it is behind.
        """
        while (now := self.seconds) < until or self.arrived < total:
            due = int(rate(now)) - self.arrived
            if due > 0:
                batch = self._stream(min(due, self._most))
                if self.run.offer(batch):  # else it arrives later: nothing is shed
                    self.arrived += batch.num_rows
                    self.behind = max(self.behind, due - batch.num_rows)
            self.rows += sum(rows.num_rows for rows in self.run.step())
            yield self.sample()

    def catch_up(self) -> Iterator[Sample]:
        """No tuple arrives; until everything is served."""
        while self.run.stats.waiting or self.run.stored:
            self.rows += sum(rows.num_rows for rows in self.run.step())
            yield self.sample()

    def flush(self) -> None:
        self.rows += sum(rows.num_rows for rows in self.run.flush())

    def check(self) -> None:
        """Every served tuple has come out once: all keys are in the table, and unique."""
        stats = self.run.stats
        if self.rows != stats.matched or stats.unmatched or stats.tuples_in != self.arrived:
            raise SystemExit(f"wrong answer: {self.rows} rows, {stats.as_dict()}")


def _with_files(files: Any) -> Any:
    original = TupleFolder.__init__
    return lambda self, path, recover, _=None: original(self, path, recover, files)


def service_rate(
    setting: Setting, clock: Any, stream: Any, rate: float, warm_up: float, seconds: float
) -> dict[str, Any]:
    """Tuples served per second at this arrival rate, after a warm-up of so many seconds."""
    load = Load(setting, clock, stream)
    try:
        first = last = load.sample()
        for last in load.go(lambda now: rate * now, warm_up + seconds):
            if last.seconds < warm_up:
                first = last
        load.check()
        served = (last.served - first.served) / max(1e-9, last.seconds - first.seconds)
        return {
            "arrival": rate,
            "service": served,
            "shed": last.stored,
            "hits": load.run.stats.front_stage_hits,
            "overload": asdict(load.run.overload),
        }
    finally:
        load.close()


def processing_time(setting: Setting, clock: Any, stream: Any, seconds: float) -> dict[str, Any]:
    """The mean time that a tuple spends in the join, from its admission to its result.

    By Little's law: tuples in the window, averaged over time, by tuples served per second. The
    first half of the time warms up.
    """
    load = Load(setting, clock, stream)
    try:
        first = last = load.sample()
        held = 0.0
        for sample in load.go(lambda now: 1e12 * now, seconds):
            if sample.seconds < seconds / 2:
                first = sample
            else:
                inside = load.run.stats.waiting - sample.buffered
                held += inside * (sample.seconds - last.seconds)
            last = sample
        load.flush()  # MESHJOIN has returned rows of tuples that still wait
        load.check()
        spent = max(1e-9, last.seconds - first.seconds)
        rate = (last.served - first.served) / spent
        return {"service": rate, "seconds": held / spent / max(rate, 1e-9)}
    finally:
        load.close()
