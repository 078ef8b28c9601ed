"""A policy makes the decisions of one algorithm. The run's loop calls it.

Each pass of the loop (``Run._work``) makes one of these calls, in this order of precedence::

    policy.resume()       while ``busy``: continue the iteration, by at most one output batch
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
from semistream.errors import InternalError
from semistream.master.pages import PageSource


class Parts:
    """The parts that the run owns and every policy works on."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.intake = Intake(context)
        self.output = Output(context)
        self.admission = Admission(context, self.intake, self.output)


class Policy(ABC):
    """One algorithm, working on the parts of one run.

    ``attach`` and ``detach`` follow the versions of the table, ``allocate`` the memory plan; no
    tuple waits when they are called, unless ``can_switch`` says otherwise. Everything else happens
    within the loop. A page read may raise anywhere in ``begin`` and ``resume``: no tuple has left,
    and the next call retries it.

    An iteration starts with ``context.iteration_begins()`` and ends with ``iteration_over()`` (or
    with ``context.iteration_ends()``, where the policy sets ``full`` itself). A tuple that leaves
    is counted in ``stats.matched`` or ``stats.unmatched``; admission counts those that never wait.
    """

    full = False  # admit no tuple until an iteration has made room
    can_release = False  # whether ``release`` ever gives a tuple

    def __init__(self, join: Any, parts: Parts) -> None:
        self.join = join
        self.context = parts.context
        self.intake = parts.intake
        self.output = parts.output
        self.admission = parts.admission

    @abstractmethod
    def attach(self, source: PageSource, table: TableShape, plan: MemoryPlan) -> None:
        """Open a version of the table: readers and the state per page."""

    @abstractmethod
    def detach(self) -> None:
        """Close what ``attach`` opened."""

    def prepare_switch(  # noqa: B027, most policies wait until their window is empty
        self, old: PageSource, new: PageSource, plan: MemoryPlan, fits: bool
    ) -> None:
        """The next tuples are joined with another version. ``fits``: what is allocated suffices."""

    @property
    def awaited_pages(self) -> int:
        """Pages, from the first on, among which are all that tuples wait for; 0: none waits, or
        tuples cannot wait while the run moves to another version."""
        return 0

    @property
    def can_switch(self) -> bool:
        """Whether ``attach`` may be called for this version: all tuples that wait would meet the
        rows of their own version."""
        return not self.held

    def plan(self, table: TableShape, stream: StreamShape) -> MemoryPlan:
        """Divide the budget for this table and stream."""
        return plan_memory(self.join, table, stream, self.context.settings)

    @property
    def wants_new_plan(self) -> bool:
        """Whether to re-plan memory as soon as no tuple waits."""
        return False

    @abstractmethod
    def allocate(self, plan: MemoryPlan) -> None:
        """Allocate the window and the other parts that depend on the stream, as planned."""

    def check_batch(self, batch: pa.RecordBatch) -> None:  # noqa: B027, some joins have no window
        """Raise BudgetError for a batch with a tuple that can never fit into the window."""

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
        """Continue the iteration by at most one output batch."""

    def hand_over(self) -> None:  # noqa: B027, most policies buffer nothing
        """Emit rows that are buffered to fill an output batch."""

    def release(self, most: int) -> pa.RecordBatch | None:
        """Take up to ``most`` tuples out of the window, for load shedding; None: there are none.

        Those that are the most expensive to serve: without a match so far, and of these the ones
        that have waited longest or have longest to wait. Called only while not ``busy``.
        """
        return None

    def look_up_at(self, position: float) -> None:  # noqa: B027, most joins have no queue
        """Read for the tuple at this position of the queue: 0 is the newest, 1 the oldest."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether an iteration is in progress."""

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
        """Maximum number of iterations that a tuple waits; None without a fixed bound."""
        return None

    def gives_way(self, new: MemoryPlan) -> bool:
        """Whether the window can become smaller for a table that has outgrown its part, while
        tuples wait."""
        return False

    def give_way(self, new: MemoryPlan) -> MemoryPlan:
        """Make the window smaller; returns the plan as it is now."""
        raise InternalError("this window cannot become smaller while tuples wait")

    def give_ahead(self, plan: MemoryPlan) -> MemoryPlan:
        """A push is over: perhaps make the window smaller for the next version. Returns the plan as
        it is now."""
        return plan

    def outgrown(self, plan: MemoryPlan, new: MemoryPlan) -> bool:
        """Whether ``new`` needs more than was allocated for ``plan``."""
        return new.table > plan.table

    # -- the front stage (optional) --------------------------------------------------------

    @property
    def front(self) -> FrontStage | None:
        return self.admission.front

    def make_front_stage(
        self,
        plan: MemoryPlan,
        table: TableShape,
        keeps_size: bool = True,
        keeps_rows: bool = False,
    ) -> None:
        """Allocate the front stage as planned.

        ``keeps_size``: an existing one that fits stays. ``keeps_rows``: a new one adopts the most
        used rows; both exist for a moment, so the window must have been freed.
        """
        before = self.admission.front
        if before is not None and keeps_size and before.nbytes <= plan.front_bytes:
            return
        self.admission.front = None
        if not keeps_rows:
            before = None  # free the old one before allocating the new one
        if plan.front is not None:
            front = new_front_stage(
                plan.cache, table.cached_types, plan.front, getattr(self.join, "threshold", 1)
            )
            if before is not None:
                front.adopt(before)
            self.admission.front = front

    def iteration_over(self) -> None:
        """Count the iteration. It has made room, so tuples may be taken in."""
        self.context.iteration_ends()
        self.full = False
