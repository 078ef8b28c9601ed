"""CMESHJOIN (003: Naeem, Dobbie, Lutteroth, Weber): MESHJOIN behind a front stage.

Tuples look up the hot master rows first; only those that miss enter the window. A row
is hot if it matches at least ``threshold`` waiting tuples when the scan reads it.

Waiting is bounded by one cycle, as in MESHJOIN; a tuple that hits the front stage does not wait.

Differences from the paper: those of MESHJOIN and of the front stage; and it needs a master
table sorted by key, because the front stage must hold all rows of a key or none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from semistream.engine.plan import MemoryPlan, buffer_pages, plan_window_join
from semistream.engine.policy import Parts, Policy
from semistream.engine.settings import Settings
from semistream.engine.shape import StreamShape, TableShape
from semistream.engine.window.hash_window import RingWindow
from semistream.joins.base import CachedJoin, Join
from semistream.joins.meshjoin import Mesh


@dataclass(frozen=True, kw_only=True)
class CachedMeshJoin(CachedJoin):
    """MESHJOIN with a front stage.

    Parameters are those of :class:`~semistream.joins.base.CachedJoin`.

    >>> CachedMeshJoin(memory="50MB", front_stage=0.25).name
    'cmeshjoin'
    """

    name: ClassVar[str] = "cmeshjoin"
    can_move_buffer: ClassVar[bool] = True

    def plan(self, table: TableShape, stream: StreamShape, settings: Settings) -> MemoryPlan:
        pages = buffer_pages(self, table, settings.buffer_share, settings.mesh_buffer_bytes)
        return plan_window_join(
            self,
            table,
            stream,
            settings,
            window=RingWindow,
            pages=pages,
            front=self.front_share,
            cache=self.cache,
        )

    def policy(self, join: Join, parts: Parts) -> Policy:
        return Mesh(join, parts)
