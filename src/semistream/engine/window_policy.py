"""Base policy of the published window joins: scan partitions and probe a hash window."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import pyarrow as pa

from semistream.engine.buffer_mover import BufferMover
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
from semistream.errors import BudgetError
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
_MOST_BUFFER = 4  # budget // 4: the largest disk buffer that memory moves to
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
    least_served = 0.0  # tuples that a read serves, however few wait

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
        self._buffer_mover: BufferMover | None = None
        if join.moves_buffer and self.context.binding.has_key:
            fixed = self.context.settings.read_cost_bytes
            self._buffer_mover = BufferMover(fixed, LIMITS.serve_seconds, self.least_served)

    # -- versions and memory ---------------------------------------------------------------

    def attach(self, source: PageSource, table: TableShape, plan: MemoryPlan) -> None:
        if self.window is not None:
            if self._mover is not None:
                self._mover.table_changed_from(self.table.num_rows, table.num_rows)
            if self._buffer_mover is not None and table.num_pages != self.table.num_pages:
                self._buffer_mover.start_again()
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
        try:
            plan = self._divided(table, stream)
        except BudgetError:
            if self._buffer_mover is None or self._buffer_mover.pages is None:
                raise
            self._buffer_mover.too_large()
            plan = self._divided(table, stream)
        if plan.front is None and self.front is not None and self._mover is not None:
            self._mover.too_small()
            plan = self._divided(table, stream)
        return plan

    def _divided(self, table: TableShape, stream: StreamShape) -> MemoryPlan:
        join = self.join
        if self._mover is not None:
            join = replace(join, front_stage=self._mover.share)
        if self._buffer_mover is not None and self._buffer_mover.pages is not None:
            join = replace(join, disk_buffer_pages=self._buffer_mover.pages)
        return plan_memory(join, table, stream, self.context.settings)

    @property
    def wants_new_plan(self) -> bool:
        if self.window is None or not self.buffer.pages:  # the last one could not be allocated
            return True
        return any(mover.moves for mover in self._movers)

    @property
    def _movers(self) -> list[MemoryMover | BufferMover]:
        return [mover for mover in (self._mover, self._buffer_mover) if mover is not None]

    def allocate(self, plan: MemoryPlan) -> None:
        assert self.intake.layout is not None
        assert plan.window is not None
        self.window = self.probe = None  # free the old ones before allocating the new ones
        moving = [mover for mover in self._movers if mover.moves]
        front, resizes = self.front, plan.buffer_pages != self.buffer.pages
        if resizes:
            self.buffer.close()
        self.make_front_stage(
            plan, self.table, keeps_size=self._mover not in moving, keeps_rows=bool(moving)
        )
        try:
            if resizes:
                self.buffer.resize(plan.buffer_pages)
                self.buffer_resized()
        finally:  # with a buffer that cannot be opened, batches must still be checked
            self.window = self.window_kind(self.intake.layout, plan.window)
            self.probe = Probe(self.context, self.output, self.window, plan.output_rows)
        for mover in self._movers:
            mover.moved()
        if self._mover is not None and self.front is not None and self.front is not front:
            self.front.watch()

    def buffer_resized(self) -> None:
        """The disk buffer has another size now; no tuple waits."""

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
        began = 0.0 if self._mover is None else self.context.clock()
        added = self.admission.admit(vacant, self._add)
        if self._mover is not None:
            self._mover.note_admission(self.context.clock() - began)
        self.full = self.admission.full
        count = self.window.count
        for mover in self._movers:
            mover.note_window(count, count >= _FILLED * self.window.capacity)
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
        """Offer rows that matched enough waiting tuples to the front stage, and age it. After a
        round, a visit of as many pages as the table has, decide whether memory should move."""
        front, stats = self.front, self.context.stats
        if front is not None and self.learns:
            self.learner.learn(front, scan)
            served = stats.matched + stats.unmatched
            front.age(scan.pages / self.table.num_pages, served - self._served)
            self._served = served
        if self._buffer_mover is not None:
            self._buffer_mover.note_read()
        self._round += scan.pages / self.table.num_pages
        if self._round >= 1.0:
            self._round = 0.0
            self._round_done()

    def _round_done(self) -> None:
        stats = self.context.stats
        if self._mover is not None and self.front is not None:
            self._mover.round_done(self.front, self.window, stats)
        if self._buffer_mover is not None:
            waited = stats.matched + stats.unmatched - stats.front_stage_hits
            page_bytes = self.table.max_page_bytes
            self._buffer_mover.round_done(waited, self.buffer.pages, page_bytes, self._slots_beside)

    def _slots_beside(self, pages: int) -> float:
        """Slots of the window beside a disk buffer of this size; 0 if it cannot be as large."""
        table, window = self.table, self.window
        if (
            pages > table.num_pages
            or pages * table.max_page_bytes * _MOST_BUFFER > self.join.memory
        ):
            return 0.0
        nbytes = window.nbytes + self._buffer_bytes(self.buffer.pages) - self._buffer_bytes(pages)
        return float(window.capacity * nbytes / window.nbytes)

    def _buffer_bytes(self, pages: int) -> int:
        return self.table.buffer_bytes(pages) + page_scratch(self.table, pages)

    def iteration_over(self) -> None:
        """Before memory moves, the window must be empty."""
        seconds = self.context.iteration_ends()
        for mover in self._movers:
            mover.note_seconds(seconds)
        self.full = any(mover.drains for mover in self._movers) and self.held > 0
