"""A run: one join at work. It owns the parts and turns the loop; a policy decides.

    push -> intake -> [front stage] -> window ... iterations over pages ... -> output -> caller

A run works in bounded steps, and all its state lives in its parts, none in the iterators that it
hands out: an iterator may be abandoned, or a page read may fail, and the next call goes on from
there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from semistream.engine.binding import Binding
from semistream.engine.context import Clock, Context
from semistream.engine.observer import Observer
from semistream.engine.plan import MemoryPlan, output_row_bytes, plan_memory, refusal
from semistream.engine.policy import Parts, Policy
from semistream.engine.rows.layout import longest_row
from semistream.engine.shape import StreamShape, TableShape
from semistream.engine.window.tuple_layout import TupleLayout
from semistream.errors import BudgetError, ConfigError
from semistream.master.pages import PageSource
from semistream.stats import MemoryUse, Stats


class Run:
    """One join at work. Use it as a context manager, or close it."""

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
    ) -> None:
        self.join = join
        self._context = Context(binding, observer or Observer(), clock, direct)
        self._follow = follow
        self._wanted = source.version
        self._closed = False
        self._unreachable: int | None = None  # a version that the run could not move to
        self._detached = False  # a move failed, and so did the way back
        parts = Parts(self._context)
        self._intake, self._output = parts.intake, parts.output
        self._policy = policy(join, parts)
        self._source = source
        self._stream = StreamShape()
        self._table = TableShape.of(source, binding, direct)
        self._plan = plan_memory(join, self._table, self._stream)
        self._attached = self._plan
        self._policy.attach(source, self._table, self._plan)

    # -- what callers use ------------------------------------------------------------------

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take in a batch; iterate over the result to get the rows that are ready.

        The batch is accepted by the call itself, or refused as a whole. Work that an abandoned
        iterator leaves undone is done by the next call.
        """
        self._check_open()
        version = self._source.newest_version() if self._follow else self._wanted
        self._check_batch(batch)
        self.stats.tuples_in += batch.num_rows
        self._context.observer.pushed(batch.num_rows)
        if batch.num_rows or version != self.version:
            self._intake.push(batch, version)
        return self._serve(lambda: bool(self._intake) or self._policy.busy)

    def step(self) -> Iterator[pa.RecordBatch]:
        """Do one iteration without new input, for a stream that pauses."""
        self._check_open()
        target = self.stats.iterations + 1
        return self._serve(
            lambda: (self.stats.iterations < target or self._policy.busy) and self._unfinished
        )

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Serve everything that still waits."""
        self._check_open()
        return self._serve(lambda: self._unfinished)

    def close(self) -> None:
        """Release memory and files. Tuples that still wait are discarded: flush first."""
        if not self._closed:
            self._closed = True
            self._policy.detach()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def use(self, version: int) -> None:
        """Batches pushed from now on meet this version of the master table.

        So do batches that still wait because the run could not move to their version.
        """
        self._check_open()
        self._follow = False
        self._wanted = version
        if self._unreachable is not None:
            self._intake.redirect(self._unreachable, version)
        self._unreachable = None

    @property
    def stats(self) -> Stats:
        return self._context.stats

    @property
    def version(self) -> int:
        """The version of the master table that the run has open."""
        return self._source.version

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the rows that come out; None before the first push."""
        return self._context.binding.schema

    @property
    def memory(self) -> MemoryUse:
        """Bytes by component."""
        components = {**self._policy.memory(), "page index": self._table.index_bytes}
        return MemoryUse(components, self._plan.budget)

    @property
    def plan(self) -> MemoryPlan:
        """How the budget is divided."""
        return self._plan

    @property
    def longest_wait(self) -> int | None:
        """Iterations that a tuple can wait at most, where the algorithm has such a bound."""
        return self._policy.longest_wait

    # -- the loop --------------------------------------------------------------------------

    def _serve(self, more: Callable[[], bool]) -> Iterator[pa.RecordBatch]:
        output = self._output
        while True:
            while output:
                yield output.pop()
            if self._closed:
                return
            if more():
                self._work()
            else:
                self._policy.hand_over()
                if not output:
                    return

    def _work(self) -> None:
        if self._detached:
            self._return()
        policy, intake = self._policy, self._intake
        if policy.busy:
            policy.resume()
        elif intake and intake.version != self.version:
            if policy.held:
                policy.begin()
            else:
                self._move()
        elif intake and not policy.full:
            if policy.wants_new_plan and not policy.held:
                policy.hand_over()
                self._allocate(policy.plan(self._table, self._stream), self._stream)
            policy.take_in()
        else:
            policy.begin()

    @property
    def _unfinished(self) -> bool:
        return bool(self._intake) or self._policy.busy or self._policy.held > 0

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigError("this run is closed; open the join again to go on")

    # -- memory ----------------------------------------------------------------------------

    def _check_batch(self, batch: pa.RecordBatch) -> None:
        """Refuse a batch that does not fit the stream, or has a tuple that the budget cannot hold.

        A refused batch changes nothing: if it was the first, the next one is the first again.
        """
        binding, before = self._context.binding, self._stream
        binding.check_batch(batch)
        try:
            self._make_room(batch)
            self._policy.check_batch(batch)
        except BudgetError:
            self._stream = before
            if before.layout is None:
                binding.unbind()
            raise

    def _make_room(self, batch: pa.RecordBatch) -> None:
        """The first batch makes a plan. Output must have room for two rows of the widest kind."""
        notable = self._plan.budget // 64
        widest = max(self._stream.widest, longest_row(batch, notable))
        if self._stream.layout is None:
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
                raise refusal(self.join, smallest)
            self._stream = stream
            self._output.set_row_bytes(row)

    def _allocate(self, plan: MemoryPlan, stream: StreamShape) -> None:
        self._plan, self._stream = plan, stream
        self._intake.layout = stream.layout
        row = output_row_bytes(self.join, self._table, stream)
        self._output.allocate(plan.output, plan.output_rows, row)
        self._policy.allocate(plan)

    # -- versions --------------------------------------------------------------------------

    def _move(self) -> None:
        """Go to the next batch's version. Nothing waits, so no tuple meets two versions.

        The new version is checked and planned for before the old one is left. If that or
        anything else fails, the run stays where it was and the batch goes on waiting.
        """
        old = self._source
        self._unreachable = self._intake.version
        new = old.at_version(self._unreachable)
        self._context.binding.check_version(new, old.version)
        table = TableShape.of(new, self._context.binding, self._context.direct)
        plan = self._policy.plan(table, self._stream)
        self._policy.hand_over()
        dropped = self._forget_changed(new, old.version)
        self._policy.detach()
        try:
            self._attach(new, table, plan)
        except BaseException:
            self._detached = True
            self._return()
            raise
        self._unreachable = None
        self._context.observer.version_changed(old.version, new.version, dropped)

    def _attach(self, source: PageSource, table: TableShape, plan: MemoryPlan) -> None:
        """Attach a version, and divide the memory again if what it needs has outgrown it."""
        self._policy.attach(source, table, plan)
        before = self._source, self._table
        self._source, self._table = source, table
        try:
            if self._stream.layout is not None:
                row = output_row_bytes(self.join, table, self._stream)
                if 2 * row > self._plan.output or self._policy.outgrown(self._plan, plan):
                    self._allocate(plan, self._stream)
                self._output.set_row_bytes(row)
        except BaseException:
            self._source, self._table = before
            self._policy.detach()
            raise
        self._attached = plan

    def _return(self) -> None:
        """Attach the version that the run had; if this fails, too, the next call tries again."""
        self._policy.attach(self._source, self._table, self._attached)
        if self._stream.layout is not None:
            self._allocate(self._policy.plan(self._table, self._stream), self._stream)
        self._detached = False

    def _forget_changed(self, new: PageSource, since: int) -> int:
        front = self._policy.front
        if front is None:
            return 0
        changed = new.changed_keys(since)
        if changed is None:
            return front.clear()
        codes = self._context.binding.master_codes
        return sum(front.forget(codes(keys)[0]) for keys in changed)
