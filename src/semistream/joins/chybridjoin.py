"""CHYBRIDJOIN, also called CACHEJOIN (003: Naeem, Dobbie, Lutteroth, Weber, algorithms 1 and 3).

HYBRIDJOIN behind a front stage: tuples look up the hot master rows first, and only those that
miss enter the window. When a page is probed, every row of it that meets ``threshold`` waiting
tuples or more is put into the front stage in the place of the least frequent one.

Waiting is bounded as in HYBRIDJOIN; a tuple that hits the front stage does not wait at all.

| in the paper | here |
|---|---|
| w_F, w_B | hits of a slice, vacant slots of the window |
| SB_1, SB_2 | the incoming batch and its slices; misses go straight to the window |
| b, k | ``disk_buffer_pages`` |

Differences from the paper
--------------------------
- Those of HYBRIDJOIN and of the front stage.
- "g does not match an index value": our index knows first keys of pages, not every key, so a
  missing key costs the read of the page where it would be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from semistream.engine.front.choice import check_front_stage
from semistream.engine.plan import MemoryPlan
from semistream.engine.policy import Parts, Policy
from semistream.engine.settings import Settings
from semistream.engine.shape import StreamShape, TableShape
from semistream.joins.base import Join
from semistream.joins.hybridjoin import Hybrid, plan_hybrid


@dataclass(frozen=True, kw_only=True)
class CachedHybridJoin(Join):
    """HYBRIDJOIN with a front stage.

    Parameters
    ----------
    front_stage
        The front stage's part of the budget: a fraction, or a size. The paper finds the best
        near 15 % of the memory.
    threshold
        How many waiting tuples a master row must meet at once to be cached; it adapts.
    cache
        ``recorder``, the paper's, or ``counting``, SweepJoin's.

    >>> CachedHybridJoin(memory="50MB", front_stage="10MB").name
    'chybridjoin'
    """

    front_stage: float | int | str = 0.15
    threshold: int = 2
    cache: str = "recorder"

    name: ClassVar[str] = "chybridjoin"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_front_stage(self.front_stage, self.threshold, self.cache)

    def plan(self, table: TableShape, stream: StreamShape, settings: Settings) -> MemoryPlan:
        return plan_hybrid(self, table, stream, settings, front=self.front_stage, cache=self.cache)

    def policy(self, join: Join, parts: Parts) -> Policy:
        return Hybrid(join, parts)
