"""One cell of the rivals benchmark, measured in a separate process.

    python -m lab.rivals.cell SPECIFICATION RESULT

Both are JSON files. The process enters its memory limit, opens R, checks the answer of the first
batches, warms up, and measures. It rewrites the result after every step, so that the
progress of a process that is killed is known.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OUT_OF_MEMORY = ("OutOfMemory", "Not enough memory")  # as DuckDB, Java and Spark report it


@dataclass(frozen=True)
class Cell:
    """What to measure, with sizes and time limits."""

    rival: str
    variant: str
    rows: int
    memory: str  # percent of R, or "all"
    exponent: float
    batch: int
    cold: bool
    seed: int
    check_tuples: int
    check_seconds: float
    warm_tuples: int
    warm_seconds: float
    repeats: int
    repeat_seconds: float
    time_limit: float

    @property
    def key(self) -> str:
        """Identifies the measurement; a later run with the same key replaces it."""
        reads = "cold" if self.cold else "warm"
        where = f"R={self.rows}, memory={self.memory}, exponent={self.exponent:g}"
        return f"{self.rival}: {self.variant}; {where}, batch={self.batch}, {reads}, {self.seed}"

    @property
    def name(self) -> str:
        return f"{self.rival}: {self.variant}"

    @property
    def budget(self) -> int:
        """Bytes for R. "All" is four times R's bytes in Arrow: room for R in any rival's form."""
        from lab.engine_data import ROW_BYTES

        share = 4.0 if self.memory == "all" else float(self.memory) / 100
        return int(self.rows * ROW_BYTES * share)


class Report:
    """The result so far, on disk at every step."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, Any] = {}

    def say(self, **values: Any) -> None:
        self.values |= values
        unfinished = self.path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(self.values))
        os.replace(unfinished, self.path)


def measure(cell: Cell, report: Report) -> None:
    """Measure; failures are part of the report."""
    import pyarrow as pa

    from lab import machine, rivals
    from lab.rivals.contract import Grant
    from lab.rivals.data import RivalData
    from semistream.errors import BudgetError

    kind = rivals.rival(cell.rival)
    core = machine.pin_to_one_core() if kind.one_core else None
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    report.say(stage="opening R", core=core, load=machine.load())
    data = RivalData(cell.rows, cell.seed, exponent=cell.exponent)
    peer = kind(cell.variant, data, Grant(cell.budget, cell.batch), cell.cold)
    clock = Clock(cell.time_limit)
    try:
        peer.open()
        report.say(open_seconds=clock.elapsed(), pids=peer.processes())
        _measure(cell, peer, data, clock, report)
    except BudgetError as error:
        report.say(refused=str(error))
    except MemoryError as error:
        report.say(out_of_memory=f"{type(error).__name__}: {error}"[:300])
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        ended = "out_of_memory" if any(sign in text for sign in OUT_OF_MEMORY) else "error"
        report.say(**{ended: text.splitlines()[0][:300]})  # the rest contains folders and ids
    finally:
        with contextlib.suppress(Exception):  # it may not have been opened
            peer.close()


class Clock:
    """The time limit of a cell."""

    def __init__(self, limit: float) -> None:
        self._began = time.perf_counter()
        self._limit = limit

    def elapsed(self) -> float:
        return round(time.perf_counter() - self._began, 3)

    @property
    def over(self) -> bool:
        return self.elapsed() > self._limit


def _measure(cell: Cell, peer: Any, data: Any, clock: Clock, report: Report) -> None:
    batch = min(cell.batch, peer.largest_batch(cell.variant) or cell.batch)
    report.say(stage="checking the answer", batch_served=batch)
    stream = data.endless(batch)
    wrong, checked = _check(cell, peer, data, stream)
    if wrong is not None:
        report.say(wrong=wrong)
        return
    report.say(stage="warming up", checked_tuples=checked, checked_after=clock.elapsed())
    server = Server(peer, stream, report)
    warm_tuples = cell.warm_tuples // (1 if batch == cell.batch else 20)  # a slow rival
    while (
        server.seconds < cell.warm_seconds
        and (server.tuples < warm_tuples or not peer.warm)
        and not clock.over
    ):
        server.serve()
    gc.collect()
    warm_rows, warm_seconds, before = server.rows, server.seconds, peer.facts()
    report.say(
        stage="measuring",
        warm_up_tuples=server.tuples,
        warm_up_seconds=warm_seconds,
        steady=peer.warm,
    )
    rates: list[float] = []
    warm_processor = server.processor
    while len(rates) < cell.repeats and not (rates and clock.over):
        rows, seconds = server.rows, server.seconds
        while server.seconds - seconds < cell.repeat_seconds:
            server.serve()
            if clock.over:
                break
        rates.append((server.rows - rows) / (server.seconds - seconds))
    report.say(
        rates=rates,
        rate=statistics.median(rates),
        interval=[min(rates), max(rates)] if len(rates) >= cell.repeats else None,
        rows_out=server.rows - warm_rows,
        measured_seconds=server.seconds - warm_seconds,
        processor_seconds=server.processor - warm_processor,
        cut=len(rates) < cell.repeats,
        facts_before=before,
        facts=peer.facts(),
    )
    report.say(stage="serving what waits")
    out = server.rows + sum(rows.num_rows for rows in peer.flush())
    if out != server.tuples:
        report.say(wrong=f"{server.tuples} tuples in, {out} rows out")
    report.say(stage="done")


def _check(cell: Cell, peer: Any, data: Any, stream: Any) -> tuple[str | None, int]:
    """Join the first batches and compare all rows with the expected ones."""
    sent: list[Any] = []
    began, tuples = time.perf_counter(), 0

    def rows() -> Any:
        nonlocal tuples
        while tuples < cell.check_tuples and (
            not sent or time.perf_counter() - began < cell.check_seconds
        ):
            batch = next(stream)
            sent.append(batch)
            tuples += batch.num_rows
            yield from peer.rows(batch)
        yield from peer.flush()

    # Check after all batches are sent: only then are the expected rows known.
    answer = list(rows())
    return data.wrong(answer, sent), tuples


class Server:
    """Serves batches from the stream and sums up the results; only the serving is timed."""

    def __init__(self, peer: Any, stream: Any, report: Report) -> None:
        self._peer = peer
        self._stream = stream
        self._report = report
        self._reported = time.perf_counter()
        self.tuples = self.rows = 0
        self.seconds = self.processor = 0.0  # CPU seconds of this process, without servers

    def serve(self) -> None:
        batch = next(self._stream)
        staged = self._peer.stage(batch)
        processor, began = time.process_time(), time.perf_counter()
        self.rows += self._peer.serve(staged)
        now = time.perf_counter()
        self.seconds += now - began
        self.processor += time.process_time() - processor
        self.tuples += batch.num_rows
        if now - self._reported > 1.0:  # the last known state if the process is killed
            self._report.say(reached_rows=self.rows, reached_seconds=self.seconds)
            self._reported = now


def main(arguments: list[str]) -> None:
    from lab.rivals.limits import Limit

    specification, result = json.loads(Path(arguments[0]).read_text()), Path(arguments[1])
    group = specification["group"]
    limit = Limit(specification["limit"], Path(group) if group else None, specification["kind"])
    limit.enter()
    measure(Cell(**specification["cell"]), Report(result))


if __name__ == "__main__":
    main(sys.argv[1:])
