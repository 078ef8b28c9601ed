"""Measures the machine's factors with the joins themselves, on the table at hand.

Memory and disk are measured by themselves (``hardware.py``). Short runs of real joins, each of
which does much of one kind of work, are compared with what their models expect: the median of the
ratios is the speed of this machine with this table. The proportions of the factors are those of
the package: a run of a fraction of a second is off by more than they are. Processor time is
measured, not the clock: on a busy machine the same work takes about the same processor time. Other
guests of the host can slow a core down for seconds, so the runs are repeated as long as there is
time, and the best one of each counts. What an installation compiles once is no work of the joins:
short runs of all of them come first, and the time limit counts from then on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from semistream.cost import FACTORS, Case, Machine, Traffic, predict, uniform, zipf
from semistream.engine.binding import Binding
from semistream.engine.shape import StreamShape, TableShape
from semistream.engine.window.tuple_layout import TupleLayout
from semistream.errors import BudgetError, ConfigError
from semistream.joins import join as join_named
from semistream.kernels.cache_folder import is_complete
from semistream.kernels.compile import compilations
from semistream.tuning.calibration_file import save
from semistream.tuning.hardware import disk_requests, memory_access

Result = TypeVar("Result")
Progress = Callable[[int, int, str], None]
SECONDS = 12.5  # for everything; a run that no time is left for is not made
_WARM, _RUN = 0.2, 0.2  # seconds of one run
_SLOW = 4  # times the seconds of a warm-up, at most, until a window has been turned over
_PAGES, _ROWS = 6_144, 16  # pages that keys are taken from, and keys of each
_RUN_PAGES = 96  # of them are adjacent: a sweep over a dense stream reads neighbours together
_SMALL, _MIDDLE = 6_000_000, 24_000_000  # bytes
_LITTLE = (1_000_000, _SMALL)  # bytes, for runs that load the kernels
_FEW_TUPLES, _LOADING = 3_000, 0.05  # tuples per batch, and seconds per batch, of such runs
_STREAM = "__tuple"  # the columns beside the key
_SEED = 11


@dataclass(frozen=True)
class Probe:
    """One run: a join that does much of one kind of work."""

    join: str
    memory: int = _MIDDLE
    push: int = 20_000
    drained: bool = False
    skew: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)


# Few keys of the table are used, so a front stage that is to miss some must be small.
_FEW_ROWS = {"front_stage": 150_000}
PROBES = (
    Probe("sweepjoin", options={"front_stage": 0.05}),
    Probe("meshjoin", _SMALL),
    Probe("hybridjoin"),
    Probe("inlj", push=4_000),
    Probe("sweepjoin", skew=1.2, options={"front_stage": 0.3}),
    Probe("chybridjoin", _SMALL, skew=1.0, options=_FEW_ROWS),
    Probe("hybridjoin", push=300, drained=True, options={"disk_buffer_pages": 2}),  # many reads
    Probe("cinlj", _SMALL, push=4_000, skew=1.0, options=_FEW_ROWS),
    Probe("x-hybridjoin", options={"pinned": 0.2, "observe": 1_000}),
    Probe("sweepjoin", push=100, drained=True, options={"front_stage": 0.05}),
    Probe("meshjoin"),
    Probe("hybridjoin", _SMALL),
)
_TURNS = 2  # times that all of them run, if there is time


def calibrate(master: Any, progress: Progress | None = None, keep: bool = True) -> Machine:
    """Measure the factors on this machine with this table, in less than 15 seconds.

    ``keep`` writes them beside the table, where ``ss.tune`` finds them.
    """
    if not getattr(master, "ordered", False) or not hasattr(master, "path"):
        raise ConfigError("only a master table can be calibrated; build one with MasterTable.build")
    if not master.num_rows:
        raise ConfigError("the table has no rows, so nothing can be measured with it")
    report = progress or (lambda done, total, what: None)
    total = _TURNS * len(PROBES) + 3
    report(0, total, "kernels" if is_complete() else "compiling kernels, once per installation")
    began, compiled = time.perf_counter(), compilations()
    pool = key_pool(master)
    load_kernels(master, pool)
    if compilations() != compiled:
        began = time.perf_counter()
    report(1, total, "memory")
    machine = replace(Machine(), access=memory_access())
    report(2, total, "disk")
    disk = disk_requests(_largest_file(str(master.path)))
    if disk is not None:
        machine = replace(machine, disk=disk)
    until = began + SECONDS
    runs = measure_probes(master, pool, machine, until, lambda n, what: report(3 + n, total, what))
    factors = {name: price * speed(runs) for name, (price, _) in FACTORS.items()}
    machine = replace(machine, factors=factors, origin="a calibration of now")
    if keep:
        save(master, machine)
    report(total, total, "done")
    return machine


@dataclass(frozen=True)
class Measured:
    """One run: the seconds per tuple that it took, and those that the model expects of it."""

    seconds: float
    expected: float  # without accesses to memory
    access: float = 0.0  # these, by what was measured of this machine

    @property
    def speed(self) -> float:
        """Seconds per second that the defaults expect."""
        return max(self.seconds - self.access, 0.1 * self.seconds) / max(self.expected, 1e-15)


def speed(runs: Sequence[Sequence[Measured]]) -> float:
    """The middle of the probes, each by its best run: what it was slower was not its work."""
    best = [min(run.speed for run in same) for same in runs if same]
    return float(np.median(best)) if best else 1.0


def measure_probes(
    master: Any,
    pool: pa.RecordBatch,
    machine: Machine,
    until: float,
    report: Callable[[int, str], None],
) -> list[list[Measured]]:
    """The runs of each probe that the time allows, in the order of their importance."""
    runs: list[list[Measured]] = [[] for _ in PROBES]
    for number in range(_TURNS * len(PROBES)):
        probe, same = PROBES[number % len(PROBES)], runs[number % len(PROBES)]
        report(number, probe.join)
        began, compiled = time.perf_counter(), compilations()
        if began > until:
            break
        measured = _measure(master, probe, pool, machine)
        if compilations() != compiled:  # once per installation: not part of the time limit
            until += time.perf_counter() - began
        if measured is not None:
            same.append(measured)
    return runs


def load_kernels(master: Any, pool: pa.RecordBatch) -> None:
    """Compile or load what the probes call: a few tuples of each in little memory, so that its
    window is filled and emptied."""
    on = dict(zip(pool.schema.names, master.key, strict=True))
    for probe in {probe.join: probe for probe in PROBES}.values():
        batches = _stream(pool, replace(probe, push=_FEW_TUPLES))
        options = {**probe.options, **({"front_stage": 0.3} if probe.skew else {})}
        for memory in _LITTLE:
            try:
                join = join_named(
                    probe.join, memory=memory + _index_bytes(master), adapt=False, **options
                )
                with join.open(master, on=on) as run:
                    for _ in range(3):
                        _serve(run, [next(batches)], probe, _LOADING)
            except BudgetError:
                continue
            break


def _index_bytes(master: Any) -> int:
    """Of the page index, which is part of the memory: a run may have a second version of it."""
    return 2 * (master.index.nbytes if master.index is not None else 0)


def _largest_file(folder: str) -> str:
    files = [os.path.join(root, name) for root, _, names in os.walk(folder) for name in names]
    return max(files, key=os.path.getsize)


def key_pool(master: Any) -> pa.RecordBatch:
    """Keys from runs of pages all over the table."""
    names = [(name, f"{_STREAM}_key{i}") for i, name in enumerate(master.key)]
    pages = pool_pages(master.num_pages)
    reader, random, parts = master.reader(), np.random.default_rng(_SEED), []
    for page in pages.tolist():
        (batch,) = reader.read(page)
        rows = random.integers(0, max(1, batch.num_rows), _ROWS)
        if batch.num_rows:
            parts.append(batch.select([name for name, _ in names]).take(pa.array(rows)))
    reader.close()
    table = pa.Table.from_batches(parts).combine_chunks()
    return table.rename_columns([renamed for _, renamed in names]).to_batches()[0]


def pool_pages(num_pages: int) -> Any:
    """Runs of adjacent pages, evenly over the table."""
    runs = _PAGES // _RUN_PAGES
    first = np.linspace(0, max(0, num_pages - _RUN_PAGES), runs).astype(np.int64)
    pages = np.unique((first[:, None] + np.arange(_RUN_PAGES)).ravel())
    return pages[pages < num_pages]


def _measure(master: Any, probe: Probe, pool: pa.RecordBatch, machine: Machine) -> Measured | None:
    """None if the table is too large for the probe's memory, or for its time: the window was not
    turned over, and costs more or less than it would for long; or if nothing came out."""
    memory = probe.memory + _index_bytes(master)
    join = join_named(probe.join, memory=memory, adapt=False, **probe.options)
    on = dict(zip(pool.schema.names, master.key, strict=True))
    batches = _stream(pool, probe)
    first = next(batches)
    try:
        with join.open(master, on=on) as run:
            _serve(run, [first], probe, _WARM)
            without_compiling(lambda: _warm_up(run, batches, probe))
            if not probe.drained and run.stats.rows_out < _capacity(run):
                return None
            before, seconds = without_compiling(lambda: _run(run, batches, probe))
            after = run.stats.as_dict()
    except BudgetError:
        return None
    counted = {name: after[name] - before[name] for name in after}
    if counted["rows_out"] < 100:
        return None
    case = _case(master, join, on, first, probe, machine)
    case = replace(case, front_share=counted["front_stage_hits"] / counted["rows_out"])
    expected = predict(case)
    served = counted["rows_out"]
    # What the run counted replaces what the model expects: the keys are a few of the table's.
    turns = counted["iterations"] / served * expected.tuples_per_iteration
    pages = counted["pages_read"] / served / max(expected.pages_per_tuple, 1e-12)
    scaled = {".read": turns, ".visit": turns, ".wave": turns}
    scaled |= {".page": pages, ".row": pages, ".request": pages}
    seconds_expected = 0.0
    for name in FACTORS.keys() & expected.work.keys():
        ending = name[name.rfind(".") :] if "." in name else ""
        amount = expected.work[name] * scaled.get(ending, 1.0)
        seconds_expected += amount * machine.price(name, case.table.max_page_bytes)
    return Measured(seconds / served, seconds_expected, expected.work["access"])


def without_compiling(work: Callable[[], Result]) -> Result:
    """The result of ``work``, which is done again if a kernel was compiled meanwhile."""
    while True:
        before = compilations()
        result = work()
        if compilations() == before:
            return result


def _warm_up(run: Any, batches: Iterator[pa.RecordBatch], probe: Probe) -> None:
    warm = 0.0
    while warm < _WARM or (warm < _SLOW * _WARM and run.stats.rows_out < _capacity(run)):
        warm += _serve(run, [next(batches)], probe, _WARM)


def _run(run: Any, batches: Iterator[pa.RecordBatch], probe: Probe) -> tuple[dict[str, int], float]:
    """The counters before it, and the processor's seconds."""
    before, seconds = run.stats.as_dict(), 0.0
    while seconds < _RUN:
        seconds += _serve(run, [next(batches) for _ in range(4)], probe, _RUN)
    return before, seconds


def _case(
    master: Any, join: Any, on: Any, batch: pa.RecordBatch, probe: Probe, machine: Machine
) -> Case:
    binding = Binding(master, on, None, join.how)
    binding.bind(batch.schema)
    stream = StreamShape.of(batch, TupleLayout(binding, batch.schema))
    domain = max(1, min(master.num_rows, _PAGES * _ROWS))
    keys = zipf(domain, probe.skew) if probe.skew else uniform(domain)
    traffic = Traffic(keys, push=probe.push, drained=probe.drained)
    table = TableShape.of(master, binding)
    if "meshjoin" not in probe.join:  # goes past pages that no tuple waits for: they do not count
        used = len(pool_pages(table.num_pages))
        table = replace(table, num_pages=used, num_rows=used * table.num_rows // table.num_pages)
    return Case(join, table, stream, traffic, machine)


def _stream(pool: pa.RecordBatch, probe: Probe) -> Iterator[pa.RecordBatch]:
    """Tuples with keys of the pool, and two numbers."""
    random, position = np.random.default_rng(_SEED), 0
    weights = np.arange(1, pool.num_rows + 1) ** -probe.skew
    sums = np.cumsum(weights / weights.sum())
    shuffled = random.permutation(pool.num_rows)
    while True:
        rows = np.minimum(np.searchsorted(sums, random.random(probe.push)), pool.num_rows - 1)
        numbers = pa.array(np.arange(position, position + probe.push))
        position += probe.push
        keys = pool.take(pa.array(shuffled[rows]))
        names = [*pool.schema.names, f"{_STREAM}_id", f"{_STREAM}_amount"]
        yield pa.RecordBatch.from_arrays([*keys.columns, numbers, numbers], names)


def _serve(run: Any, batches: list[pa.RecordBatch], probe: Probe, most: float) -> float:
    """Push, and drain if wanted; returns the processor's seconds."""
    seconds = 0.0
    for batch in batches:
        began = time.process_time()
        for _ in run.push(batch):
            if time.process_time() - began > most and not probe.drained:
                break
        if probe.drained:
            for _ in run.flush():
                pass
        seconds += time.process_time() - began
        if seconds > most:
            break
    return seconds


def _capacity(run: Any) -> int:
    return int(run.plan.window.capacity) if run.plan.window is not None else 0
