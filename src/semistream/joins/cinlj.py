"""CINLJ (003: Naeem, Dobbie, Lutteroth, Weber, section 3.3): INLJ behind a front stage.

Tuples look up the hot master rows first; only those that miss go through INLJ's loop. INLJ by
itself does not count keys, so a *temporary buffer* counts the keys of recent tuples. A key that is
seen ``threshold`` times within its span is admitted to the front stage with the rows that were just
fetched for it.

No tuple waits: each is served in its own push.

Differences from the paper
--------------------------
- Those of INLJ and of the front stage.
- Rows are admitted to the front stage after the wave that fetched them.
- A key with rows in several pages, or with more rows than an output batch holds, is neither
  counted in the temporary buffer nor cached.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from semistream.engine.front.recent_keys import RecentKeys
from semistream.engine.plan import MemoryPlan
from semistream.engine.policy import Parts, Policy
from semistream.engine.settings import Settings
from semistream.engine.shape import StreamShape, TableShape
from semistream.errors import ConfigError
from semistream.joins.base import CachedJoin, Join
from semistream.joins.inlj import Inlj, plan_pool
from semistream.memory import parse_size

_SPAN_SHARE = 100  # temporary buffer = budget // 100


@dataclass(frozen=True, kw_only=True)
class CachedIndexNestedLoopJoin(CachedJoin):
    """INLJ with a front stage.

    Parameters
    ----------
    span
        Tuples after which the temporary buffer is cleared. Default: as many as fit into a
        hundredth of the budget.
    """

    span: int | None = None

    name: ClassVar[str] = "cinlj"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.span is not None and self.span < 1:
            raise ConfigError(f"span={self.span!r}: must be at least 1")

    @property
    def moves_memory(self) -> bool:
        return False  # nothing waits: the pool has what the front stage leaves

    @property
    def recent_tuples(self) -> int:
        fits = parse_size(self.memory) // _SPAN_SHARE // RecentKeys.bytes_of(1)
        return self.span or max(16, fits)

    def plan(self, table: TableShape, stream: StreamShape, settings: Settings) -> MemoryPlan:
        recent = RecentKeys.bytes_of(self.recent_tuples)
        return plan_pool(
            self,
            table,
            stream,
            settings,
            front=self.front_share,
            cache=self.cache,
            recent=recent,
        )

    def policy(self, join: Join, parts: Parts) -> Policy:
        return Inlj(join, parts, RecentKeys(self.recent_tuples))
