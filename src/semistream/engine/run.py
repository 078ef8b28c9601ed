"""A run: one open join. It owns the parts and runs the loop; a policy makes the decisions.

    push -> intake -> [front stage] -> window ... iterations over pages ... -> output -> caller

A run works in bounded steps, and all its state is in its parts, none in the iterators that it
returns: if an iterator is abandoned or a page read fails, the next call continues from there.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from semistream.engine.age_limit import AgeLimit
from semistream.engine.binding import Binding
from semistream.engine.context import Clock, Context
from semistream.engine.intake import Intake
from semistream.engine.observer import Observer
from semistream.engine.output import Output
from semistream.engine.plan import MemoryPlan, budget_error, output_row_bytes, plan_memory
from semistream.engine.policy import Parts, Policy
from semistream.engine.rows.layout import RowWidths
from semistream.engine.shape import StreamShape, TableShape
from semistream.engine.window.tuple_layout import TupleLayout
from semistream.errors import ConfigError, SemistreamError
from semistream.master.pages import PageSource
from semistream.stats import MemoryUse, Stats


class _Coming(NamedTuple):
    """A version to which a run is about to switch."""

    source: PageSource
    table: TableShape
    plan: MemoryPlan


class Run:
    """An open join. Use it as a context manager, or close it."""

    def __init__(
        self,
        join: Any,
        policy: Callable[[Any, Parts], Policy],
        source: PageSource,
        binding: Binding,
        direct: bool,
        follow: bool,
        observer: Observer | None,
        clock: Clock,
        age_limit: AgeLimit | None = None,
    ) -> None:
        self.join = join
        self._age_limit = age_limit
        self._context = Context(binding, observer or Observer(), clock, direct)
        self._follow = follow
        self._wanted = source.version
        self._closed = False
        self._failed_version: int | None = None  # a version that could not be opened
        self._detached = False  # a switch failed, and so did reattaching
        self._coming: tuple[int, _Coming | None] | None = None  # see _may_switch
        parts = Parts(self._context)
        self._intake, self._output = parts.intake, parts.output
        self._policy = policy(join, parts)
        self._source = source
        self._stream = StreamShape()
        self._table = TableShape.of(source, binding, direct)
        self._plan = plan_memory(join, self._table, self._stream)
        self._attached = self._plan
        self._policy.attach(source, self._table, self._plan)

    # -- public interface ------------------------------------------------------------------

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Push a batch; iterate over the result to get the rows that are ready.

        The call itself accepts the batch, or raises and changes nothing. Work that an abandoned
        iterator leaves unfinished is done by the next call.
        """
        self._check_open()
        version = self.next_version
        if self._age_limit is not None:
            self._age_limit.check(self._source, version)
        self._check_batch(batch)
        self.stats.tuples_in += batch.num_rows
        self._context.observer.pushed(batch.num_rows)
        if batch.num_rows or version != self.version:
            self._intake.push(batch, version)
        return self._serve(self._has_input)

    def requeue(self, batch: pa.RecordBatch) -> None:
        """Queue tuples that were counted before: shed or parked ones that come back."""
        self.check(batch)
        self._intake.push(batch, self.next_version)

    def check(self, batch: pa.RecordBatch) -> None:
        """Raise if ``push`` would."""
        self._check_open()
        self._check_batch(batch)

    def step(self) -> Iterator[pa.RecordBatch]:
        """Run one iteration without new input, for a stream that pauses."""
        self._check_open()
        stats, policy = self.stats, self._policy
        target = stats.iterations + 1
        return self._serve(
            lambda: policy.busy or (stats.iterations < target and self._is_unfinished())
        )

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Serve all waiting tuples."""
        self._check_open()
        return self._serve(self._is_unfinished)

    def close(self) -> None:
        """Release memory and files. Waiting tuples are discarded: flush first."""
        if not self._closed:
            self._closed = True
            self._policy.detach()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def use(self, version: int) -> None:
        """Join batches pushed from now on with this version of the master table.

        This includes queued batches whose version could not be opened.
        """
        self._check_open()
        self._follow = False
        self._wanted = version
        if self._failed_version is not None:
            self._intake.redirect(self._failed_version, version)
        self._failed_version = None

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def stats(self) -> Stats:
        return self._context.stats

    @property
    def version(self) -> int:
        """The version of the master table that the run has open."""
        return self._source.version

    @property
    def failed_version(self) -> int | None:
        """A version of a queued batch that could not be opened."""
        return self._failed_version

    @property
    def next_version(self) -> int:
        """The version with which a batch is joined that is pushed now."""
        return self._source.newest_version() if self._follow else self._wanted

    @property
    def age(self) -> float | None:
        """Seconds since the open version was last known to be in step with its source; None if it
        follows none."""
        age_at = getattr(self._source, "age_at", None)
        return None if age_at is None else age_at(self.version)

    @property
    def source(self) -> PageSource:
        """The master table at :attr:`version`."""
        return self._source

    @property
    def parts(self) -> tuple[Context, Intake, Output, Policy]:
        """For what wraps a run: load shedding and parking."""
        return self._context, self._intake, self._output, self._policy

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the output rows; None before the first push."""
        return self._context.binding.schema

    @property
    def memory(self) -> MemoryUse:
        """Bytes by component."""
        components = {"page index": 0, **self._policy.memory()}
        components["page index"] += self._table.index_bytes
        return MemoryUse(components, self._plan.budget)

    @property
    def plan(self) -> MemoryPlan:
        """How the budget is divided."""
        return self._plan

    @property
    def longest_wait(self) -> int | None:
        """Maximum number of iterations that a tuple waits; None without a fixed bound."""
        return self._policy.longest_wait

    # -- the loop --------------------------------------------------------------------------

    def _serve(self, more: Callable[[], bool]) -> Iterator[pa.RecordBatch]:
        output, stats, work = self._output, self.stats, self._work
        ready = output.ready
        while True:
            while ready:
                yield output.pop()
            if self._closed:
                return
            began = time.perf_counter()  # not the run's clock, which decisions may depend on
            try:
                goes_on = more()
                while goes_on and not ready and not self._closed:
                    work()
                    goes_on = more()
                if not goes_on and not self._closed:
                    self._policy.hand_over()
            finally:
                stats.seconds += time.perf_counter() - began
            if not (goes_on or ready or self._closed):
                self._plan = self._policy.give_ahead(self._plan)
                return

    def _work(self) -> None:
        if self._detached:
            self._reattach()
        policy, intake = self._policy, self._intake
        if policy.busy:
            policy.resume()
        elif intake and intake.version != self.version:
            if policy.held and not self._may_switch():
                policy.begin()
            elif self._drain_output():
                self._switch_version()
        elif intake and not policy.full:
            if not policy.wants_new_plan or policy.held:
                policy.take_in()
            elif self._drain_output():
                self._allocate(policy.plan(self._table, self._stream), self._stream)
                policy.take_in()
        else:
            policy.begin()

    def _drain_output(self) -> bool:
        """Emit rows that were kept back; returns whether the caller has all rows, so that memory
        can be divided again."""
        self._policy.hand_over()
        return not self._output

    def _has_input(self) -> bool:
        return bool(self._intake) or self._policy.busy

    def _is_unfinished(self) -> bool:
        return bool(self._intake) or self._policy.busy or self._policy.held > 0

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigError("this run is closed; open the join again")

    # -- memory ----------------------------------------------------------------------------

    def _check_batch(self, batch: pa.RecordBatch) -> None:
        """Raise for a batch with another schema, or with a tuple that the budget cannot hold.

        A rejected batch changes nothing: if it was the first, the next one sets the schema.
        """
        binding, before = self._context.binding, self._stream
        binding.check_batch(batch)
        try:
            self._make_room(batch)
            self._policy.check_batch(batch)
        except BaseException:
            self._stream = before
            if before.layout is None:
                binding.unbind()
            raise

    def _make_room(self, batch: pa.RecordBatch) -> None:
        """Plan at the first batch; later, check that output has room for two of the widest rows."""
        layout = self._stream.layout
        if layout is not None and layout.widths.is_fixed:
            return  # no row is wider than those of the first batch
        notable = self._plan.budget // 64
        widths = RowWidths(batch.schema.types) if layout is None else layout.widths
        widest = max(self._stream.widest, widths.longest(batch, notable))
        if layout is None:
            schema = self._context.binding.stream_schema
            assert schema is not None
            layout = TupleLayout(self._context.binding, schema)
            stream = StreamShape.of(batch, layout).with_widest(widest)
            self._allocate(self._policy.plan(self._table, stream), stream)
        elif widest > self._stream.widest:
            stream = self._stream.with_widest(widest)
            row = output_row_bytes(self.join, self._table, stream)
            if 2 * row > self._plan.output:
                smallest = max(self._plan.smallest + 4 * row, self._plan.budget + 2 * row)
                raise budget_error(self.join, smallest)
            self._stream = stream
            self._output.set_row_bytes(row)

    def _allocate(self, plan: MemoryPlan, stream: StreamShape) -> None:
        self._plan, self._stream = plan, stream
        self._intake.layout = stream.layout
        row = output_row_bytes(self.join, self._table, stream)
        self._output.allocate(plan.output, plan.output_rows, row)
        self._policy.allocate(plan)

    # -- versions --------------------------------------------------------------------------

    def _may_switch(self) -> bool:
        """Whether no tuple waits that must be served before the next batch's version is opened.

        A version that cannot be opened raises when none waits at all.
        """
        version = self._intake.version
        if self._coming is None or self._coming[0] != version:
            self._coming = version, None
            with contextlib.suppress(SemistreamError, OSError):
                coming = self._open_version(version)
                self._coming = version, coming
                # A parked tuple waits for changes: it must be parked before the next one comes.
                fits = self._output.divert is None and self._has_room_for(coming.table, coming.plan)
                self._policy.prepare_switch(self._source, coming.source, coming.plan, fits)
        return self._coming[1] is not None and self._policy.can_switch

    def _open_version(self, version: int) -> _Coming:
        new = self._source.at_version(version, self._policy.awaited_pages)
        self._context.binding.check_version(new, self.version)
        table = TableShape.of(new, self._context.binding, self._context.direct)
        return _Coming(new, table, self._policy.plan(table, self._stream))

    def _must_allocate(self, table: TableShape, plan: MemoryPlan) -> bool:
        """Whether this table needs more memory than was allocated."""
        return self._has_wider_rows(table) or self._policy.outgrown(self._plan, plan)

    def _has_room_for(self, table: TableShape, plan: MemoryPlan) -> bool:
        """Whether tuples can wait on while this table is attached."""
        if self._must_allocate(table, plan):
            return not self._has_wider_rows(table) and self._policy.gives_way(plan)
        return True

    def _has_wider_rows(self, table: TableShape) -> bool:
        return 2 * output_row_bytes(self.join, table, self._stream) > self._plan.output

    def _switch_version(self) -> None:
        """Switch to the next batch's version. Tuples that wait still meet the rows of their own.

        The new version is checked and planned before the old one is detached. On any failure the
        run stays at the old version and the batch stays queued.
        """
        old = self._source
        self._failed_version = self._intake.version
        coming, self._coming = self._coming, None
        found = coming[1] if coming is not None and coming[0] == self._failed_version else None
        if found is not None and not self._policy.held:  # memory may be divided otherwise now
            found = found._replace(plan=self._policy.plan(found.table, self._stream))
        new, table, plan = found or self._open_version(self._failed_version)
        dropped = self._invalidate_changed(new, old)
        self._policy.detach()
        try:
            self._attach(new, table, plan)
        except BaseException:
            self._detached = True
            self._reattach()
            raise
        self._failed_version = None
        self._context.observer.version_changed(old.version, new.version, dropped)

    def _attach(self, source: PageSource, table: TableShape, plan: MemoryPlan) -> None:
        """Attach a version, and reallocate if it needs more memory than was allocated."""
        self._policy.attach(source, table, plan)
        before = self._source, self._table
        self._source, self._table = source, table
        try:
            if self._stream.layout is not None:
                if self._must_allocate(table, plan):
                    if self._policy.held:
                        self._plan = self._policy.give_way(plan)
                    else:
                        self._allocate(plan, self._stream)
                self._output.set_row_bytes(output_row_bytes(self.join, table, self._stream))
        except BaseException:
            self._source, self._table = before
            self._policy.detach()
            raise
        self._attached = plan

    def _reattach(self) -> None:
        """Attach the previous version again; if this fails, too, the next call retries."""
        self._policy.attach(self._source, self._table, self._attached)
        try:
            if self._stream.layout is not None and not self._policy.held:
                self._allocate(self._policy.plan(self._table, self._stream), self._stream)
        except BaseException:
            self._policy.detach()
            raise
        self._detached = False

    def _invalidate_changed(self, new: PageSource, old: PageSource) -> int:
        front = self._policy.front
        if front is None:
            return 0
        changed = new.changed_since(old)
        if changed is None:
            return front.clear()
        return sum(front.forget(codes) for codes in changed)
