"""A policy: what an algorithm decides. The run's loop calls it; it works on the run's parts.

Each turn of the loop (``Run._work``) makes one of these calls, in this order of precedence::

    policy.resume()       while ``busy``: go on with the iteration, by at most one output batch
    policy.take_in()      while there is input and not ``full``: tuples from intake to window
    policy.begin()        else, if a tuple waits: an iteration; choose pages and read them

A join in which nothing waits (INLJ) does all its work in ``take_in``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import pyarrow as pa

from semistream.engine.admission import Admission
from semistream.engine.context import Context
from semistream.engine.front.choice import new_front_stage
from semistream.engine.front.contract import FrontStage
from semistream.engine.intake import Intake
from semistream.engine.output import Output
from semistream.engine.plan import MemoryPlan, plan_memory
from semistream.engine.shape import StreamShape, TableShape
from semistream.master.pages import PageSource


class Parts:
    """The parts that the run owns and every policy works on."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.intake = Intake(context)
        self.output = Output(context)
        self.admission = Admission(context, self.intake, self.output)


class Policy(ABC):
    """One algorithm at work on one run's parts.

    ``attach`` and ``detach`` follow the versions of the table, ``allocate`` the memory plan; no
    tuple waits when they are called. Everything else happens within the loop. A page read may
    raise anywhere in ``begin`` and ``resume``: then the next call tries it again, and no tuple
    has left.

    An iteration starts with ``context.iteration_begins()`` and ends with ``iteration_over()`` (or
    with ``context.iteration_ends()``, where the policy sets ``full`` itself). A tuple that leaves
    is counted in ``stats.matched`` or ``stats.unmatched``; admission counts those that never wait.
    """

    full = False  # no tuple is taken in until an iteration has made room

    def __init__(self, join: Any, parts: Parts) -> None:
        self.join = join
        self.context = parts.context
        self.intake = parts.intake
        self.output = parts.output
        self.admission = parts.admission

    @abstractmethod
    def attach(self, source: PageSource, table: TableShape, plan: MemoryPlan) -> None:
        """Open a version of the table: readers, and what is kept per page."""

    @abstractmethod
    def detach(self) -> None:
        """Close what ``attach`` opened."""

    def plan(self, table: TableShape, stream: StreamShape) -> MemoryPlan:
        """How the budget is to be divided now."""
        return plan_memory(self.join, table, stream, self.context.settings)

    @property
    def wants_new_plan(self) -> bool:
        """Whether memory should be divided anew as soon as nothing waits."""
        return False

    @abstractmethod
    def allocate(self, plan: MemoryPlan) -> None:
        """Make the window, and what else depends on the stream, as planned."""

    def check_batch(self, batch: pa.RecordBatch) -> None:  # noqa: B027, in some joins none waits
        """Raise BudgetError for a batch with a tuple that could never wait."""

    @abstractmethod
    def take_in(self) -> None:
        """Admit some tuples; set ``full`` when no more fit."""

    @abstractmethod
    def begin(self) -> None:
        """Start an iteration: read pages, so that ``resume`` has something to do.

        Called only while a tuple waits. ``busy`` is true afterwards.
        """

    @abstractmethod
    def resume(self) -> None:
        """Go on with the iteration, by no more than one output batch."""

    def hand_over(self) -> None:  # noqa: B027, most policies keep nothing back
        """Emit what was kept back to fill an output batch."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether an iteration has begun and has not ended."""

    @property
    @abstractmethod
    def held(self) -> int:
        """Tuples that were taken in and have not left; those in the intake do not count.

        While it is 0, the run may change the version or the plan.
        """

    @abstractmethod
    def memory(self) -> dict[str, int]:
        """Bytes by component."""

    @property
    def longest_wait(self) -> int | None:
        """Iterations that a tuple can wait at most, if there is such a bound."""
        return None

    def outgrown(self, plan: MemoryPlan, new: MemoryPlan) -> bool:
        """Whether a version that needs ``new`` no longer fits into what was allocated."""
        return new.table > plan.table

    # -- the front stage, which any policy may have ----------------------------------------

    @property
    def front(self) -> FrontStage | None:
        return self.admission.front

    def make_front_stage(self, plan: MemoryPlan, table: TableShape) -> None:
        """Make the front stage as planned. One that fits stays, with its rows."""
        front = self.admission.front
        if front is not None and front.nbytes <= plan.front_bytes:
            return
        self.admission.front = None  # the old one goes before the new one comes
        if plan.front is not None:
            self.admission.front = new_front_stage(
                plan.cache, table.cached_types, plan.front, getattr(self.join, "threshold", 1)
            )

    def iteration_over(self) -> None:
        """Count the iteration. It has made room, so tuples may be taken in."""
        self.context.iteration_ends()
        self.full = False
