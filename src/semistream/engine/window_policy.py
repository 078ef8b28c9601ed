"""Base policy of the published window joins: scan partitions and probe a hash window."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import pyarrow as pa

from semistream.engine.disk_buffer import DiskBuffer, Scan
from semistream.engine.front.learner import Learner
from semistream.engine.intake import Slice
from semistream.engine.memory_mover import Limits, MemoryMover, starting_at
from semistream.engine.plan import MemoryPlan, budget_error, page_scratch, plan_memory
from semistream.engine.policy import Parts, Policy
from semistream.engine.probe import Probe
from semistream.engine.rows.layout import Rows
from semistream.engine.shape import StreamShape, TableShape, tuple_heap_bytes
from semistream.engine.window.hash_window import HashWindow
from semistream.master.pages import PageSource


def check_tuples_fit(join: Any, kind: Any, window: Any, batch: pa.RecordBatch) -> None:
    """Raise BudgetError if a tuple of the batch does not fit even into an empty window."""
    layout = window.layout
    if not layout.record.has_heap:
        return
    columns = layout.columns(batch)
    row = window.rows.first_too_large(columns)
    if row is not None:
        needed = kind.least_bytes(layout) + tuple_heap_bytes(layout, columns, row)
        raise budget_error(join, join.memory + 2 * needed)


# 003 finds the optimum near 15 %. Adding, joining and removing a tuple takes about 0.3 us.
LIMITS = Limits(start=0.15, serve_seconds=0.3e-6)
_FILLED = 0.8  # of the slots: tuples wait for room, so that a larger window would help


class WindowPolicy(Policy):
    """A window of waiting tuples, a disk buffer, and optionally a front stage.

    A subclass says which partition is scanned next (``begin`` sets ``scan``) and who leaves when
    (``buffer_done``, ``partition_done``). ``resume`` reads the partition one buffer at a time and
    probes it; tuples that it matches are marked in ``window.state``, and stay until the subclass
    removes them. The iteration ends when the subclass sets ``scan`` to None and calls
    ``iteration_over``: in ``partition_done``, or later if leaving takes several output batches, for
    which it overrides ``resume``. ``buffer_done`` calls ``learn``, for joins with a front stage.

    A table without pages is the subclass's business: ``Scan(0, -1)`` keeps the policy busy, but
    ``WindowPolicy.resume`` must not be called with it.
    """

    window_kind: type[HashWindow]
    table: TableShape
    learns = True  # offer hot rows of scanned pages to the front stage

    def __init__(self, join: Any, parts: Parts) -> None:
        super().__init__(join, parts)
        self.window: Any = None
        self.scan: Scan | None = None
        self.probe: Probe | None = None
        self._served = 0  # tuples served when the front stage was last aged
        self._round = 0.0  # pages scanned since the last round, as a part of the table
        self._mover: MemoryMover | None = None
        if join.moves_memory:
            self._mover = MemoryMover(starting_at(LIMITS, join.front_stage, join.memory))

    # -- versions and memory ---------------------------------------------------------------

    def attach(self, source: PageSource, table: TableShape, plan: MemoryPlan) -> None:
        if self._mover is not None and self.window is not None:
            self._mover.table_changed_from(self.table.num_rows, table.num_rows)
        self.source = source
        self.table = table
        self.scan = None
        self.buffer = DiskBuffer(self.context, source, plan.buffer_pages)
        self.learner = Learner(self.context, source)
        self.admission.attach(source)

    def detach(self) -> None:
        self.scan = None
        self.buffer.close()

    def plan(self, table: TableShape, stream: StreamShape) -> MemoryPlan:
        plan = self._divided(table, stream)
        if plan.front is None and self.front is not None and self._mover is not None:
            self._mover.too_small()
            plan = self._divided(table, stream)
        return plan

    def _divided(self, table: TableShape, stream: StreamShape) -> MemoryPlan:
        join = self.join
        if self._mover is not None:
            join = replace(join, front_stage=self._mover.share)
        return plan_memory(join, table, stream, self.context.settings)

    @property
    def wants_new_plan(self) -> bool:
        return self._is_moving or self.window is None  # the last one could not be allocated

    @property
    def _is_moving(self) -> bool:
        return self._mover is not None and self._mover.moves

    def allocate(self, plan: MemoryPlan) -> None:
        assert self.intake.layout is not None
        assert plan.window is not None
        self.window = self.probe = None  # free the old ones before allocating the new ones
        moving = self._is_moving
        self.make_front_stage(plan, self.table, keeps_size=not moving, keeps_rows=moving)
        if self._mover is not None:
            self._mover.moved()
            if self.front is not None:
                self.front.watch()
        self.window = self.window_kind(self.intake.layout, plan.window)
        self.probe = Probe(self.context, self.output, self.window, plan.output_rows)

    def memory(self) -> dict[str, int]:
        return {
            "window": self.window.nbytes if self.window is not None else 0,
            "front stage": self.front.nbytes if self.front else 0,
            "disk buffer": self.buffer.nbytes + page_scratch(self.table, self.buffer.pages),
            "pending output": self.output.nbytes + (self.probe.nbytes if self.probe else 0),
        }

    # -- admission -------------------------------------------------------------------------

    @property
    def held(self) -> int:
        return self.window.count if self.window is not None else 0

    def take_in(self) -> None:
        """Refill the vacant slots from the intake."""
        vacant = self.window.vacant
        self.full = not vacant
        if vacant:
            self.admit(vacant)

    def admit(self, vacant: int) -> int:
        added = self.admission.admit(vacant, self._add)
        self.full = self.admission.full
        if self._mover is not None:
            count = self.window.count
            self._mover.note_window(count, count >= _FILLED * self.window.capacity)
        return added

    def _add(self, part: Slice, rows: Rows) -> int:
        return int(self.window.add(part.codes, part.columns, rows))

    def check_batch(self, batch: pa.RecordBatch) -> None:
        check_tuples_fit(self.join, self.window_kind, self.window, batch)

    # -- scanning --------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return self.scan is not None

    def resume(self) -> None:
        scan, probe = self.scan, self.probe
        assert scan is not None
        assert probe is not None
        if not scan.pages:
            self.buffer.fill(scan)
        if probe.advance(scan):
            self.buffer_done(scan)
            scan.clear()
            if scan.ended:
                self.partition_done(scan)

    @abstractmethod
    def buffer_done(self, scan: Scan) -> None:
        """The pages in the buffer have met every waiting tuple; ``scan.counts`` are the pairs of
        each of their rows."""

    @abstractmethod
    def partition_done(self, scan: Scan) -> None:
        """All pages of the partition have met every waiting tuple."""

    def learn(self, scan: Scan) -> None:
        """Offer rows that matched enough waiting tuples to the front stage, and age it."""
        front, stats = self.front, self.context.stats
        if front is None or not self.learns:
            return
        self.learner.learn(front, scan)
        served = stats.matched + stats.unmatched
        front.age(scan.pages / self.table.num_pages, served - self._served)
        self._served = served
        self._round += scan.pages / self.table.num_pages
        if self._round >= 1.0 and self._mover is not None:
            self._round = 0.0
            self._mover.round_done(front, self.window, stats)

    def iteration_over(self) -> None:
        """Before memory moves, the window must be empty."""
        seconds = self.context.iteration_ends()
        self.full = False
        if self._mover is not None:
            self._mover.note_seconds(seconds)
            self.full = self._mover.drains and self.held > 0
