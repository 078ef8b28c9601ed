"""The input of a model, and the sum of the work that it finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from semistream.cost.loads import Loads, partition_loads
from semistream.cost.machine import Machine
from semistream.cost.prediction import Prediction, Wait
from semistream.cost.traffic import Traffic
from semistream.engine.plan import MemoryPlan, plan_memory
from semistream.engine.settings import DEFAULTS, Settings
from semistream.engine.shape import StreamShape, TableShape

MOST_SERVED = 0.9999  # by a front stage: what is divided by the rest stays finite


@dataclass(frozen=True, eq=False)
class Case:
    """A join on a table, with a stream, on a machine. Nothing is opened."""

    join: Any
    table: TableShape
    stream: StreamShape
    traffic: Traffic
    machine: Machine = field(default_factory=Machine)
    settings: Settings = DEFAULTS
    front_share: float | None = None  # if it was observed; default: what the model expects

    @cached_property
    def plan(self) -> MemoryPlan:
        return plan_memory(self.join, self.table, self.stream, self.settings)

    def using(self, **options: Any) -> Case:
        """The same with other options of the join."""
        return replace(self, join=replace(self.join, **options))

    @property
    def rows_per_page(self) -> float:
        return self.table.num_rows / max(1, self.table.num_pages)

    @property
    def output_rows(self) -> int:
        return max(1, self.plan.output_rows)

    def loads(self, keys: Any, pages: int = 1) -> Loads:
        """How the tuples of these keys are spread over partitions of this many pages."""
        partitions = -(-max(1, self.table.num_pages) // max(1, pages))
        return partition_loads(keys, partitions, self.traffic.clustered)

    def settle(self, share: Callable[[float], float], start: float = 0.5) -> float:
        """The front stage's share where ``share(share)`` is the same: how much it learns depends
        on how much passes it by."""
        if self.front_share is not None:
            return min(self.front_share, MOST_SERVED)
        for _ in range(6):
            following = share(start)
            if abs(following - start) < 3e-3:
                break
            start = following
        return start


class Work:
    """Units of work, and what they cost."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.amounts: dict[str, float] = {}
        self.access = 0.0  # seconds of random accesses to memory
        self.disk = 0.0  # seconds that the disk works

    def add(self, factor: str, amount: float) -> None:
        self.amounts[factor] = self.amounts.get(factor, 0.0) + amount

    def touch(self, times: float, nbytes: float, dependent: bool = False) -> None:
        """Random accesses to a structure of this size."""
        self.access += times * self._case.machine.access_seconds(nbytes, dependent)

    def read(self, requests: float, nbytes: float, in_flight: int = 1) -> None:
        """Requests of this size, if they are not served from the page cache."""
        if self._case.table.direct or not self._case.machine.is_cached:
            self.disk += requests * self._case.machine.request_seconds(nbytes, in_flight)

    @property
    def processor(self) -> float:
        """Seconds of the processor."""
        machine, page = self._case.machine, self._case.table.max_page_bytes
        prices = (n * machine.price(factor, page) for factor, n in self.amounts.items())
        return self.access + sum(prices)

    def predict(
        self,
        *,
        iterations: float,
        tuples: float,
        front_share: float,
        held: float,
        longest: float,
        pages: float,
        overlap: bool = False,
    ) -> Prediction:
        """The prediction from the work of some iterations that serve this many tuples.

        ``held``: tuples that wait; ``longest``: tuples served while the last of them waits;
        ``overlap``: the disk reads ahead while the processor works.
        """
        case, cpu = self._case, self.processor
        seconds = max(cpu, self.disk) if overlap else cpu + self.disk
        rate = tuples / max(seconds, 1e-12)
        # Little's law: what waits, divided by what is served.
        wait = Wait(expected=held / rate, longest=max(longest, held) / rate)
        work = {name: amount / tuples for name, amount in self.amounts.items()}
        work["access"] = self.access / tuples
        work["disk"] = self.disk / tuples
        return Prediction(
            join=case.join.name,
            memory=case.plan.components(case.table.index_bytes),
            seconds_per_iteration=seconds / max(iterations, 1e-12),
            tuples_per_iteration=tuples / max(iterations, 1e-12),
            rate=rate,
            front_share=front_share,
            wait=wait,
            pages_per_tuple=pages / tuples,
            work=work,
        )
