"""The work that a model expects is the work that a run does.

Counts do not depend on how busy the machine is: pages, iterations, hits and output batches per
tuple, in the steady state.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import semistream as ss
from copied import count_copies
from cost.shapes import papers_machine
from harness import build
from semistream import workload
from semistream.cost import Case, Machine, Prediction, Traffic, predict, sweepjoin, uniform, zipf
from semistream.engine.binding import Binding
from semistream.engine.observer import Observer
from semistream.engine.shape import StreamShape, TableShape
from semistream.engine.window.tuple_layout import TupleLayout
from semistream.joins.sweep import plan
from semistream.joins.sweep.visit import READ_ROWS
from semistream.joins.sweep.visit_copies import WayChoice

ROWS, MEMORY, PUSH = 60_000, 600_000, 4_000
TURNS = 4  # windows that are served before and while it is counted
FAST = ("sweepjoin", "chybridjoin")
SLOW = tuple(name for name in ss.ALGORITHMS if name not in FAST)
OPTIONS: dict[str, dict[str, Any]] = {
    "sweepjoin": {"front_stage": 0.15},
    **{
        name: {"adapt": False}
        for name in ("meshjoin", "r-meshjoin", "hybridjoin", "cmeshjoin", "chybridjoin")
    },
    "x-hybridjoin": {"observe": 10_000, "pinned": 0.2},
    "optimised-x-hybridjoin": {"observe": 10_000},
}


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> ss.MasterTable:
    folder: Path = tmp_path_factory.mktemp("counts")
    rows = workload.products(ROWS, 113, seed=1).read_all()
    return build(folder / "table", rows, ["product_id"], page_bytes="4KiB")


@pytest.fixture(autouse=True)
def pages_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """SweepJoin times its ways to the pages, but counts are to be repeatable."""
    monkeypatch.setattr(plan, "_LEAST_COPIED", 1 << 60)


@pytest.fixture
def rows_are_copied(pages_are_read: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    count_copies(READ_ROWS, monkeypatch.setattr)
    monkeypatch.setattr(WayChoice, "best", lambda *_: READ_ROWS)
    monkeypatch.setattr(
        sweepjoin, "sweep", lambda case: sweepjoin._sweep(case, sweepjoin._READ_ROWS)
    )


class Stream:
    """Batches of sales, one after the other."""

    def __init__(self, exponent: float, scattered: bool = True) -> None:
        self._exponent, self._scattered, self._sent = exponent, scattered, 0

    def next(self, rows: int = PUSH) -> pa.RecordBatch:
        sales = workload.sales(
            rows, ROWS, self._exponent, seed=3, scattered=self._scattered, batch_rows=rows,
            offset=self._sent,
        )  # fmt: skip
        self._sent += rows
        return next(iter(sales))


def expected(
    join: ss.Join,
    master: ss.MasterTable,
    batch: pa.RecordBatch,
    exponent: float,
    drained: bool = False,
    clustered: bool = False,
    machine: Machine | None = None,
) -> Prediction:
    binding = Binding(master, "product_id", None, join.how)
    binding.bind(batch.schema)
    stream = StreamShape.of(batch, TupleLayout(binding, batch.schema))
    stream = stream.with_widest(8 * len(batch.schema))
    keys = zipf(ROWS, exponent) if exponent else uniform(ROWS)
    traffic = Traffic(keys, clustered, push=batch.num_rows, drained=drained)
    table = TableShape.of(master, binding)
    return predict(Case(join, table, stream, traffic, machine or Machine()))


class Disk(Observer):
    """Adds up what a disk would take for the reads of a run."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.seconds = 0.0

    def page_read(self, first: int, count: int, nbytes: int, seconds: float) -> None:
        self.seconds += self._machine.request_seconds(nbytes)


def counted(
    join: ss.Join, master: ss.MasterTable, stream: Stream, push: int, drained: bool
) -> dict[str, float]:
    """Work per tuple after the first turns; the disk is that of the papers."""
    disk = Disk(papers_machine())
    with join.open(master, on="product_id", observer=disk) as run:

        def serve(tuples: int) -> int:
            batches, until = 0, run.stats.matched + tuples
            while run.stats.matched < until:
                batches += sum(1 for _ in run.push(stream.next(push)))
                batches += sum(1 for _ in run.flush()) if drained else 0
            return batches

        serve(push)
        window = run.plan.window.capacity if run.plan.window is not None else 2 * push
        turn = 3 * max(window, push) if drained else TURNS * window
        serve(turn)
        before, disk.seconds = run.stats.as_dict(), 0.0
        batches = serve(turn)
        after = run.stats.as_dict()
    served = after["matched"] - before["matched"]
    found = {name: (after[name] - before[name]) / served for name in after}
    return {**found, "batches": batches / served, "disk": disk.seconds / served}


class Admissions(Observer):
    """Counts the rows that enter the front stage."""

    def __init__(self) -> None:
        self.admitted = 0

    def front_stage_changed(self, admitted: int, evicted: int, held: int, threshold: int) -> None:
        self.admitted += admitted


@pytest.mark.slow
@pytest.mark.parametrize("front_stage", [0.1, 0.15, 0.2, 0.3, 0.5, 0.7])
def test_rows_that_cinlj_admits(front_stage: float, master: ss.MasterTable) -> None:
    """A large front stage lets the threshold fall, and is offered much more."""
    join = ss.join("cinlj", memory=MEMORY, front_stage=front_stage)
    stream, admissions = Stream(1.0), Admissions()
    model = expected(join, master, stream.next(), 1.0)
    with join.open(master, on="product_id", observer=admissions) as run:
        for _ in range(60):
            list(run.push(stream.next()))
        before, admissions.admitted = run.stats.as_dict(), 0
        for _ in range(480):  # the threshold changes once in a span, by chance: many are needed
            list(run.push(stream.next()))
        missed = run.stats.matched - before["matched"]
        missed -= run.stats.front_stage_hits - before["front_stage_hits"]
    offered = model.work["recent.row"] / model.work["recent.tuple"]
    # With the smallest front stage 0.042 are expected and 0.056 counted, perhaps because the
    # threshold falls now and then. That is 12 ns for a missed tuple.
    assert offered == pytest.approx(admissions.admitted / missed, rel=0.2, abs=0.02)


def check(
    name: str, exponent: float, master: ss.MasterTable, drained: int = 0, clustered: bool = False,
    hits_within: float = 0.03,
) -> None:  # fmt: skip
    join = ss.join(name, memory=MEMORY, **OPTIONS.get(name, {}))
    stream, push = Stream(exponent, scattered=not clustered), drained or PUSH
    model = expected(join, master, stream.next(push), exponent, bool(drained), clustered)
    run = counted(join, master, stream, push, bool(drained))
    assert model.pages_per_tuple == pytest.approx(run["pages_read"], rel=0.08)
    assert 1 / model.tuples_per_iteration == pytest.approx(run["iterations"], rel=0.10)
    if name != "x-hybridjoin":  # whose pinned pages are not a front stage
        assert model.front_share == pytest.approx(run["front_stage_hits"], abs=hits_within)
    if name == "sweepjoin":
        assert model.work["batch"] == pytest.approx(run["batches"], rel=0.20)


@pytest.mark.parametrize("exponent", [0.0, 1.0])
@pytest.mark.parametrize("name", FAST)
def test_counts_of_a_stream(name: str, exponent: float, master: ss.MasterTable) -> None:
    check(name, exponent, master)


@pytest.mark.usefixtures("rows_are_copied")
@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_counts_where_rows_are_copied(exponent: float, master: ss.MasterTable) -> None:
    """A visit that serves more tuples learns more of the keys: there are some more hits."""
    check("sweepjoin", exponent, master, drained=1_000, hits_within=0.06)


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", SLOW)
def test_counts_of_a_stream_of_the_other_joins(
    name: str, exponent: float, master: ss.MasterTable
) -> None:
    check(name, exponent, master)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sweepjoin", "hybridjoin"])
def test_counts_of_drained_batches(name: str, master: ss.MasterTable) -> None:
    check(name, 1.0, master, drained=1_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hybridjoin", "inlj"])
def test_counts_of_drained_batches_where_hot_rows_are_stored_together(
    name: str, master: ss.MasterTable
) -> None:
    check(name, 1.0, master, drained=4_000, clustered=True)


@pytest.mark.slow
@pytest.mark.parametrize("push", [1_000, 8_000])
def test_visits_of_drained_batches_where_hot_rows_are_stored_together(
    push: int, master: ss.MasterTable
) -> None:
    """A stretch that is needed as a whole is visited alone, and leaves nothing of the one before
    it unused."""
    join = ss.join("sweepjoin", memory=MEMORY, **OPTIONS["sweepjoin"])
    stream = Stream(1.0, scattered=False)
    model = expected(join, master, stream.next(push), 1.0, drained=True, clustered=True)
    run = counted(join, master, stream, push, drained=True)
    assert 1 / model.tuples_per_iteration == pytest.approx(run["iterations"], rel=0.10)


@pytest.mark.slow
@pytest.mark.parametrize("clustered", [True, False])
def test_the_calculated_cost_is_the_measured_cost(clustered: bool, master: ss.MasterTable) -> None:
    """002 figure 8: X-HYBRIDJOIN's cost of an iteration, on the papers' disk, whose time is most of
    it; by memory. The cost of a tuple, too, where hot rows are anywhere: where they are stored
    together, one read serves a large part of the window, which the model takes to be mixed."""
    costs = []
    for memory in (MEMORY // 2, MEMORY, 2 * MEMORY, 4 * MEMORY):
        join = ss.join("x-hybridjoin", memory=memory, **OPTIONS["x-hybridjoin"])
        stream = Stream(1.0, scattered=not clustered)
        model = expected(
            join, master, stream.next(), 1.0, clustered=clustered, machine=papers_machine()
        )
        run = counted(join, master, stream, PUSH, drained=False)
        assert model.work["disk"] * model.rate > 0.75
        calculated = model.work["disk"] * model.tuples_per_iteration
        assert calculated == pytest.approx(run["disk"] / run["iterations"], rel=0.03)
        if not clustered:
            assert model.work["disk"] == pytest.approx(run["disk"], rel=0.08)
        costs.append(model.work["disk"])
    assert costs == sorted(costs, reverse=True)
