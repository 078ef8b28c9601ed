"""A policy that adds something to another one, and leaves the rest to it."""

from __future__ import annotations

import pyarrow as pa

from semistream.engine.front.contract import FrontStage
from semistream.engine.plan import MemoryPlan
from semistream.engine.policy import Policy
from semistream.engine.shape import StreamShape, TableShape
from semistream.master.pages import PageSource


class Extension(Policy):
    """Forwards everything to the policy inside. Subclasses override what they add."""

    def __init__(self, inside: Policy) -> None:
        self.inside = inside
        self.join = inside.join
        self.context = inside.context
        self.intake = inside.intake
        self.output = inside.output
        self.admission = inside.admission

    @property
    def full(self) -> bool:  # type: ignore[override]
        return self.inside.full

    def attach(self, source: PageSource, table: TableShape, plan: MemoryPlan) -> None:
        self.inside.attach(source, table, plan)

    def detach(self) -> None:
        self.inside.detach()

    def plan(self, table: TableShape, stream: StreamShape) -> MemoryPlan:
        return self.inside.plan(table, stream)

    def allocate(self, plan: MemoryPlan) -> None:
        self.inside.allocate(plan)

    def check_batch(self, batch: pa.RecordBatch) -> None:
        self.inside.check_batch(batch)

    def take_in(self) -> None:
        self.inside.take_in()

    def begin(self) -> None:
        self.inside.begin()

    def resume(self) -> None:
        self.inside.resume()

    def hand_over(self) -> None:
        self.inside.hand_over()

    @property
    def busy(self) -> bool:
        return self.inside.busy

    @property
    def held(self) -> int:
        return self.inside.held

    @property
    def front(self) -> FrontStage | None:
        return self.inside.front

    def memory(self) -> dict[str, int]:
        return self.inside.memory()

    @property
    def longest_wait(self) -> int | None:
        return self.inside.longest_wait

    def outgrown(self, plan: MemoryPlan, new: MemoryPlan) -> bool:
        return self.inside.outgrown(plan, new)
