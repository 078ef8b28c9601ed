"""CHYBRIDJOIN, also called CACHEJOIN (003: Naeem, Dobbie, Lutteroth, Weber, algorithms 1 and 3).

HYBRIDJOIN behind a front stage: tuples look up the hot master rows first, and only those that
miss enter the window. When a page is probed, every row that matches at least ``threshold``
waiting tuples is admitted to the front stage, evicting the least frequent one.

Waiting is bounded as in HYBRIDJOIN; a tuple that hits the front stage does not wait at all.

| in the paper | here |
|---|---|
| w_F, w_B | hits of a slice, vacant slots of the window |
| SB_1, SB_2 | the incoming batch and its slices; misses go straight to the window |
| b, k | ``disk_buffer_pages`` |

Differences from the paper
--------------------------
- Those of HYBRIDJOIN and of the front stage.
- "g does not match an index value": our index has the first key of each page, not every key, so an
  absent key costs a read of the page where it would be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from semistream.engine.plan import MemoryPlan
from semistream.engine.policy import Parts, Policy
from semistream.engine.settings import Settings
from semistream.engine.shape import StreamShape, TableShape
from semistream.joins.base import CachedJoin, Join
from semistream.joins.hybridjoin import Hybrid, plan_hybrid


@dataclass(frozen=True, kw_only=True)
class CachedHybridJoin(CachedJoin):
    """HYBRIDJOIN with a front stage.

    Parameters are those of :class:`~semistream.joins.base.CachedJoin`.

    >>> CachedHybridJoin(memory="50MB", front_stage="10MB").name
    'chybridjoin'
    """

    name: ClassVar[str] = "chybridjoin"
    can_move_buffer: ClassVar[bool] = True

    def plan(self, table: TableShape, stream: StreamShape, settings: Settings) -> MemoryPlan:
        return plan_hybrid(self, table, stream, settings, front=self.front_share, cache=self.cache)

    def policy(self, join: Join, parts: Parts) -> Policy:
        return Hybrid(join, parts)
