"""The window gives way to an index that grows with every change of the table.

Dividing memory again would empty the window. So the window becomes smaller in place, in steps that
also make room for the changes that come next. After a change, visits gather as many spare chunks as
another one would take, and the window gives them at the end of a push: then the next change, whose
push has enough to do, finds the room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from semistream.engine.plan import MemoryPlan
from semistream.joins.sweep.plan import SweepPlan
from semistream.joins.sweep.stretch_window import StretchWindow
from semistream.joins.sweep.visit import Visit

_MERGING_SHARE = 40  # of the budget, one part at most for merging lists of changed codes


class GrowingIndex:
    """``plan`` is how memory is divided now; ``chunks`` of the window are given at the switch that
    is being prepared. A step is ``budget // step_share`` bytes."""

    plan: SweepPlan

    def __init__(self, step_share: int) -> None:
        self._step_share = step_share
        self._needed: int | None = None  # bytes of the table after the last change,
        self._wanted = 0  # and how many more another one may need
        self._in_use = 0  # bytes of the table at present
        self.chunks = 0

    def prepare(self, window: StretchWindow | None, new: MemoryPlan, merging: int = 0) -> None:
        """``merging``: bytes that merging lists of the new version's changed codes takes."""
        if window is None:
            self.chunks = 0
            return
        assert isinstance(new, SweepPlan)
        self.chunks = self._chunks(window, new)
        before = self.plan.table - self.plan.growth if self._needed is None else self._needed
        self._needed = new.table - new.growth
        # The next change may be as large.
        self._wanted = max(0, self._needed - before) + new.budget // self._step_share
        self._wanted += min(merging, new.budget // _MERGING_SHARE)
        window.most_spare = min(window.chunks_in(self._wanted), window.chunks // 8)

    def fits(self, window: StretchWindow, new: MemoryPlan) -> bool:
        """Whether the window can become smaller by as much, while tuples wait."""
        return self._chunks(window, new) <= window.chunks // 2 and not _wider(self.plan, new)

    def shrink(self, window: StretchWindow, new: MemoryPlan, found: Sequence[Visit]) -> SweepPlan:
        """Make the window smaller; ``found`` are the visits whose tuples left their lists."""
        assert self.plan.window is not None
        table = self.plan.table + self._bytes(new)
        window.shrink(self._chunks(window, new), found)
        size = replace(self.plan.window, capacity=window.capacity, nbytes=window.nbytes)
        self.plan = replace(self.plan, table=table, growth=0, window=size)
        return self.plan

    def give_ahead(self, window: StretchWindow, found: Sequence[Visit]) -> bool:
        """Make the window smaller for the next change, once as many chunks are spare; returns
        whether it did."""
        if self._needed is None or not window.most_spare:
            return False
        lacking = self._needed + self._wanted - self.plan.table
        chunks = window.chunks_in(lacking) if lacking > 0 else 0
        if not 0 < chunks <= min(window.spare, window.free_chunks):
            return False
        assert self.plan.window is not None
        window.shrink(chunks, found)
        window.most_spare = 0  # until the next change
        size = replace(self.plan.window, capacity=window.capacity, nbytes=window.nbytes)
        self.plan = replace(self.plan, table=self.plan.table + lacking, growth=0, window=size)
        return True

    def attached(self, plan: MemoryPlan) -> None:
        """The run has a version now, for which this was the plan."""
        assert isinstance(plan, SweepPlan)
        self._in_use = plan.table - plan.growth

    @property
    def room(self) -> int:
        """Bytes of the table's part that are not in use."""
        return max(0, self.plan.table - self._in_use)

    @staticmethod
    def outgrown(plan: MemoryPlan, new: MemoryPlan) -> bool:
        """Also if rows that are being gathered may take more than was set apart."""
        assert isinstance(new, SweepPlan)
        return new.table - new.growth > plan.table or _wider(plan, new)

    def _bytes(self, new: MemoryPlan) -> int:
        """What the table needs more than its part, and some for the changes that come next."""
        assert isinstance(new, SweepPlan)
        more = new.table - new.growth - self.plan.table
        return more + new.budget // self._step_share if more > 0 else 0

    def _chunks(self, window: StretchWindow, new: MemoryPlan) -> int:
        return window.chunks_in(self._bytes(new))


def _wider(plan: MemoryPlan, new: MemoryPlan) -> bool:
    assert isinstance(plan, SweepPlan)
    assert isinstance(new, SweepPlan)
    return new.widest_row > plan.widest_row
