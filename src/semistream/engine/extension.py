"""A policy that wraps and extends another one."""

from __future__ import annotations

import pyarrow as pa

from semistream.engine.front.contract import FrontStage
from semistream.engine.plan import MemoryPlan
from semistream.engine.policy import Policy
from semistream.engine.shape import StreamShape, TableShape
from semistream.master.pages import PageSource


class Extension(Policy):
    """Forwards everything to the inner policy. Subclasses override what they change."""

    def __init__(self, inner: Policy) -> None:
        self.inner = inner
        self.join = inner.join
        self.context = inner.context
        self.intake = inner.intake
        self.output = inner.output
        self.admission = inner.admission

    @property
    def full(self) -> bool:  # type: ignore[override]
        return self.inner.full

    def attach(self, source: PageSource, table: TableShape, plan: MemoryPlan) -> None:
        self.inner.attach(source, table, plan)

    def detach(self) -> None:
        self.inner.detach()

    def prepare_switch(
        self, old: PageSource, new: PageSource, plan: MemoryPlan, fits: bool
    ) -> None:
        self.inner.prepare_switch(old, new, plan, fits)

    @property
    def can_switch(self) -> bool:
        return self.inner.can_switch

    def plan(self, table: TableShape, stream: StreamShape) -> MemoryPlan:
        return self.inner.plan(table, stream)

    @property
    def wants_new_plan(self) -> bool:
        return self.inner.wants_new_plan

    def allocate(self, plan: MemoryPlan) -> None:
        self.inner.allocate(plan)

    def check_batch(self, batch: pa.RecordBatch) -> None:
        self.inner.check_batch(batch)

    def take_in(self) -> None:
        self.inner.take_in()

    def begin(self) -> None:
        self.inner.begin()

    def resume(self) -> None:
        self.inner.resume()

    def hand_over(self) -> None:
        self.inner.hand_over()

    @property
    def can_release(self) -> bool:  # type: ignore[override]
        return self.inner.can_release

    @property
    def awaited_pages(self) -> int:
        return self.inner.awaited_pages

    def release(self, most: int) -> pa.RecordBatch | None:
        return self.inner.release(most)

    def look_up_at(self, position: float) -> None:
        self.inner.look_up_at(position)

    @property
    def busy(self) -> bool:
        return self.inner.busy

    @property
    def held(self) -> int:
        return self.inner.held

    @property
    def front(self) -> FrontStage | None:
        return self.inner.front

    def memory(self) -> dict[str, int]:
        return self.inner.memory()

    @property
    def longest_wait(self) -> int | None:
        return self.inner.longest_wait

    def gives_way(self, new: MemoryPlan) -> bool:
        return self.inner.gives_way(new)

    def give_way(self, new: MemoryPlan) -> MemoryPlan:
        return self.inner.give_way(new)

    def give_ahead(self, plan: MemoryPlan) -> MemoryPlan:
        return self.inner.give_ahead(plan)

    def outgrown(self, plan: MemoryPlan, new: MemoryPlan) -> bool:
        return self.inner.outgrown(plan, new)
