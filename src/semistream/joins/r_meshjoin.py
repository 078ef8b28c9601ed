"""R-MESHJOIN, "reduced" MESHJOIN, as 002 uses it as a peer.

Our interpretation: we do not have its paper; 002 and 003 say only that it divides the memory
differently, removes a dependency between components, and is simpler and slightly faster than
MESHJOIN. So: MESHJOIN ties the stream chunk to the disk buffer, because a chunk enters with
every read of b pages and the buffer must hold all b. Here the chunk is tied to a *group* of
pages, and the buffer holds a small part of the group at a time; the memory saved goes to the
window.

The loop is MESHJOIN's, with b pages read in several parts in line 2. Waiting is bounded by one
cycle.

Differences from the paper: see above; and those of MESHJOIN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from semistream.engine.plan import MemoryPlan, buffer_pages, plan_window_join
from semistream.engine.policy import Parts, Policy
from semistream.engine.settings import DEFAULTS, Settings
from semistream.engine.shape import StreamShape, TableShape
from semistream.engine.window.hash_window import RingWindow
from semistream.errors import ConfigError
from semistream.joins.base import Join
from semistream.joins.meshjoin import Mesh


@dataclass(frozen=True, kw_only=True)
class ReducedMeshJoin(Join):
    """R-MESHJOIN: MESHJOIN with a small disk buffer and chunks per group of pages.

    Parameters
    ----------
    group_pages
        Pages per chunk of the stream. Default: 4 MiB of pages.
    """

    group_pages: int | None = None

    name: ClassVar[str] = "r-meshjoin"
    can_move_buffer: ClassVar[bool] = True
    needs_order: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group_pages is not None and self.group_pages < 1:
            raise ConfigError(f"group_pages={self.group_pages!r}: must be at least 1")

    def plan(self, table: TableShape, stream: StreamShape, settings: Settings) -> MemoryPlan:
        pages = buffer_pages(self, table, settings.buffer_share, settings.reduced_buffer_bytes)
        return plan_window_join(self, table, stream, settings, window=RingWindow, pages=pages)

    def policy(self, join: Join, parts: Parts) -> Policy:
        return Mesh(join, parts, group=self.group_pages, group_bytes=DEFAULTS.reduced_group_bytes)
